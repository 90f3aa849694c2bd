"""GridBot against naive scheduling (Silberstein et al. 2009): one bag on grids and volunteers together.

Naive scheduling is first come first served with a deadline of three days, the least that volunteers accept: a lost job
runs again three days later.  With policies, the bag's tail goes to hosts of the grids that lose little, and late jobs
are replicated there; the deadline is the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from windfall.core.config import Config
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Series, StudyResult
from windfall.sim.experiments.grids import HOUR, MINUTE, SOURCE, HostKind, add_hosts, record_earlier_losses
from windfall.sim.record import Record
from windfall.sim.world import Work, World, WorldRules

SEEDS = 10
BEST_OF = 5  # the paper shows the best of so many naive runs


@dataclass(frozen=True)
class NaiveCalibration:
    tasks: int = 3_000
    minutes: tuple[float, float] = (20.0, 40.0)
    deadline: float = 72.0  # h; printed
    grid: int = 165  # hosts
    volunteers: int = 300
    grid_bad: float = 0.25  # share of the grids' hosts that lose much
    grid_loses: tuple[float, float] = (0.01, 0.37)  # together a tenth of all jobs; printed
    volunteers_lose: float = 0.1
    calls: float = 2.3  # a volunteer gives 0.01 to 1 of its time, 0.3 on average; printed
    away: float = 10.0  # min until a preempted host returns


CALIBRATION = NaiveCalibration()


POLICY = {
    "requirements": "!Bag.Tail || (!Host.Volunteer && Host.ErrorRate < 0.05)",
    "replicate": "Task.NumberOfReplicas == 1 && (Task.Replica1.Host.Volunteer || Task.Replica1.Host.ErrorRate > 0.05)"
                 " || Task.NumberOfReplicas == 1 && Now - Task.Replica1.SentTime > 3600"
                 " || Task.NumberOfReplicas == 2 && Now - Task.Replica2.SentTime > 3600"
                 " || Task.NumberOfReplicas == 3 && Now - Task.Replica3.SentTime > 3600",
}


def play(seed: int, policies: bool, calibration: NaiveCalibration = CALIBRATION) -> Record:
    lease = 6 * HOUR
    deadline = round(calibration.deadline * HOUR)
    config = Config(lease=lease, park=lease * 5 // 6, deaths=1_000, idle=1 << 40, silence=deadline, prefetch=0)
    world = World(seed, config, WorldRules(restart_wait=round(calibration.away * MINUTE), reports_gone=False))
    record = Record()
    record.attach(world.server)
    draw = random.Random(f"hosts {seed}")
    hosts = add_hosts(world, [
        HostKind("grid", calibration.grid, calibration.grid_bad, calibration.grid_loses, 0.2),
        HostKind("volunteers", calibration.volunteers, bad=1.0, loses=(0.0, calibration.volunteers_lose), spread=0.3,
                 volunteer=True, calls=calibration.calls)], draw)
    world.engine.run(1)
    record_earlier_losses(world, hosts, draw)
    low, high = (round(each * MINUTE) for each in calibration.minutes)
    work = Work(calibration.tasks, lambda _task, lot: lot.randint(low, high), retries=100, limit=deadline - lease,
                expect=(low + high) // 2)
    if policies:
        work.policy = POLICY
    world.submit(work)
    world.run()
    return record


def turnaround(record: Record) -> float:
    """Return the turnaround of the bag in hours."""
    return (record.bags[1].ended - record.bags[1].submitted) / HOUR


def run_n(options: Options) -> StudyResult:
    naive, ours = [], []
    for seed in options.seed_range(SEEDS):
        naive.append(play(seed, False))
        ours.append(play(seed, True))
        options.tell(f"seed {seed}: naive {turnaround(naive[-1]):.0f} h, with policies {turnaround(ours[-1]):.1f} h")
    hours = [list(map(turnaround, records)) for records in (naive, ours)]
    best = [min(hours[0][at : at + BEST_OF]) for at in range(0, len(hours[0]), BEST_OF)]
    more = sum(map(len, ours)) / len(ours)
    cells = [
        Cell(f"naive, best of {BEST_OF}", 280, sum(best) / len(best), "h", low=200, high=370),
        Cell("naive, mean of all", None, sum(hours[0]) / len(hours[0]), "h"),
        Cell("with policies", 8, sum(hours[1]) / len(hours[1]), "h", high=16),
        Cell("the longest of these", None, max(hours[1]), "h", high=16),
        Cell("attempts that ended, beyond one a task", None, 100 * (more / CALIBRATION.tasks - 1), "%"),
    ]
    series = [tasks_left("naive", naive[0]), tasks_left("policies", ours[0])]
    return StudyResult(cells, [Figure("Tasks that are left", "h", "tasks", series)])


def tasks_left(name: str, record: Record) -> Series:
    times = sorted(attempt.end for attempt in record.attempts() if attempt.counts)
    return Series(name, [at / HOUR for at in times], [float(len(times) - n - 1) for n in range(len(times))])


EXPERIMENTS = [
    Experiment("g-n", "policies against naive scheduling", SOURCE, run_n),
]
