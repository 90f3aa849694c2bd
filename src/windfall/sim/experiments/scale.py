"""GridBot's scalability (Silberstein et al. 2009): many bags in the order of their rank, many jobs in one bag.

Figure 7: 50 bags of 1,200 jobs of three minutes at once, each with a rank of its own; and the same with fewer bags.
Section 7: 2.2 million jobs of 20 to 40 minutes in one bag.  How many jobs a second a real server dispatches is
measured in `bench/`; here it is the rate in simulated time, and what one decision costs.
"""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import NamedTuple

from windfall.core.config import Config
from windfall.core.messages.lifecycle import SUCCEEDED
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Series, StudyResult
from windfall.sim.experiments.grids import HOUR, MINUTE, SOURCE
from windfall.sim.record import Record
from windfall.sim.world import Work, World

BAGS, TASKS = 50, 1_200  # printed
HOSTS = 600
LEFT = (1_000, 500, 100)  # jobs left in a bag when its progress is compared; printed
MANY = 2_200_000  # printed
MANY_HOSTS = 2_800  # so that 115 years of processors take 15 days


class Course(NamedTuple):
    """The course of one bag.  Times are ms."""

    rank: int
    began: int
    left: tuple[int, ...]  # when so many jobs as in LEFT were left
    ended: int


def play(seed: int, bags: int = BAGS, tasks: int = TASKS, hosts: int = HOSTS) -> list[Course]:
    """Run many bags at once; return their courses, the highest rank first."""
    world = World(seed, Config(idle=1 << 40, lease=HOUR, park=HOUR * 5 // 6, deaths=1_000, prefetch=0))
    record = Record()
    record.attach(world.server)
    world.site("grid")
    world.pilots("grid", hosts, loses=0.01)
    ranks = random.Random(f"ranks {seed}").sample(range(1, bags + 1), bags)
    for rank in ranks:
        world.submit(Work(tasks, lambda _task, lot: lot.randint(2 * MINUTE, 4 * MINUTE), retries=99,
                          policy={"rank": f"{rank} + 0 * Host.Cores"}))
    world.run()
    began: dict[int, int] = {}
    ends: dict[int, list[int]] = {}
    for attempt in record.attempts():
        began[attempt.bag] = min(began.get(attempt.bag, attempt.granted), attempt.granted)
        if attempt.counts:
            ends.setdefault(attempt.bag, []).append(attempt.end)
    courses = []
    for bag, rank in enumerate(ranks, 1):
        times = sorted(ends[bag])
        left = tuple(times[tasks - 1 - min(n * tasks // TASKS, tasks - 1)] for n in LEFT)
        courses.append(Course(rank, began[bag], left, times[-1]))
    return sorted(courses, key=lambda course: -course.rank)


def count_inversions(times: list[int]) -> int:
    """Count the neighbours that are not in order."""
    return sum(a > b for a, b in pairwise(times))


def run_large_bag(tasks: int, hosts: int) -> tuple[float, float, float]:
    """Run one large bag; return its days, and the processor time of the simulation, in s and in ms per task."""
    world = World(1, Config(lease=HOUR, park=HOUR * 5 // 6, deaths=200, idle=1 << 40))
    world.site("grid")
    world.pilots("grid", hosts, loses=0.1)
    world.submit(Work(tasks, lambda _task, lot: lot.randint(20 * MINUTE, 40 * MINUTE), retries=100))
    began = time.process_time()
    world.run()
    taken = time.process_time() - began
    assert world.server.core.state.bags[1].counts[SUCCEEDED] == tasks
    return world.engine.now / 24 / HOUR, taken, 1000 * taken / tasks


def run_s(options: Options) -> StudyResult:
    """Run the study with one seed; `--seeds 2` leaves the large bag out."""
    seed = options.first_seed
    courses = play(seed)
    options.tell(f"{BAGS} bags are done")
    cells = _order_cells(courses) + _turnaround_cells({bags: play(seed, bags) for bags in (10, 25)} | {BAGS: courses})
    rate = BAGS * TASKS / (max(course.ended for course in courses) / 1000)
    cells.append(Cell("jobs a second, in simulated time", None, rate, ""))
    if (options.seeds or 1) == 1:
        days, taken, each = run_large_bag(MANY, MANY_HOSTS)
        cells += [Cell(f"{MANY:,} jobs in one bag", 15, days, "days"), Cell("processor time of that", None, taken, "s"),
                  Cell("decided a second, with the simulation around it", 93, 1000 / each, "jobs", 93)]
    x = [float(course.rank) for course in courses]
    series = [Series(f"{n:,} left", x, [course.left[at] / HOUR for course in courses]) for at, n in enumerate(LEFT)]
    return StudyResult(cells, [Figure("When so many jobs of a bag were left", "rank", "h", series)])


def _order_cells(courses: list[Course]) -> list[Cell]:
    begins = count_inversions([course.began for course in courses])
    return [Cell("lower ranks started before higher ones", 0, begins, low=0, high=0)] + [
        Cell(f"pairs of ranks out of order with {n:,} left", 0, count_inversions([c.left[at] for c in courses]),
             low=0, high=0)
        for at, n in enumerate(LEFT)]


def _turnaround_cells(courses: dict[int, list[Course]]) -> list[Cell]:
    """Compare the turnarounds of runs with different numbers of bags."""
    times = {bags: _mean([course.ended - course.began for course in found]) / MINUTE for bags, found in courses.items()}
    cells = [Cell(f"turnaround of a bag from its first job, {bags} bags", None, value, "min")
             for bags, value in times.items()]
    return [*cells, Cell("the longest of these over the shortest", 1, max(times.values()) / min(times.values()),
                         high=1.15)]


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


EXPERIMENTS = [
    Experiment("g-s", "scale: jobs a second, jobs in a bag, bags at a time", SOURCE, run_s),
]
