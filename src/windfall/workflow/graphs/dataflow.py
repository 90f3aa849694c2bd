"""Data flow: each task reads a thing as the last task before it has written it.

Things are names with indices.  "Before" means on a lower level of the graph: so a reader always waits for its writer,
even where a program forgot to say so, and never in a circle.  A task that reads a collection gets all its members at
that time.  A task that writes a whole collection leaves one file, which replaces the earlier members and from which
readers pick members.

The module handles all instances of all statements at once: an access is a row, and rows are compared in columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from windfall.errors import TooLarge
from windfall.workflow.yvetteml.frame import take
from windfall.workflow.yvetteml.names import Use, numbered
from windfall.workflow.yvetteml.program import Program

MAX_FLOWS = 20_000_000


@dataclass(frozen=True)
class AccessRows:
    """All instances of several uses as rows, one use after the other."""

    uses: list[Use]
    use: np.ndarray  # row → place in `uses`
    row: np.ndarray  # row → instance of that use
    task: np.ndarray
    level: np.ndarray

    def __len__(self) -> int:
        return len(self.task)


@dataclass(frozen=True)
class Flow:
    """Flows from rows of `writes` to rows of `reads`, pair by pair."""

    writes: AccessRows
    write: np.ndarray
    reads: AccessRows
    read: np.ndarray


@dataclass(frozen=True)
class DataHistory:
    """All accesses to one name, and the flows between them."""

    key: tuple[int, str]
    writes: list[AccessRows]  # writes of members, and of whole collections
    flows: list[Flow]
    unwritten_reads: list[tuple[Use, int, int]]  # reads that no task has written for: use, instance, task

    def final_writes(self, unread: bool) -> Iterator[tuple[Use, int, int]]:
        """Yield the last writes as use, instance, task; with `unread`, only those that no task reads."""
        wholes = [writes for writes in self.writes if writes.uses[0].collection]
        for writes in self.writes:
            last = _last(writes) & ~_replaced(writes, wholes)
            for flow in self.flows if unread else ():
                if flow.writes is writes:
                    last[flow.write] = False
            for at in np.flatnonzero(last).tolist():
                yield writes.uses[writes.use[at]], int(writes.row[at]), int(writes.task[at])


def data_histories(program: Program) -> Iterator[DataHistory]:
    numbers = np.full(program.dag.nodes, -1, np.int64)
    numbers[program.nodes] = np.arange(program.tasks)
    for key, every in program.data.items():
        uses = [use for use in every if use.frame.n]
        if uses:
            yield _HistoryBuilder(program, numbers, key, uses).thing()


class _HistoryBuilder:
    def __init__(self, program: Program, numbers: np.ndarray, key: tuple[int, str], uses: list[Use]) -> None:
        self.program, self.numbers, self.key = program, numbers, key
        self.reads = [self._rows(group) for group in _ranks([use for use in uses if use.mode != "out"])]
        self.writes = [self._rows(group) for group in _ranks([use for use in uses if use.mode != "in"])]

    def _rows(self, uses: list[Use]) -> AccessRows:
        counts = [use.frame.n for use in uses]
        row = np.concatenate([np.arange(n) for n in counts])
        task = np.concatenate([self.numbers[use.node] + np.arange(use.frame.n) for use in uses])
        return AccessRows(uses, np.repeat(np.arange(len(uses)), counts), row, task, self.program.levels[task])

    def thing(self) -> DataHistory:
        flows: list[Flow] = []
        unwritten_reads: list[tuple[Use, int, int]] = []
        for reads in self.reads:
            members = reads.uses[0].collection
            found = self._members(reads) if members else self._items(reads)
            served = np.zeros(len(reads), bool)
            for flow in found:
                served[flow.read] = True
            flows += [flow for flow in found if len(flow.read)]
            unwritten_reads += [
                (reads.uses[reads.use[at]], int(reads.row[at]), int(reads.task[at]))
                for at in np.flatnonzero(~served).tolist()
            ]
        return DataHistory(self.key, self.writes, flows, unwritten_reads)

    def _items(self, reads: AccessRows) -> list[Flow]:
        """Match each read of a thing with the last write of it, or of a collection around it."""
        return _newest(self.writes, reads)

    def _members(self, reads: AccessRows) -> list[Flow]:
        """Match each read of a collection with its last write as a whole and with the members written since."""
        flows = _newest([writes for writes in self.writes if writes.uses[0].collection], reads)
        since = np.full(len(reads), -1)
        for flow in flows:
            since[flow.read] = flow.writes.level[flow.write]
        return flows + [_all_members(writes, reads, since) for writes in self.writes if not writes.uses[0].collection]


def _ranks(uses: list[Use]) -> list[list[Use]]:
    """Group uses by their number of indices, and by whether they are collections."""
    found: dict[tuple[int, bool], list[Use]] = {}
    for use in uses:
        found.setdefault((len(use.ref.indices), use.collection), []).append(use)
    return list(found.values())


def _same(writes: AccessRows, reads: AccessRows) -> tuple[np.ndarray, np.ndarray]:
    """Number writes and reads so that equal numbers mean equal indices, as far as both have them."""
    rank = min(len(writes.uses[0].ref.indices), len(reads.uses[0].ref.indices))
    numbers = np.unique(numbered([*writes.uses, *reads.uses], rank), return_inverse=True)[1].reshape(-1)
    return numbers[: len(writes)], numbers[len(writes) :]


def _latest(writes: AccessRows, reads: AccessRows) -> np.ndarray:
    """Return for each read the row of the last write on a lower level, or -1."""
    wrote, wanted = _same(writes, reads)
    span = int(max(writes.level.max(), reads.level.max())) + 1
    keys = wrote * span + writes.level
    order = np.lexsort((writes.task, keys))
    at = np.searchsorted(keys[order], wanted * span + reads.level, side="left") - 1
    found = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (wrote[found] == wanted), found, -1)


def _newest(every: list[AccessRows], reads: AccessRows) -> list[Flow]:
    """Match each read with the last write among several kinds of writes."""
    picks = [_latest(writes, reads) for writes in every]
    levels = [np.where(pick >= 0, writes.level[pick], -1) for writes, pick in zip(every, picks, strict=True)]
    best = np.argmax(np.stack(levels), axis=0) if levels else np.zeros(0, np.int64)
    flows = []
    for number, (writes, pick) in enumerate(zip(every, picks, strict=True)):
        mine = np.flatnonzero((best == number) & (pick >= 0))
        flows.append(Flow(writes, pick[mine], reads, mine))
    return flows


def _all_members(writes: AccessRows, reads: AccessRows, since: np.ndarray) -> Flow:
    """Match each read of a collection with the last write of each member on a level after `since`."""
    wrote, wanted = _same(writes, reads)
    member = numbered(writes.uses, len(writes.uses[0].ref.indices))
    order = np.lexsort((writes.task, writes.level, member, wrote))
    begin, end = (np.searchsorted(wrote[order], wanted, side) for side in ("left", "right"))
    counts = end - begin
    if counts.sum() > MAX_FLOWS:
        raise TooLarge(f"collections are read in more than {MAX_FLOWS:,} pieces", "read fewer, larger things")
    read = np.repeat(np.arange(len(reads)), counts)
    write = order[np.arange(len(read)) - np.repeat(np.cumsum(counts) - counts - begin, counts)]
    between = (writes.level[write] < reads.level[read]) & (writes.level[write] > since[read])
    read, write = read[between], write[between]
    last = np.append((read[1:] != read[:-1]) | (member[write[1:]] != member[write[:-1]]), True)[: len(read)]
    return Flow(writes, write[last], reads, read[last])


def _last(writes: AccessRows) -> np.ndarray:
    """Mark the rows that no later write replaces."""
    member = numbered(writes.uses, len(writes.uses[0].ref.indices))
    order = np.lexsort((writes.task, writes.level, member))
    last = np.zeros(len(writes), bool)
    last[order[np.append(member[order[1:]] != member[order[:-1]], True)]] = True
    return last


def _replaced(writes: AccessRows, wholes: list[AccessRows]) -> np.ndarray:
    """Mark the rows inside a collection that a later task writes as a whole."""
    found = np.zeros(len(writes), bool)
    at_the_end = replace(writes, level=np.full(len(writes), np.iinfo(np.int32).max, np.int64))
    for whole in wholes:
        if len(whole.uses[0].ref.indices) <= len(writes.uses[0].ref.indices):
            last = _latest(whole, at_the_end)
            found |= (last >= 0) & (whole.level[last] > writes.level)
    return found


def indices(use: Use, row: int, skip: int = 0) -> tuple[int, ...]:
    """Return the indices of one instance; the names of a graph component begin with the component's number."""
    return tuple(int(take(each, row)) for each in use.ref.indices[skip:])
