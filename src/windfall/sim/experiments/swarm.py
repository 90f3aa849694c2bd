"""SWARM (Grunchec et al. 2009): figures 1 and 2, and table II, through the live code path.

Figures 1 and 2: five tasks of less than a second on four sites that start the next job in their queue at the times
printed.  Two cells of site 3 and one of site 1 are lost in the text at hand; see `STARTS`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from windfall.core.config import Config
from windfall.core.messages import facts as f
from windfall.core.messages.facts import Limits, Shape
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Series, StudyResult
from windfall.sim.experiments.swarm_table import run_t2
from windfall.sim.models.site import SimulatedSite
from windfall.sim.world import Work, World

SOURCE = "Grunchec, Hernández-Sánchez, Knott: SWARM, a meta-scheduler to minimize job queuing times (2009)"

STARTS = {  # ms; lost in the text: 6.5 s at site 1, 3 and 5 s at site 3
    "HPC 1": (100, 1_100, 4_000, 6_500, 8_000),
    "HPC 2": (1_000, 2_000, 5_000, 6_000, 7_000),
    "HPC 3": (1_000, 2_000, 3_000, 5_000, 6_000),
    "HPC 4": (1_000, 2_000, 3_000, 4_000, 7_000),
}
CANCELLING = 2_500  # ms until a cancellation takes effect
TASK = 500
ONE_TASK = 30_000  # ms a task may take; pilots ask for little more, so that each runs one, as the paper's jobs did


class Openings:
    """A queue that opens at given times: its first job then starts."""

    def __init__(self) -> None:
        self.waiting: list[Hashable] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def free(self, now: int) -> int:
        return 0

    def submit(self, now: int, key: Hashable, procs: int, estimate: float) -> list[Hashable]:
        self.waiting.append(key)
        return []

    def cancel(self, now: int, key: Hashable) -> list[Hashable]:
        self.waiting.remove(key)
        return []

    def end(self, now: int, key: Hashable) -> list[Hashable]:
        return []

    def next(self) -> list[Hashable]:
        return [self.waiting.pop(0)] if self.waiting else []


class Starts(NamedTuple):
    tasks: list[int]  # ms, in the order of tasks
    redundant: list[int]  # ms: when the pilots without a grant started


def run_figure(provision: str, cancelling: int = CANCELLING) -> Starts:
    """Run five tasks; return when each started, and when pilots started in vain."""
    world = World(config=Config(provision=50, idle=1_000, margin=100, prefetch=0, worth=0), watch=True)
    enrolled: dict[int, int] = {}
    granted: dict[int, tuple[int, int]] = {}  # pilot → task, when

    def observe(facts: list[f.Fact]) -> None:
        for fact in facts:
            if isinstance(fact, f.PilotEnrolled):
                enrolled[fact.pilot] = fact.at
            elif isinstance(fact, f.Granted):
                granted[fact.pilot] = (fact.groups[0].tasks[0], fact.at)

    world.server.observe(observe)
    shape = Shape(1, 1 << 30, wall=ONE_TASK + 200)
    for name, times in STARTS.items():
        site = SimulatedSite(world.engine, name, Openings())
        world.cluster(site, Limits([shape]), submit=10, cancel=cancelling)
        for when in times:
            world.engine.at(when, _open, site)
    world.submit(Work(5, lambda task, draw: TASK, limit=ONE_TASK, expect=TASK, provision=provision))
    world.run(20_000)
    return Starts([at for _, at in sorted(granted.values())],
                  sorted(at for pilot, at in enrolled.items() if pilot not in granted))


def _open(site: SimulatedSite) -> None:
    site.start(site.queue.next())


def _cells(starts: Starts, last: float, redundant: int) -> list[Cell]:
    before = sum(at < max(starts.tasks) for at in starts.redundant)
    return [
        Cell("last task starts", last, max(starts.tasks) / 1000, "s", low=last, high=last),
        Cell("redundant starts before it", redundant, before, low=redundant, high=redundant),
    ]


def _both() -> Figure:
    series = [Series(name, [at / 1000 for at in sorted(run_figure(provision).tasks)], [1.0, 2.0, 3.0, 4.0, 5.0])
              for name, provision in (("MSR", "msr"), ("SWARM", "swarm"))]
    return Figure("Tasks started", "s", "tasks", series)


def run_f1(options: Options) -> StudyResult:
    notes = []
    for latency in (0, 1_000, 2_000, 3_000):
        starts = run_figure("msr", latency)
        wasted = sum(at < max(starts.tasks) for at in starts.redundant)
        notes.append(f"cancellations taking {latency / 1000:g} s: last task at {max(starts.tasks) / 1000:g} s after "
                     f"{wasted} redundant starts")
    return StudyResult(_cells(run_figure("msr"), 6.0, 10), [_both()], notes)


def run_f2(options: Options) -> StudyResult:
    return StudyResult(_cells(run_figure("swarm"), 1.1, 0), [_both()])


EXPERIMENTS = [
    Experiment("s-f1", "replication on all sites: when the last of five tasks starts", SOURCE + ", figure 1", run_f1),
    Experiment("s-f2", "one swarm of pilots: when the last of five tasks starts", SOURCE + ", figure 2", run_f2),
    Experiment("s-t2", "broker, replication and swarm, competing on four loaded sites", SOURCE + ", table II", run_t2),
]
