"""SWARM, table II: a broker, replication and a swarm compete on four loaded sites (Grunchec et al. 2009).

Each round is one engine with three servers, as three independent systems would be, on the same four batch queues:

    broker   a resource broker's script: submits 50 jobs one by one, then collects them one by one, in that order
    MSR      50 analyses of one task, submitted by a sequence of calls, then polled together every 5 s
    SWARM    one analysis of 50 tasks

`CALIBRATION` holds the numbers that the paper does not print, one set for all rounds;
`docs/explanation/experiments.md` says how they were chosen and what depends on them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from windfall.core.config import Config
from windfall.core.messages import facts as f
from windfall.core.messages.facts import Limits, Shape
from windfall.sim.engine import Engine
from windfall.sim.experiments.base import Cell, Figure, Options, Series, StudyResult
from windfall.sim.models.clients import Collector, Poller, ScriptTimes, UserScript
from windfall.sim.models.site import SimulatedSite, machine
from windfall.sim.models.swf import LogJob
from windfall.sim.world import Work, World

SYSTEMS = ("broker", "MSR", "SWARM")
SITES = {"Westminster": 0.99, "Oxford": 1.03, "Leeds": 0.97, "RAL": 1.05}  # s for 100 MFlop, table I
PROCS, TASKS = 256, 50


@dataclass(frozen=True)
class SwarmCalibration:
    """The systems, and the sites they compete for.  Times are seconds."""

    task: tuple[float, float] = (120.0, 210.0)  # at a speed of 1; the wall clock printed is 162–198 s a task
    fails: float = 0.033  # share of the attempts; printed are 1.6 and 1.7 output failures in 50
    turnover: float = 4_500.0  # mean run time of other people's jobs
    moods: float = 0.5  # deviation of the logarithm of the turnover between sites
    days: float = 0.7  # deviation of the logarithm of the turnover between rounds
    waiting: float = 3.0  # other people's jobs that wait at a site in the beginning, on average
    arrivals: float = 0.3  # other people's new jobs per one that ends
    upload: float = 15.0  # upload of the common input, for all three systems
    gram: float = 3.0  # one submission or cancellation at a site
    flight: int = 2  # submissions and cancellations at once, per site
    call: float = 4.0  # one analysis handed to the scheduler (MSR makes 50 such calls)
    poll: float = 5.0
    broker_call: float = 4.0  # one job handed to the broker
    broker_match: float = 80.0  # from the broker to the site's queue, on average
    broker_notice: float = 60.0  # from a job's end until the broker reports it, on average
    broker_fetch: float = 50.0  # fetching one result, on average
    broker_moods: float = 1.0  # deviation of the logarithm of these three between rounds
    refresh: float = 180.0  # between two publications of the information system
    startup: float = 5.0  # from the start of a job to its pilot's first word


CALIBRATION = SwarmCalibration()


class SystemTimes(NamedTuple):
    """The times of one system in one round, in seconds."""

    average: float  # queuing time, mean over the tasks
    longest: float  # queuing time of the task that waited longest
    real: float  # real duration
    wall: float  # wall clock: the sum of the tasks' run times
    redundant: float  # wasted by pilots without a grant

    @property
    def speedup(self) -> float:
        return self.wall / self.real


def other_peoples_jobs(draw: random.Random, calibration: SwarmCalibration, day: float) -> Iterator[LogJob]:
    """Yield other people's jobs at a site, of one processor each: the jobs before the round, then the later ones."""
    turnover = calibration.turnover * day * _mood(draw, calibration.moods)
    waiting = round(draw.expovariate(1 / calibration.waiting)) if calibration.waiting else 0
    free = 0 if waiting else round(draw.expovariate(1 / max(calibration.waiting, 1.0)))
    number = 0
    for _ in range(PROCS - free + waiting):
        number += 1
        run = draw.expovariate(1 / turnover)
        yield LogJob(number, 0.0, run, 1, run)
    now, gap = 0.0, turnover / PROCS / calibration.arrivals
    while True:
        number += 1
        now += draw.expovariate(1 / gap)
        run = draw.expovariate(1 / turnover)
        yield LogJob(number, now, run, 1, run)


def _mood(draw: random.Random, spread: float) -> float:
    """Draw a lognormal factor of mean 1."""
    return math.exp(draw.gauss(-spread * spread / 2, spread))


class Submission(NamedTuple):
    """The submissions of a system at a site."""

    takes: Callable[[], int]  # ms of each
    flight: int  # most at once


class System:
    """A system in one round: its server, its tenders, and the numbers of its run."""

    def __init__(self, name: str, sites: list[SimulatedSite], calibration: SwarmCalibration,
                 submission: Submission) -> None:
        self.world = World(config=Config(provision=1_000, idle=1_000, prefetch=0, worth=0), engine=sites[0].engine)
        self.starts: dict[tuple[int, int], int] = {}  # (bag, task) → start of the attempt that counts
        self.walls: list[int] = []
        self.redundant = 0
        self._began: dict[int, int] = {}  # pilot → when
        self._used: dict[int, bool] = {}
        self._startup = _ms(calibration.startup)
        self.world.server.observe(self._observe)
        limit = _ms(calibration.task[1] * 3)
        self.limit = limit
        shape = Shape(1, 1 << 30, wall=limit + 20_000)
        for site in sites:
            self.world.cluster(site, Limits([shape], flight=submission.flight), user=name, submit=submission.takes,
                               cancel=lambda: _ms(calibration.gram), listing=_ms(calibration.gram), latency=20)

    def _observe(self, facts: list[f.Fact]) -> None:
        for fact in facts:
            if isinstance(fact, f.PilotEnrolled):
                self._began[fact.pilot] = fact.at
            elif isinstance(fact, f.Granted):
                self._used[fact.pilot] = True
            elif isinstance(fact, f.PilotEnded) and fact.pilot not in self._used:
                self.redundant += self._startup + fact.at - self._began[fact.pilot]
            elif isinstance(fact, f.Finished):
                for task, start in zip(fact.tasks, fact.starts, strict=True):
                    self.starts[fact.bag, task] = start
                self.walls += fact.walls
            elif isinstance(fact, f.Ended):
                for end in fact.ends:
                    if end.outcome == 0:
                        self.starts[end.bag, end.task] = end.start
                        self.walls.append(end.wall)

    def work(self, calibration: SwarmCalibration, tasks: int, provision: str) -> Work:
        low, high = calibration.task
        return Work(tasks, lambda task, draw: _ms(draw.uniform(low, high)), limit=self.limit, retries=9,
                    expect=_ms((low + high) / 2), fails=0.0 if provision == "broker" else calibration.fails,
                    provision=provision)

    def row(self, script: UserScript) -> SystemTimes:
        waits = [(at - script.began) / 1000 for at in self.starts.values()]
        return SystemTimes(average=sum(waits) / len(waits), longest=max(waits),
                           real=(script.ended - script.began) / 1000, wall=sum(self.walls) / 1000,
                           redundant=self.redundant / 1000)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def one_round(seed: int, calibration: SwarmCalibration = CALIBRATION) -> dict[str, SystemTimes]:
    engine = Engine(seed)
    draw = engine.random
    sites = _loaded_sites(engine, calibration)
    mood = _mood(draw, calibration.broker_moods)

    def about(mean: float) -> Callable[[], int]:
        return lambda: _ms(draw.expovariate(1 / mean)) if mean else 0

    grid = about(calibration.gram)
    systems = {
        "broker": System("broker", sites, calibration, Submission(about(calibration.broker_match * mood), TASKS)),
        "MSR": System("MSR", sites, calibration, Submission(grid, calibration.flight)),
        "SWARM": System("SWARM", sites, calibration, Submission(grid, calibration.flight)),
    }
    engine.run(1_000)  # let other people's first jobs start
    scripts: dict[str, UserScript] = {}

    def begin(name: str) -> None:
        system, before = systems[name], _ms(calibration.upload)
        if name == "broker":
            works = [system.work(calibration, 1, "broker") for _ in range(TASKS)]
            scripts[name] = Collector(system.world, works, ScriptTimes(
                poll=_ms(calibration.poll), before=before, call=about(calibration.broker_call),
                notice=about(calibration.broker_notice * mood), fetch=about(calibration.broker_fetch * mood)))
            return
        works = [system.work(calibration, 1, "msr") for _ in range(TASKS)] if name == "MSR" else [
            system.work(calibration, TASKS, "swarm")]
        poll = calibration.poll if name == "MSR" else 1.0
        times = ScriptTimes(poll=_ms(poll), before=before, call=about(calibration.call))
        scripts[name] = Poller(system.world, works, times)

    for place, name in enumerate(SYSTEMS):
        engine.after(_ms(draw.uniform(0, 5 / 3)) + _ms(place * 5 / 3), begin, name)
    engine.run(done=lambda: len(scripts) == len(SYSTEMS) and all(0 <= s.ended <= engine.now for s in scripts.values()))
    return {name: systems[name].row(scripts[name]) for name in SYSTEMS}


def _loaded_sites(engine: Engine, calibration: SwarmCalibration) -> list[SimulatedSite]:
    """Return the four sites with other people's jobs, drawn for one round."""
    draw = engine.random
    day = _mood(draw, calibration.days)
    return [machine(engine, name, PROCS, "fcfs", speed=1 / slow,
                    load=other_peoples_jobs(random.Random(draw.random()), calibration, day),
                    startup=_ms(calibration.startup), refresh=_ms(calibration.refresh))
            for name, slow in SITES.items()]


# --- the study ------------------------------------------------------------------------------------------------------


class Measure(NamedTuple):
    name: str
    of: Callable[[SystemTimes], float]
    paper: tuple[float, ...]  # broker, MSR, SWARM
    unit: str = "s"
    asked: bool = True
    up: bool = False  # is more better?


MEASURES = (
    Measure("queuing time, average", lambda row: row.average, (359, 257, 144)),
    Measure("queuing time, longest", lambda row: row.longest, (731, 458, 348)),
    Measure("real duration", lambda row: row.real, (3475, 629, 525)),
    Measure("speed-up", lambda row: row.speedup, (5.6, 15.8, 21.4), "", up=True),
    Measure("wall clock", lambda row: row.wall, (9878, 8110, 8612), asked=False),
    Measure("redundant", lambda row: row.redundant, (math.nan, 28, 37), asked=False),
)
ROUNDS = 15  # in one of the paper's studies
WITHIN = 1.5  # our ratio may differ from the paper's by this factor


def means(rounds: list[dict[str, SystemTimes]], measure: Measure) -> tuple[float, ...]:
    return tuple(sum(measure.of(each[name]) for each in rounds) / len(rounds) for name in SYSTEMS)


def count_in_order(rounds: list[dict[str, SystemTimes]]) -> int:
    """Count the asked measures that put the systems in the paper's order."""
    found = 0
    for measure in MEASURES:
        broker, msr, swarm = means(rounds, measure)
        found += measure.asked and (broker < msr < swarm if measure.up else broker > msr > swarm)
    return found


def run_t2(options: Options) -> StudyResult:
    """Run as many rounds as `options.seeds`, by default twenty of the paper's studies."""
    count = options.seeds or 20 * ROUNDS
    rounds = []
    for n in range(count):
        rounds.append(one_round(options.first_seed + n))
        if (n + 1) % ROUNDS == 0:
            options.tell(f"{n + 1} of {count} rounds")
    cells = [cell for measure in MEASURES for cell in _shown(rounds, measure)]
    cells += [cell for measure in MEASURES if measure.asked for cell in _ratios(rounds, measure)]
    cells.append(Cell("measures in the paper's order", 4, count_in_order(rounds), low=4, high=4))
    studies = [rounds[at : at + ROUNDS] for at in range(0, count - ROUNDS + 1, ROUNDS)]
    if studies:
        right = sum(count_in_order(study) == 4 for study in studies)
        cells.append(Cell(f"of {len(studies)} studies of {ROUNDS} rounds, all four in order", None, right,
                          low=0.9 * len(studies), high=len(studies)))
    return StudyResult(cells, [_figure(rounds[:ROUNDS])])


def _shown(rounds: list[dict[str, SystemTimes]], measure: Measure) -> list[Cell]:
    return [Cell(f"{measure.name}, {name}", None if math.isnan(paper) else paper, ours, measure.unit)
            for name, paper, ours in zip(SYSTEMS, measure.paper, means(rounds, measure), strict=True)
            if not math.isnan(paper)]


def _ratios(rounds: list[dict[str, SystemTimes]], measure: Measure) -> list[Cell]:
    ours, cells = means(rounds, measure), []
    for place, name in enumerate(SYSTEMS[:2]):
        paper = measure.paper[place] / measure.paper[2]
        cells.append(Cell(f"{measure.name}, {name}/SWARM", paper, ours[place] / ours[2], low=paper / WITHIN,
                          high=paper * WITHIN))
    return cells


def _figure(rounds: list[dict[str, SystemTimes]]) -> Figure:
    x = [float(n + 1) for n in range(len(rounds))]
    return Figure("Real duration of 50 tasks", "round", "s",
                  [Series(name, x, [each[name].real for each in rounds]) for name in SYSTEMS])
