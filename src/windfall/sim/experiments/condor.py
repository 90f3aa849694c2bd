"""GridBot against plain Condor (Silberstein et al. 2009): 3,000 short jobs in one opportunistic pool.

The pool is the same for both.  Without Windfall every job queues for a slot of its own; with Windfall the pool starts
pilots, each of which keeps its slot and runs job after job.  `CALIBRATION` holds the numbers that the paper does not
print, one set for all seeds; `docs/explanation/experiments.md` says how they were chosen and what depends on them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable
from dataclasses import dataclass

from windfall.core.config import Config
from windfall.core.messages.facts import Limits, Shape
from windfall.sim.engine import Engine
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Series, StudyResult
from windfall.sim.models.site import BatchJob, SimulatedSite, SiteSettings
from windfall.sim.record import Record
from windfall.sim.world import Work, World

SOURCE = "Silberstein, Sharov, Geiger, Schuster: GridBot, execution of bags of tasks in multiple grids (2009)"
TASKS = 3_000
SEEDS = 15
MINUTE = 60_000
MOST_PILOTS = 400  # in the pool at once
DEADLINE = 600_000  # ms after which a silent job is sent again; printed


@dataclass(frozen=True)
class CondorCalibration:
    """The pool, and what it gives one user.  Times are seconds."""

    task: tuple[float, float] = (30.0, 300.0)  # printed
    slots: int = 220  # the most that the pool lets one user have
    days: float = 0.2  # deviation of the logarithm of the slots between runs
    cycle: float = 300.0  # between two negotiations
    offered: float = 0.5  # share of others' slots that a negotiation offers us
    kept: float = 0.15  # share of our slots that stay ours when a job ends and another waits
    gap: float = 2.0  # between two starts of jobs from one queue
    startup: float = 10.0  # from the start of a job to its first word
    preempted: float = 22_800.0  # mean time until a job is preempted; printed: a tenth of all jobs of 20 to 60 minutes
    latency: float = 0.07  # one way, between the pool and the server on another continent


CALIBRATION = CondorCalibration()


class Pool:
    """Our queue at an opportunistic pool.  A negotiation claims slots for waiting jobs, which start there one by one.
    When a job ends its slot stays ours for the next job, or goes to other users."""

    def __init__(self, engine: Engine, calibration: CondorCalibration, slots: int) -> None:
        self.engine, self.calibration, self.slots = engine, calibration, slots
        self.site: SimulatedSite | None = None  # set later: the site needs its queue first
        self._waiting: dict[Hashable, None] = {}
        self._running: dict[Hashable, None] = {}
        self._claims = 0  # our idle slots
        self._pacing = False
        engine.after(round(engine.random.uniform(0, calibration.cycle) * 1000), self._negotiate)

    def __len__(self) -> int:
        return len(self._waiting)

    def free(self, now: int) -> int:
        return self._claims

    def submit(self, now: int, key: Hashable, procs: int, estimate: float) -> list[Hashable]:
        self._waiting[key] = None
        self._pace()
        return []

    def cancel(self, now: int, key: Hashable) -> list[Hashable]:
        del self._waiting[key]
        return []

    def end(self, now: int, key: Hashable) -> list[Hashable]:
        del self._running[key]
        self._claims += self.engine.random.random() < self.calibration.kept
        self._pace()
        return []

    def _negotiate(self) -> None:
        others = self.slots - len(self._running) - self._claims
        offered = sum(self.engine.random.random() < self.calibration.offered for _ in range(others))
        self._claims += max(0, min(offered, len(self._waiting) - self._claims))
        self._pace()
        self.engine.after(round(self.calibration.cycle * 1000), self._negotiate)

    def _pace(self) -> None:
        if not self._waiting:
            self._claims = 0  # a pool takes idle slots back when the queue is empty
        elif self._claims and not self._pacing:
            self._pacing = True
            self.engine.after(round(self.calibration.gap * 1000), self._start)

    def _start(self) -> None:
        self._pacing = False
        if self._waiting and self._claims:
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._running[key] = None
            self._claims -= 1
            assert self.site is not None
            self.site.start([key])
        self._pace()


def draw_pool(engine: Engine, calibration: CondorCalibration) -> SimulatedSite:
    """Return the pool, with a number of slots drawn for the day."""
    slots = round(calibration.slots * math.exp(engine.random.gauss(-calibration.days**2 / 2, calibration.days)))
    queue = Pool(engine, calibration, slots)
    queue.site = SimulatedSite(engine, "pool", queue, SiteSettings(
        startup=round(calibration.startup * 1000), preempts=calibration.preempted * 1000, requeues=True))
    return queue.site


def draw_durations(seed: int, calibration: CondorCalibration, tasks: int) -> list[int]:
    """Draw the run times of the jobs; both ways of running them get the same."""
    draw = random.Random(f"jobs {seed}")
    return [round(draw.uniform(*calibration.task) * 1000) for _ in range(tasks)]


class DirectJob:
    """A job of the pool that runs one task; a preempted job begins again from the start."""

    def __init__(self, site: SimulatedSite, job: BatchJob, wall: int, ended: dict[str, int]) -> None:
        self._site, self._job, self._ended = site, job, ended
        self._alive = True
        site.engine.after(wall, self._end)

    def die(self) -> None:
        self._alive = False

    def _end(self) -> None:
        if self._alive:
            self._ended[self._job.nonce] = self._site.engine.now
            self._site.leave(self._job)


def run_directly(seed: int, calibration: CondorCalibration = CALIBRATION, tasks: int = TASKS) -> list[int]:
    """Return the sorted ends of the jobs when each is submitted to the pool directly."""
    engine = Engine(seed)
    site = draw_pool(engine, calibration)
    walls = draw_durations(seed, calibration, tasks)
    ended: dict[str, int] = {}

    def begin(job: BatchJob) -> DirectJob:
        return DirectJob(site, job, walls[int(job.nonce)], ended)

    for number in range(tasks):
        site.submit("user", str(number), Shape(1, 1 << 30), begin)
    engine.run(done=lambda: len(ended) == tasks)
    return sorted(ended.values())


def run_through_windfall(seed: int, calibration: CondorCalibration = CALIBRATION, tasks: int = TASKS,
                         replicate: str = "none") -> Record:
    """Run the jobs through Windfall, with its pilots in the same pool."""
    engine = Engine(seed)
    site = draw_pool(engine, calibration)
    world = World(config=Config(deaths=200), engine=engine)
    record = Record()
    record.attach(world.server)
    latency = round(calibration.latency * 1000)
    world.cluster(site, Limits([Shape(1, 1 << 30)], pilots=MOST_PILOTS), latency=latency)
    walls = draw_durations(seed, calibration, tasks)
    world.submit(Work(tasks, lambda task, _draw: walls[task], retries=20, limit=DEADLINE, expect=165_000,
                      replicate=replicate))
    world.run()
    return record


def accepted_ends(record: Record) -> list[int]:
    return sorted(attempt.end for attempt in record.attempts() if attempt.counts)


def run_c(options: Options) -> StudyResult:
    plains, ours, more = [], [], []
    for seed in options.seed_range(SEEDS):
        plains.append(run_directly(seed))
        record = run_through_windfall(seed)
        ours.append(accepted_ends(record))
        more.append(len(record) / TASKS - 1)
        took = [times[-1] / MINUTE for times in (plains[-1], ours[-1])]
        options.tell(f"seed {seed}: {took[0]:.0f} min given to the pool, {took[1]:.0f} min through Windfall")
    ratios = [a[-1] / b[-1] for a, b in zip(plains, ours, strict=True)]
    cells = [
        Cell("given to the pool", 170, _mean([each[-1] for each in plains]) / MINUTE, "min"),
        Cell("its deviation", 41, _deviation([each[-1] / MINUTE for each in plains]), "min"),
        Cell("through Windfall", 53, _mean([each[-1] for each in ours]) / MINUTE, "min"),
        Cell("its deviation", 10, _deviation([each[-1] / MINUTE for each in ours]), "min"),
        Cell("ratio of the means", 170 / 53, sum(map(_last, plains)) / sum(map(_last, ours)), low=2, high=5),
        Cell("least ratio of a seed", None, min(ratios), ""),
        Cell("greatest", None, max(ratios), ""),
        Cell("attempts beyond one a job", None, 100 * _mean(more), "%"),
    ]
    return StudyResult(cells, [_figure(plains[0], ours[0])])


def _last(times: list[int]) -> int:
    return times[-1]


def _mean(values: list[int] | list[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: list[float]) -> float:
    middle = _mean(values)
    return math.sqrt(sum((each - middle) ** 2 for each in values) / max(len(values) - 1, 1))


def _figure(plain_ends: list[int], our_ends: list[int]) -> Figure:
    series = [Series(name, [at / MINUTE for at in times], [float(len(times) - n - 1) for n in range(len(times))])
              for name, times in (("given to the pool", plain_ends), ("through Windfall", our_ends))]
    return Figure("Jobs that are left", "min", "jobs", series)


EXPERIMENTS = [
    Experiment("g-c", "three thousand short jobs, against a plain pool", SOURCE, run_c),
]
