"""Files between tasks, as columns: the producing task, the file's name, the taking task, and the path there.

Rows are sorted by the taking task, so that the inputs of one task are a slice.  A flow takes 20 bytes, whatever the
length of its names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from windfall.errors import Unavailable
from windfall.model.spec import Flows

File = tuple[str, str, int, int]  # path, blob, size, mode


class TaskFlows:
    """The flows of a bag: one section for the submitted tasks, and one for each appended part."""

    def __init__(self) -> None:
        self._firsts: list[int] = []  # the first task of each section
        self._sections: list[_Section] = []

    def add(self, flows: Flows, first: int, tasks: int) -> None:
        self._firsts.append(first)
        self._sections.append(_Section(flows, first, tasks))

    def _of(self, task: int) -> _Section:
        return self._sections[bisect_right(self._firsts, task) - 1]

    def before(self, tasks: list[int]) -> list[int]:
        """Return the tasks whose files these tasks take."""
        parts = [self._of(task).before(task) for task in tasks]
        found = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int32)
        return [int(number) for number in found[found >= 0]]

    def inputs(self, task: int, made_by: Callable[[list[int]], dict[int, list[File]]]) -> list[File]:
        """Return a task's input files.  `made_by` returns the output files of tasks, or raises while it looks them
        up."""
        made = made_by(self.before([task]))
        return self._of(task).inputs(task, made)


class _Section:
    def __init__(self, flows: Flows, first: int, tasks: int) -> None:
        after = np.array(flows.after, np.int32) - first
        order = np.argsort(after, kind="stable")
        self._first, self._names, self._blobs = first, flows.names, flows.blobs
        self._before, self._name, self._place = (
            np.array(column, np.int32)[order] for column in (flows.before, flows.name, flows.place))
        self._starts = np.zeros(tasks + 1, np.int64)
        np.cumsum(np.bincount(after, minlength=tasks)[:tasks], out=self._starts[1:])

    def _part(self, task: int) -> slice:
        at = task - self._first
        if at + 1 >= len(self._starts):
            return slice(0, 0)  # a task appended later, without flows
        return slice(int(self._starts[at]), int(self._starts[at + 1]))

    def before(self, task: int) -> NDArray[np.int32]:
        return self._before[self._part(task)]

    def inputs(self, task: int, made: dict[int, list[File]]) -> list[File]:
        part = self._part(task)
        rows = zip(*(column[part].tolist() for column in (self._before, self._name, self._place)), strict=True)
        return [(self._names[place], *self._file(number, name, made)) for number, name, place in rows]

    def _file(self, before: int, name: int, made: dict[int, list[File]]) -> tuple[str, int, int]:
        if before < 0:
            return self._blobs[-1 - before]
        wanted = self._names[name]
        for path, blob, size, mode in made[before]:
            if path == wanted:
                return blob, size, mode
        raise Unavailable(f"task {before} has no output file '{wanted}'", "the pilot asks again", retry_after=1)
