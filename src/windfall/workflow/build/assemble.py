"""Assemble jobs that wait for one another into a bag: tasks in few targets, edges, and files passed between tasks.

    jobs = [Job("sort a > b", outputs=("b",)), Job("uniq b > c", outputs=("c",), takes=((0, "b", "b"),))]
    made = assemble("two", jobs, edges=[])
    client.submit(made.bag)                    # job k is task made.tasks[k]

All jobs with the same requirements (`ShellJob.like`) share a target.  The tasks of a target have consecutive numbers,
so a job's task number differs from its job number.  A job that takes another's output waits for it; `edges` add
prerequisites without files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from windfall.errors import BadInput
from windfall.model.spec import MAX_TARGETS, Bag, Flows, Policy, Sweep, Table, Target
from windfall.model.templates.table import format_row

PLAIN = Target()
SHELL = ["/bin/sh", "-c", "{command}"]


@dataclass(frozen=True)
class ShellJob:
    """`takes`: (job, that job's name of the file, path of the file here); `brings`: (path, sha256, size, mode)."""

    command: str  # a line for /bin/sh
    outputs: tuple[str, ...] = ()
    takes: tuple[tuple[int, str, str], ...] = ()
    brings: tuple[tuple[str, str, int, int], ...] = ()
    name: str = ""  # becomes the parameter `name` of its row in the results
    like: Target = PLAIN  # resources, retries, environment …: all but name, command, source and outputs


@dataclass(frozen=True)
class AssembledBag:
    bag: Bag
    tasks: list[int]  # the task number of each job


def assemble(name: str, jobs: Sequence[ShellJob], edges: Iterable[tuple[int, int]] = (), policy: Policy | None = None,
             effects: str = "none") -> AssembledBag:
    groups: dict[tuple[bytes, int], list[int]] = {}
    for number, job in enumerate(jobs):
        key = msgspec.msgpack.encode(job.like), len(job.outputs)
        groups.setdefault(key, []).append(number)
    if len(groups) > MAX_TARGETS:
        raise BadInput(f"the jobs ask for {len(groups):,} different things; at most {MAX_TARGETS:,}",
                       "let more of them have the same limits and environment")
    numbers = [0] * len(jobs)
    for task, job_number in enumerate(number for members in groups.values() for number in members):
        numbers[job_number] = task
    targets = [_target(at, [jobs[number] for number in members]) for at, members in enumerate(groups.values())]
    bag = Bag(name=name, targets=targets, effects=effects, policy=policy or Policy(), flows=_flows(jobs, numbers),
              edges=[(numbers[before], numbers[after]) for before, after in edges])
    return AssembledBag(bag, numbers)


def _target(at: int, jobs: list[ShellJob]) -> Target:
    """Make a target with one row per job; each output has a column of its own."""
    first = jobs[0]
    outputs = [f"out{place}" for place in range(len(first.outputs))]
    text = "\n".join(format_row([job.name, job.command, *job.outputs]) for job in jobs)
    table = Table(columns=["name", "command", *outputs], text=text, count=len(jobs))
    return msgspec.structs.replace(
        first.like, name=f"{first.like.name}{at or ''}", kind="command", command=SHELL, source=Sweep(axes=[table]),
        outputs=[f"{{{output}}}" for output in outputs])


def _flows(jobs: Sequence[ShellJob], numbers: list[int]) -> Flows | None:
    columns = FlowColumns()
    for number, job in enumerate(jobs):
        for before, output, place in job.takes:
            columns.take(numbers[before], output, numbers[number], place)
        for place, sha, size, mode in job.brings:
            columns.bring((sha, size, mode), numbers[number], place)
    return columns.flows()


class FlowColumns:
    """Collects the flows of a bag, one by one or in columns."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._blobs: dict[tuple[str, int, int], int] = {}
        self._before: list[int] = []
        self._name: list[int] = []
        self._after: list[int] = []
        self._place: list[int] = []

    def take(self, before: int, output: str, after: int, place: str) -> None:
        names = self._names
        self._before.append(before)
        self._name.append(names.setdefault(output, len(names)))
        self._after.append(after)
        self._place.append(names.setdefault(place, len(names)))

    def number(self, name: str) -> int:
        """Return the number of a file's name, for `take_all`."""
        return self._names.setdefault(name, len(self._names))

    def take_all(self, before: list[int], name: list[int], after: list[int], place: list[int]) -> None:
        """Add many flows at once, their names given as numbers."""
        self._before += before
        self._name += name
        self._after += after
        self._place += place

    def bring(self, blob: tuple[str, int, int], after: int, place: str) -> None:
        """Add a flow from a blob: a file that no task of this bag makes."""
        self.take(-1 - self._blobs.setdefault(blob, len(self._blobs)), place, after, place)

    def flows(self) -> Flows | None:
        if not self._before:
            return None
        return Flows(names=list(self._names), before=self._before, name=self._name, after=self._after,
                     place=self._place, blobs=list(self._blobs))
