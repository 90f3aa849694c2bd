"""The unstarted tasks of one class, in the order the bag's selection asks for.

Two parts: a cursor that walks the class's own order and finds ready tasks by looking at the state column, and a heap
of tasks that came back behind the cursor.  Neither is durable: after a recovery the cursor starts again at the first
task, and finds what is ready, so that ten million untouched tasks cost nothing to rebuild.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages.lifecycle import READY
from windfall.core.state.columns import Tasks

_ZEROS = bytes(4096)
_SPAN = 4096
_MANY = 64
_LAST = float("inf")
_TRIED = 1 << 40  # what has failed goes behind what was not tried: whoever fails all does not fail one to its end


class Backlog:
    """`take(n)` gives up to n ready tasks; `put(task)` brings one back.

    Positions count the target's tasks in the order they were given; `costs` go by position, and what was appended
    later has none: it comes last.  Classes of the same target share the runs; only the first one walks them.
    """

    __slots__ = ("costs", "cursor", "heap", "order", "runs", "tasks", "total", "variant")

    def __init__(
        self, tasks: Tasks, variant: int, costs: NDArray[np.float32] | None = None,
        runs: list[tuple[int, int, int]] | None = None,
    ) -> None:
        self.tasks = tasks
        self.variant = variant
        self.runs: list[tuple[int, int, int]] = [] if runs is None else runs  # (first position, first task, count)
        self.total = 0  # positions to walk
        self.cursor = 0
        self.heap: list[tuple[float, int]] = []
        self.costs = costs  # None: in the order of their numbers
        self.order = None if costs is None or variant else np.argsort(costs, kind="stable").astype(np.int32)

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
        if self.costs is not None:
            heappush(self.heap, (self._cost(self.position(task)), task))
        elif self.variant or task < self._task_at_cursor():
            heappush(self.heap, (task + _TRIED * self.tasks.failures[task], task))

    def put_all(self, first: int, stop: int) -> None:
        """Many at once: walking again is cheaper than a heap of them."""
        if stop - first > _MANY and not self.variant:
            self.rewind()
            return
        for task in range(first, stop):
            self.put(task)

    def take(self, n: int) -> list[int]:
        if not self.heap:
            return self._step() if n == 1 else self._walk(n)
        return self._merge(n)

    def peek(self, n: int) -> list[int]:
        """Return the tasks that `take` would give, without taking them: the same again until something changes."""
        if self.order is None and (first := self._walk(1)):
            self.cursor = self.position(first[0])  # so that what has ended is walked over once
        cursor, heap = self.cursor, list(self.heap)
        found = self.take(n)
        self.cursor, self.heap = cursor, heap
        return found

    def _merge(self, n: int) -> list[int]:
        """Heap against cursor, cheapest first.  Rare: only while something has come back."""
        taken: dict[int, None] = {}
        while len(taken) < n and self.heap:
            key, task = self.heap[0]
            if task not in taken and self.is_ready(task):
                if self._cursor_is_cheaper(key):
                    taken.update(dict.fromkeys(self._walk(1 if self.order is not None else n - len(taken))))
                    continue
                taken[task] = None
            heappop(self.heap)
        while len(taken) < n:
            more = self._walk(n - len(taken))
            if not more:
                break
            taken.update(dict.fromkeys(more))
        return list(taken)

    def _cursor_is_cheaper(self, key: float) -> bool:
        if self.order is None:  # what came back is behind the cursor, and before it unless it has failed
            return key >= _TRIED and self.cursor < self.total
        return self.cursor < self.total and self._cost(self._place(self.cursor)) < key

    def _cost(self, position: int) -> float:
        assert self.costs is not None
        return float(self.costs[position]) if position < len(self.costs) else _LAST

    def _place(self, step: int) -> int:
        """The position that the walk reaches after so many steps."""
        return int(self.order[step]) if self.order is not None and step < len(self.order) else step

    def is_ready(self, task: int) -> bool:
        return bool(self.tasks.state[task] == READY and self.tasks.variant[task] == self.variant)

    def position(self, task: int) -> int:
        start, first, _ = self.runs[bisect_right(self.runs, task, key=_first_task) - 1]
        return start + task - first

    def task_at(self, position: int) -> int:
        start, first, _ = self.runs[bisect_right(self.runs, position, key=_first_position) - 1]
        return first + position - start

    def _task_at_cursor(self) -> int:
        return self.task_at(self.cursor) if self.runs else 0

    def _step(self) -> list[int]:
        """Take one task: mostly the next one in the last run, which needs no search."""
        start, first, _ = self.runs[-1]
        if self.order is None and start <= self.cursor < self.total:
            task = first + self.cursor - start
            if self.tasks.state[task] == READY and self.tasks.variant[task] == 0:
                self.cursor += 1
                return [task]
        return self._walk(1)

    def _walk(self, n: int) -> list[int]:
        """Move the cursor over up to n ready tasks."""
        taken: list[int] = []
        if self.order is not None:
            return self._walk_order(n, taken)
        at = max(bisect_right(self.runs, self.cursor, key=_first_position) - 1, 0)
        while self.cursor < self.total and len(taken) < n:
            self._walk_run(n, taken, self.runs[at])
            at += 1
        return taken

    def _walk_run(self, n: int, taken: list[int], run: tuple[int, int, int]) -> None:
        start, first, count = run
        end = first + count
        while len(taken) < n and self.cursor < start + count:
            task = first + self.cursor - start
            stop = min(task + n - len(taken), end, task + _SPAN)
            width = stop - task
            zeros = _ZEROS[:width]
            if self.tasks.state[task:stop] == zeros and self.tasks.variant[task:stop] == zeros:
                taken.extend(range(task, stop))
                self.cursor = start + stop - first
            else:
                self._pick(n, taken, run, slice(task, min(task + _SPAN, end)))

    def _pick(self, n: int, taken: list[int], run: tuple[int, int, int], span: slice) -> None:
        """Take the ready tasks of a span of a run, up to `n` in all."""
        columns, (start, first, _), task, stop = self.tasks, run, span.start, span.stop
        ready = np.flatnonzero((columns.np_state[span] | columns.np_variant[span]) == 0)
        few = ready[: n - len(taken)].tolist()
        taken.extend(task + i for i in few)
        self.cursor = start + (task + few[-1] + 1 if len(few) < len(ready) else stop) - first

    def _walk_order(self, n: int, taken: list[int]) -> list[int]:
        while len(taken) < n and self.cursor < self.total:
            task = self.task_at(self._place(self.cursor))
            self.cursor += 1
            if self.is_ready(task):
                taken.append(task)
        return taken


def _first_position(run: tuple[int, int, int]) -> int:
    return run[0]


def _first_task(run: tuple[int, int, int]) -> int:
    return run[1]
