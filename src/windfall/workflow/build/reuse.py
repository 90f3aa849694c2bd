"""Reuse of results: a task need not run if its command, files and inputs equal, to the byte, those of a succeeded one.

A task's key is a hash of the contents it sees: its target's fields, its row, and the hash of every file it is handed.
For a bag that has run all keys are known.  For a bag about to run a task's key is known once the tasks before it are
found among the done ones; if a task must run, so must every task that reads its files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from windfall.errors import BadInput, TooLarge
from windfall.model.spec import Bag, Flows, Sweep, Table, Target
from windfall.model.templates.render import Renderer, Space, source_count
from windfall.model.templates.table import format_row
from windfall.workflow.build.assemble import FlowColumns
from windfall.workflow.graphs.gates import GATES

MAX_BRIDGED = 5_000_000
File = tuple[str, str, int, int]  # path, blob, size, mode
Done = dict[bytes, tuple[int, int, list[File]]]  # key → bag, task, files
APART = ("name", "source", "resources", "time", "expect", "grace", "cost", "retries", "memory_retries", "time_retries",
         "priority")
"""Fields of a target that change neither what a task sees nor what it makes."""


@dataclass(frozen=True)
class Remainder:
    bag: Bag | None  # the tasks to run; None: all are done
    tasks: dict[int, int]  # task of the whole bag → task of `bag`
    done: dict[int, tuple[int, int]]  # task of the whole bag → the bag and task that did it


class TaskKeys:
    """The keys of a bag's tasks; callers ask in `order`, so that a file is known before a task reads it."""

    def __init__(self, bag: Bag) -> None:
        if any(target.after or target.takes for target in bag.targets):
            raise BadInput("a bag whose targets wait for one another cannot be run in parts", "windfall retry BAG")
        self.bag, self.flows = bag, bag.flows or Flows()
        self._rows = [row for target in bag.targets for row in _rows(target)]
        self.into: list[list[int]] = [[] for _ in self._rows]  # task → the flows that end there
        self.out: list[list[int]] = [[] for _ in self._rows]
        for number, (before, after) in enumerate(zip(self.flows.before, self.flows.after, strict=True)):
            self.into[after].append(number)
            if before >= 0:
                self.out[before].append(after)

    def __len__(self) -> int:
        return len(self._rows)

    def order(self) -> list[int]:
        """Return the tasks in an order in which files are made before they are read."""
        pending = [sum(self.flows.before[flow] >= 0 for flow in flows) for flows in self.into]
        ready = [task for task, count in enumerate(pending) if not count]
        for task in ready:  # `ready` grows while the loop runs
            for after in self.out[task]:
                pending[after] -= 1
                if not pending[after]:
                    ready.append(after)
        return ready

    def key(self, task: int, files: Mapping[int, list[File]]) -> bytes | None:
        """Return a task's key, or None if a file that it reads is not known."""
        seen = []
        for flow in self.into[task]:
            found = self.file(flow, files)
            if found is None:
                return None
            seen.append((self.flows.names[self.flows.place[flow]], found[0]))
        return hashlib.sha256(msgspec.msgpack.encode((self._rows[task], sorted(seen)))).digest()

    def file(self, flow: int, files: Mapping[int, list[File]]) -> tuple[str, int, int] | None:
        before = self.flows.before[flow]
        if before < 0:
            return self.flows.blobs[-1 - before]
        wanted = self.flows.names[self.flows.name[flow]]
        return next((file[1:] for file in files.get(before, ()) if file[0] == wanted), None)


def _rows(target: Target) -> Iterable[tuple[bytes, tuple[str, ...]]]:
    """Return for each task the hash of its target's fields and the task's own row."""
    shown = {name: value for name, value in msgspec.to_builtins(target).items() if name not in APART}
    shared = hashlib.sha256(msgspec.json.encode(shown, order="deterministic")).digest()
    if not isinstance(target.source, Sweep):
        renderer = Renderer(target)
        return ((shared, (str(command),)) for command in renderer.commands(range(renderer.count)))
    columns = _texts(target.source)
    return ((shared, row) for row in zip(*columns.values(), strict=True)) if columns else [(shared, ())]


def _texts(sweep: Sweep) -> dict[str, list[str]]:
    """Return each parameter's texts at all points, by name: tables and ranges may order the parameters differently."""
    columns, count = Space(sweep).columns, source_count(sweep)
    return {name: columns[name].texts(range(count)) for name in sorted(columns)}


def done_by(number: int, bag: Bag, files: Mapping[int, list[File]]) -> Done:
    """Return the keys of a bag's succeeded tasks; `files` holds the output files of each."""
    keys = TaskKeys(bag)
    made = ((keys.key(task, files), task) for task in files if task < len(keys))
    return {key: (number, task, files[task]) for key, task in made if key is not None}


def remainder(bag: Bag, done: Done) -> Remainder:
    keys = TaskKeys(bag)
    files: dict[int, list[File]] = {}
    had: dict[int, tuple[int, int]] = {}
    for task in keys.order():
        key = keys.key(task, files)
        if key is not None and key in done:
            number, there, files[task] = done[key]
            had[task] = number, there
    for gate in _open_gates(bag, had):
        del had[gate]
    kept = [task for task in range(len(keys)) if task not in had]
    numbers = {task: number for number, task in enumerate(kept)}
    return Remainder(_part(keys, numbers, files) if kept else None, numbers, had)


def _open_gates(bag: Bag, had: Mapping[int, object]) -> set[int]:
    """Return the gates that wait for a task that must run; without the gate each pair of its ends would be an edge."""
    first, gates = 0, range(0)
    for target in bag.targets:
        count = source_count(target.source)
        gates = range(first, first + count) if target.name == GATES else gates
        first += count
    after: dict[int, list[int]] = {}
    for before, gate in bag.edges if gates else ():
        if gate in gates:
            after.setdefault(before, []).append(gate)
    ready = [task for task in after if task not in had]
    found: set[int] = set()
    for task in ready:  # `ready` grows while the loop runs
        for gate in after.get(task, ()):
            if gate in had and gate not in found:
                found.add(gate)
                ready.append(gate)
    return found


def _part(keys: TaskKeys, numbers: dict[int, int], files: Mapping[int, list[File]]) -> Bag:
    """Make a bag of the tasks that must run; files of done tasks come along as blobs."""
    columns = FlowColumns()
    for task, number in numbers.items():
        for flow in keys.into[task]:
            before, place = keys.flows.before[flow], keys.flows.names[keys.flows.place[flow]]
            if before in numbers:
                columns.take(numbers[before], keys.flows.names[keys.flows.name[flow]], number, place)
            elif (blob := keys.file(flow, files)) is not None:
                columns.bring(blob, number, place)
    edges = [(numbers[a], numbers[b]) for a, b in _past(keys.bag.edges, numbers)]
    targets, first = [], 0
    for target in keys.bag.targets:
        count = source_count(target.source)
        chosen = [task - first for task in range(first, first + count) if task in numbers]
        first += count
        if chosen:
            targets.append(target if len(chosen) == count else _some(target, chosen))
    return msgspec.structs.replace(keys.bag, targets=targets, edges=edges, flows=columns.flows())


def _past(edges: list[tuple[int, int]], kept: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the edges between kept tasks; done tasks between two of them become direct edges."""
    following: dict[int, set[int]] = {}
    before: dict[int, set[int]] = {}
    for first, second in edges:
        following.setdefault(first, set()).add(second)
        before.setdefault(second, set()).add(first)
    count = 0
    for gone in [task for task in following if task not in kept]:
        ins, outs = before.pop(gone, set()), following.pop(gone)
        count += len(ins) * len(outs)
        if count > MAX_BRIDGED:
            raise TooLarge(f"the remaining tasks have more than {MAX_BRIDGED:,} prerequisites", "run it as a whole")
        for each in ins:
            following[each].discard(gone)
            following[each] |= outs
        for each in outs:
            before[each].discard(gone)
            before[each] |= ins
    return ((first, second) for first, several in following.items() for second in several if second in kept)


def _some(target: Target, chosen: list[int]) -> Target:
    """Return the target with some of its tasks, as a table."""
    if not isinstance(target.source, Sweep):
        raise BadInput(f"the tasks of '{target.name}' are a list, which cannot run in part", "windfall retry BAG")
    texts = _texts(target.source)
    rows = [format_row([column[at] for column in texts.values()]) for at in chosen]
    table = Table(columns=list(texts), text="\n".join(rows), count=len(rows))
    return msgspec.structs.replace(target, source=Sweep(axes=[table]))
