"""Replay a log of jobs through a batch queue, and measure how long each would have waited."""

from __future__ import annotations

import csv
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.sim.models.batch import BatchQueue
from windfall.sim.models.swf import LogJob

TAU = 10.0  # seconds: a shorter run time counts as this, or tiny jobs would dominate the mean slowdown


class ReplayResult(NamedTuple):
    jobs: int
    mean_wait: float
    mean_bounded_slowdown: float
    waits: list[float]  # in the order of the jobs
    slowdowns: list[float]


def replay(jobs: list[LogJob], procs: int, discipline: str = "easy") -> ReplayResult:
    """Replay jobs, which are in order of submission."""
    for job in jobs:
        if job.procs > procs:
            raise BadInput(f"job {job.number} of the log asks for {job.procs} processors, the machine has {procs}",
                           "give the processors of the log's machine: --procs N")
    waits = _waits(jobs, BatchQueue(procs, discipline))
    if not waits:
        raise BadInput("the log has no jobs that ran")
    slowdowns = [max(1.0, (wait + job.run) / max(job.run, TAU)) for wait, job in zip(waits, jobs, strict=True)]
    return ReplayResult(len(jobs), sum(waits) / len(waits), sum(slowdowns) / len(slowdowns), waits, slowdowns)


def write_waits(jobs: list[LogJob], found: ReplayResult, directory: Path) -> Path:
    """Write a line for each job, all times in seconds, and return the file."""
    file = directory / "waits.csv"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with file.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["job", "submitted", "wait", "started", "ended", "run", "procs", "bounded_slowdown"])
            for job, wait, slowdown in zip(jobs, found.waits, found.slowdowns, strict=True):
                started = job.submit + wait
                times = (f"{each:.15g}" for each in (job.submit, wait, started, started + job.run, job.run))
                writer.writerow([job.number, *times, job.procs, f"{slowdown:.6f}"])
    except OSError as error:
        raise BadInput(f"cannot write {file}: {error.strerror}", "name another directory with -o") from None
    return file


def _waits(jobs: list[LogJob], queue: BatchQueue) -> list[float]:
    waits = [0.0] * len(jobs)
    ends: list[tuple[float, int, int]] = []  # time, order of starting, job
    count = arrived = 0
    while arrived < len(jobs) or ends:
        if arrived < len(jobs) and (not ends or jobs[arrived].submit <= ends[0][0]):
            job = jobs[arrived]
            now = job.submit
            started = queue.submit(now, arrived, job.procs, job.estimate)
            arrived += 1
        else:
            now, _, number = heappop(ends)
            started = queue.end(now, number)
        for key in started:
            assert isinstance(key, int)
            waits[key] = now - jobs[key].submit
            count += 1
            heappush(ends, (now + jobs[key].run, count, key))
    return waits
