"""The unstarted tasks of one class, in the order the bag's selection asks for.

Two parts: a cursor that walks the class's own order and finds ready tasks by looking at the state column, and a heap
of tasks that came back behind the cursor.  Neither is durable: after a recovery the cursor starts again at the first
task, and finds what is ready, so that ten million untouched tasks cost nothing to rebuild.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from windfall.core.columns import Tasks
from windfall.core.lifecycle import READY

_ZEROS = bytes(4096)
_SPAN = 4096


class Backlog:
    """`take(n)` gives up to n ready tasks; `put(task)` brings one back."""

    __slots__ = ("costs", "cursor", "heap", "order", "runs", "tasks", "total", "variant")

    def __init__(self, tasks: Tasks, variant: int, costs: NDArray[np.float32] | None = None) -> None:
        self.tasks = tasks
        self.variant = variant
        self.runs: list[tuple[int, int, int]] = []  # (first position, first task, count) of a base class
        self.total = 0  # positions in all
        self.cursor = 0
        self.heap: list[tuple[float, int]] = []
        self.costs = costs  # by position; None: in the order of their numbers
        self.order = None if costs is None else np.argsort(costs, kind="stable").astype(np.int32)

    def add_run(self, first: int, count: int) -> None:
        if self.runs and self.runs[-1][1] + self.runs[-1][2] == first:
            start, task, n = self.runs[-1]
            self.runs[-1] = (start, task, n + count)
        else:
            self.runs.append((self.total, first, count))
        self.total += count

    def rewind(self) -> None:
        self.cursor = 0
        self.heap.clear()

    def put(self, task: int) -> None:
        """A task is ready again.  Ahead of the cursor it will be found anyway."""
        if self.order is not None and self.costs is not None:
            heappush(self.heap, (float(self.costs[self._position(task)]), task))
        elif self.variant or task < self._task_at_cursor():
            heappush(self.heap, (task, task))

    def take(self, n: int) -> list[int]:
        if not self.heap:
            return self._walk(n)
        return self._merge(n)

    def _merge(self, n: int) -> list[int]:
        """Heap against cursor, cheapest first.  Rare: only while something has come back."""
        taken: list[int] = []
        while len(taken) < n and self.heap:
            task = self.heap[0][1]
            if task in taken or not self._is_ready(task):
                heappop(self.heap)
            elif self._cursor_is_cheaper(self.heap[0][0]):
                taken += [t for t in self._walk(1) if t not in taken]
            else:
                heappop(self.heap)
                taken.append(task)
        while len(taken) < n:
            more = self._walk(n - len(taken))
            if not more:
                break
            taken += [t for t in more if t not in taken]
        return taken

    def _cursor_is_cheaper(self, key: float) -> bool:
        if self.order is None or self.costs is None:
            return False  # what came back is always behind the cursor
        return self.cursor < self.total and float(self.costs[self.order[self.cursor]]) < key

    def _is_ready(self, task: int) -> bool:
        return bool(self.tasks.state[task] == READY and self.tasks.variant[task] == self.variant)

    def _position(self, task: int) -> int:
        for start, first, count in self.runs:
            if first <= task < first + count:
                return start + task - first
        raise KeyError(task)

    def _task_at_cursor(self) -> int:
        for start, first, count in reversed(self.runs):
            if self.cursor >= start:
                return first + self.cursor - start
        return 0

    def _walk(self, n: int) -> list[int]:
        """Move the cursor over up to n ready tasks."""
        taken: list[int] = []
        if self.order is not None:
            return self._walk_order(n, taken)
        for start, first, count in self.runs:
            if self.cursor < start + count:
                self._walk_run(n, taken, start, first, count)
                if len(taken) >= n:
                    break
        return taken

    def _walk_run(self, n: int, taken: list[int], start: int, first: int, count: int) -> None:
        end = first + count
        while len(taken) < n and self.cursor < start + count:
            task = first + max(self.cursor - start, 0)
            stop = min(task + n - len(taken), end, task + _SPAN)
            width = stop - task
            zeros = _ZEROS[:width]
            if self.tasks.state[task:stop] == zeros and self.tasks.variant[task:stop] == zeros:
                taken.extend(range(task, stop))
                self.cursor = start + stop - first
            else:
                self._pick(n, taken, start, first, task, min(task + _SPAN, end))

    def _pick(self, n: int, taken: list[int], start: int, first: int, task: int, stop: int) -> None:
        columns = self.tasks
        ready = np.flatnonzero((columns.np_state[task:stop] | columns.np_variant[task:stop]) == 0)
        few = ready[: n - len(taken)].tolist()
        taken.extend(task + i for i in few)
        self.cursor = start + (task + few[-1] + 1 if len(few) < len(ready) else stop) - first

    def _walk_order(self, n: int, taken: list[int]) -> list[int]:
        assert self.order is not None
        while len(taken) < n and self.cursor < self.total:
            task = self._task_at(int(self.order[self.cursor]))
            self.cursor += 1
            if self._is_ready(task):
                taken.append(task)
        return taken

    def _task_at(self, position: int) -> int:
        for start, first, count in self.runs:
            if start <= position < start + count:
                return first + position - start
        raise IndexError(position)
