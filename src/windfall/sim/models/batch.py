"""A batch queue: jobs of some processors each on a machine of many, first come first served, or EASY backfilling.

The queue is a pure machine: callers pass the time, and `submit`, `end` and `cancel` return the jobs that start now.

EASY (Lifka 1995): the head of the queue starts as soon as it fits.  Until then it holds a reservation at the *shadow*,
the earliest time that the estimates allow.  Another job may start out of order if it does not push the shadow back: if
it ends before the shadow by its own estimate, or fits into the processors that the head will leave over.

This order of events reproduces published schedules: at one instant submissions come before ends; jobs are started after
every end, and at a submission only if that job could start; processors count as free from a job's estimated end,
whether or not the job has ended.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Hashable
from typing import NamedTuple

from windfall.errors import BadInput

DISCIPLINES = ("fcfs", "easy")


class Queued(NamedTuple):
    key: Hashable
    procs: int
    estimate: float


class BatchQueue:
    def __init__(self, procs: int, discipline: str = "easy") -> None:
        if procs < 1:
            raise BadInput(f"a machine of {procs} processors cannot run a job", "give 1 processor or more")
        if discipline not in DISCIPLINES:
            raise BadInput(f"there is no discipline '{discipline}'", f"choose one of {', '.join(DISCIPLINES)}")
        self.procs = procs
        self._backfills = discipline == "easy"
        self._queue: dict[Hashable, Queued] = {}  # in order of submission
        self._ends: list[tuple[float, int]] = []  # sorted: estimated end and processors of the running jobs
        self._running: dict[Hashable, tuple[float, int]] = {}
        self._taken = 0  # processors of the jobs in _ends

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return len(self._running)

    def free(self, now: float) -> int:
        self._pass(now)
        return self.procs - self._taken

    # --- events: each returns the keys of the jobs that start now ---------------------------------------------------

    def submit(self, now: float, key: Hashable, procs: int, estimate: float) -> list[Hashable]:
        if not 1 <= procs <= self.procs:
            raise BadInput(f"a job cannot have {procs} processors on a machine of {self.procs}")
        self._queue[key] = Queued(key, procs, estimate)
        return self._schedule(now) if procs <= self.free(now) else []

    def end(self, now: float, key: Hashable) -> list[Hashable]:
        self._release(self._running.pop(key), now)
        return self._schedule(now)

    def cancel(self, now: float, key: Hashable) -> list[Hashable]:
        """Remove a waiting job; other jobs may then start."""
        del self._queue[key]
        return self._schedule(now)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _pass(self, now: float) -> None:
        """Free the processors of jobs whose estimated end has passed."""
        over = bisect_right(self._ends, (now, self.procs))
        if over:
            self._taken -= sum(procs for _, procs in self._ends[:over])
            del self._ends[:over]

    def _release(self, entry: tuple[float, int], now: float) -> None:
        at = bisect_right(self._ends, entry) - 1
        if at >= 0 and self._ends[at] == entry:
            del self._ends[at]
            self._taken -= entry[1]

    def _schedule(self, now: float) -> list[Hashable]:
        self._pass(now)
        started: list[Hashable] = []
        while self._queue:
            head = next(iter(self._queue.values()))
            if head.procs > self.procs - self._taken:
                if self._backfills and len(self._queue) > 1:
                    self._backfill(now, head, started)
                break
            self._start(now, head, started)
        return started

    def _start(self, now: float, job: Queued, started: list[Hashable]) -> None:
        del self._queue[job.key]
        entry = (now + job.estimate, job.procs)
        self._running[job.key] = entry
        if job.estimate > 0:
            insort(self._ends, entry)
            self._taken += job.procs
        started.append(job.key)

    def _backfill(self, now: float, head: Queued, started: list[Hashable]) -> None:
        shadow, extra = self._shadow(head)
        for job in list(self._queue.values())[1:]:
            free = self.procs - self._taken
            if not free:
                return
            if job.procs > free:
                continue
            if now + job.estimate <= shadow:
                self._start(now, job, started)
            elif job.procs <= extra:
                extra -= job.procs
                self._start(now, job, started)

    def _shadow(self, head: Queued) -> tuple[float, int]:
        """Return when the head can start by the estimates, and how many processors it then leaves over."""
        free = self.procs - self._taken
        shadow = 0.0
        for end, procs in self._ends:
            if free >= head.procs and end > shadow:
                break
            free += procs
            shadow = end
        return shadow, free - head.procs
