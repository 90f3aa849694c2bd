"""Data of a bag's tasks: the bytes that they read and leave, and where copies lie, in columns of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages import facts as f
from windfall.core.state.columns import Table
from windfall.core.state.fields import CHUNKED, INDEX
from windfall.core.state.graph import Pairs

HOME = "home"
OUTSIDE = -1  # in place of the task that made it


class Columns(Table):
    """The data columns of a bag that describes its data, one row per task."""

    LAYOUT = (
        ("reads", np.int64),  # bytes from outside
        ("leaves", np.int64),
        ("since", np.int64),  # when it became ready, if that was after its target did
        ("read_files", np.int32),
        ("leave_files", np.int32),
        ("place", np.int32),  # where what it left lies: number of a place, 0: nowhere
    )
    reads: memoryview
    leaves: memoryview
    since: memoryview
    read_files: memoryview
    leave_files: memoryview
    place: memoryview
    np_since: NDArray[np.int64]
    np_place: NDArray[np.int32]


class Input(NamedTuple):
    task: int  # that made it, or OUTSIDE
    size: int
    files: int


@dataclass(slots=True)
class BagData:
    columns: Columns = field(metadata=CHUNKED)
    staged: list[str]  # sites
    stays: bool
    keeps: bool
    more: dict[int, list[int]] = field(default_factory=dict)  # task → further places
    released: dict[int, int] = field(default_factory=dict)  # target → when its prerequisites were done
    # the tasks before each, as compressed rows
    starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64), metadata=INDEX)
    before: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32), metadata=INDEX)

    def inputs(self, task: int) -> list[Input]:
        c = self.columns
        found = [Input(OUTSIDE, c.reads[task], c.read_files[task])] if c.read_files[task] else []
        if task + 1 < len(self.starts):
            for made in self.before[self.starts[task] : self.starts[task + 1]].tolist():
                if c.leave_files[made]:
                    found.append(Input(made, c.leaves[made], c.leave_files[made]))
        return found

    def places(self, task: int) -> list[int]:
        """Return the places of a task's output, the place where it was made first."""
        first = self.columns.place[task]
        return [first, *self.more.get(task, ())] if first else []

    def add(self, task: int, place: int) -> None:
        if not self.columns.place[task]:
            self.columns.place[task] = place
            self.columns.touch(task)
        elif place not in self.places(task):
            self.more.setdefault(task, []).append(place)

    def drop(self, task: int, place: int) -> None:
        left = [each for each in self.places(task) if each != place]
        self.more.pop(task, None)
        self.columns.place[task] = left[0] if left else 0
        self.columns.touch(task)
        if left[1:]:
            self.more[task] = left[1:]

    def forget(self, task: int) -> None:
        self.columns.place[task] = 0
        self.columns.touch(task)
        self.more.pop(task, None)


def new_bag_data(shape: f.DataShape, tasks: int) -> BagData:
    columns = Columns(tasks)
    for name, kind in (("reads", "<i8"), ("leaves", "<i8"), ("read_files", "<i4"), ("leave_files", "<i4")):
        given = np.frombuffer(getattr(shape, name), dtype=kind)
        if len(given):
            getattr(columns, "np_" + name)[:tasks] = given
            columns.mark(0, tasks - 1)
    return BagData(columns, list(shape.staged), shape.stays, shape.keeps)


def link_up(data: BagData, pairs: Pairs, tasks: int) -> None:
    """Work out which tasks come before each."""
    order = np.argsort(pairs[:, 1], kind="stable")
    data.starts = np.zeros(tasks + 1, dtype=np.int64)
    np.cumsum(np.bincount(pairs[:, 1], minlength=tasks), out=data.starts[1:])
    data.before = pairs[order, 0].astype(np.int32)


def wrong_with(shape: f.DataShape, tasks: int) -> str:
    """A sentence, if its columns are not as long as the bag, or hold what cannot be."""
    for name, kind in (("reads", "<i8"), ("leaves", "<i8"), ("read_files", "<i4"), ("leave_files", "<i4")):
        given = getattr(shape, name)
        if given and len(given) != tasks * np.dtype(kind).itemsize:
            return f"data: {name} has {len(given)} bytes for {tasks} tasks"
        if given and int(np.frombuffer(given, dtype=kind).min()) < 0:
            return f"data: {name} has a negative number"
    return ""
