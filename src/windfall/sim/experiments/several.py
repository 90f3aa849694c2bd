"""GridBot's figure 9 (Silberstein et al. 2009): four bags of 30,000 jobs at once, on grids and volunteers together.

R1 has the highest rank.  Each bag has rules of its own for its tail: which hosts may run the last jobs, and which jobs
are replicated.  The paper's server is emulated (`feeder.py`).  `CALIBRATION` holds the numbers that the paper does not
print, one set for all seeds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from windfall.core.config import Config
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Series, StudyResult, seeds_cell
from windfall.sim.experiments.feeder import Feeder, FeederRules
from windfall.sim.experiments.grids import (
    HOUR,
    MINUTE,
    SECOND,
    SOURCE,
    HostKind,
    add_hosts,
    exponential,
    record_earlier_losses,
)
from windfall.sim.models.laws import Law
from windfall.sim.world import Work, World, WorldRules

SEEDS = 5  # each takes eight minutes


@dataclass(frozen=True)
class FourBagsCalibration:
    tasks: int = 30_000  # in each bag; printed
    minutes: tuple[float, float] = (10.0, 15.0)  # printed
    grid: int = 3_000  # hosts; down to `returns` as for one bag (`replicas.py`)
    bad: float = 0.15
    loses: tuple[float, float] = (0.07, 0.27)
    clean: float = 0.01
    away: float = 10.0  # min
    idle: float = 10.0  # s
    returns: float = 30.0  # min
    deadline: float = 25.0  # min, in grids
    volunteers: int = 22_000
    volunteers_lose: float = 0.1
    gives: tuple[float, float] = (0.2, 1.0)  # lognormal: a volunteer gives 0.01 to 1 of its time; printed
    contacts: float = 0.25  # h, on average, until a volunteer without a grant asks again
    patience: float = 8.0  # h: the volunteers' deadline
    buffer: int = 30_000  # replicas fill the queue up to so many jobs
    few: int = 8_000  # the tail begins when the queue holds fewer jobs than this
    left: int = 2_000  # R4's tail begins when fewer jobs than this have no result; printed


CALIBRATION = FourBagsCalibration()


BAD = "Host.ErrorRate > 0.01"
GRIDS = "!Host.Volunteer"
PERMISSIVE = "Task.NumberOfReplicas < 5"


def restrictive(n: int) -> str:
    """Return the expression that grants a job with n replicas one more: one of them is on a bad host, and the last was
    sent a quarter of an hour ago."""
    bad = " || ".join(f"Task.Replica{at}.{BAD}" for at in range(1, n + 1))
    return f"Task.NumberOfReplicas == {n} && Now - Task.Replica{n}.SentTime > 900 && ({bad})"


RESTRICTIVE = " || ".join(map(restrictive, (1, 2, 3, 4)))


def rules(calibration: FourBagsCalibration) -> list[FeederRules]:
    """Return the rules of R1 to R4."""
    made = [FeederRules(PERMISSIVE), FeederRules(PERMISSIVE, GRIDS), FeederRules(RESTRICTIVE, GRIDS),
            FeederRules(PERMISSIVE, GRIDS, left=calibration.left)]
    return [each._replace(rank=str(len(made) - at), buffer=calibration.buffer, few=calibration.few, lasts=False)
            for at, each in enumerate(made)]


class BagNumbers(NamedTuple):
    """The numbers of one bag."""

    turnaround: float  # min from its first job sent to its last result
    replicas: float  # percent of the jobs
    waste: float  # percent of the jobs: results that were thrown away
    began: float  # min from the start of all
    left: float  # jobs without a result when its tail began


def platform(seed: int, calibration: FourBagsCalibration) -> World:
    """Return a world of volunteers, who are there from the start, and of grid hosts, which join a minute later."""
    lease = HOUR
    config = Config(lease=lease, park=lease * 5 // 6, deaths=1_000, idle=round(calibration.idle * SECOND),
                    silence=100 * HOUR, prefetch=0)
    world = World(seed, config, WorldRules(restart_wait=round(calibration.away * MINUTE), reports_gone=False))
    draw = random.Random(f"hosts {seed}")
    hosts = add_hosts(world, [
        HostKind("volunteers", calibration.volunteers, bad=1.0, loses=(0.0, calibration.volunteers_lose), spread=0.3,
                 volunteer=True, gives=Law("", "lognormal", calibration.gives),
                 returns=exponential(60 * calibration.contacts), deadline=round(calibration.patience * HOUR))], draw)
    world.engine.run(MINUTE)
    hosts |= add_hosts(world, [
        HostKind("grid", calibration.grid, calibration.bad, calibration.loses, 0.15,
                 returns=exponential(calibration.returns), deadline=round(calibration.deadline * MINUTE))], draw)
    world.engine.run(MINUTE + 1)
    record_earlier_losses(world, hosts, draw, calibration.clean)
    return world


def work_of(seed: int, at: int, calibration: FourBagsCalibration, rank: str) -> Work:
    draw = random.Random(f"jobs {seed} {at}")
    walls = [round(draw.uniform(*calibration.minutes) * MINUTE) for _ in range(calibration.tasks)]
    return Work(calibration.tasks, lambda task, _draw: walls[task], retries=100,
                limit=round(calibration.patience * HOUR), expect=750_000, policy={"rank": rank}, name=f"R{at + 1}")


def play(seed: int, calibration: FourBagsCalibration = CALIBRATION) -> list[BagNumbers]:
    world = platform(seed, calibration)
    begun = world.engine.now
    feeders = [Feeder(world, work_of(seed, at, calibration, each.rank), each, seed)
               for at, each in enumerate(rules(calibration))]
    world.engine.run(done=lambda: all(feeder.done for feeder in feeders))
    return [numbers_of(feeder, begun) for feeder in feeders]


def numbers_of(feeder: Feeder, begun: int) -> BagNumbers:
    share = 100 / feeder.work.tasks
    return BagNumbers(
        turnaround=(max(feeder.ends.values()) - feeder.began) / MINUTE, replicas=len(feeder.jobs) * share,
        waste=feeder.discarded * share, began=(feeder.began - begun) / MINUTE, left=feeder.left)


def is_falling(values: Sequence[float]) -> bool:
    return all(a > b for a, b in pairwise(values))


CLAIMS: tuple[tuple[str, Callable[[list[BagNumbers]], bool]], ...] = (
    ("turnaround of R1 above R2's", lambda r: r[0].turnaround > r[1].turnaround),
    ("turnaround of R3 not above R2's", lambda r: r[1].turnaround >= r[2].turnaround),
    ("turnaround of R4 above R3's", lambda r: r[3].turnaround > r[2].turnaround),
    ("replicas fall from R1 to R4", lambda r: is_falling([each.replicas for each in r])),
    ("waste falls from R1 to R4", lambda r: is_falling([each.waste for each in r])),
)
PRINTED = ((188, 105), (129, 75), (49, 25), (35, 21))  # replicas and waste, in percent


def run_9(options: Options) -> StudyResult:
    runs = []
    for seed in options.seed_range(SEEDS):
        runs.append(play(seed))
        options.tell(f"seed {seed}: " + ", ".join(
            f"{each.turnaround:.0f} min ({each.replicas:.0f} %, {each.waste:.0f} %)" for each in runs[-1]))
    count = len(runs)
    cells = []
    for at, (replicas, waste) in enumerate(PRINTED):
        mean = BagNumbers(*(sum(values) / count for values in zip(*(run[at] for run in runs), strict=True)))
        cells += [Cell(f"R{at + 1}: turnaround", None, mean.turnaround, "min"),
                  Cell(f"R{at + 1}: replicas", replicas, mean.replicas, "%"),
                  Cell(f"R{at + 1}: waste", waste, mean.waste, "%")]
    cells += [seeds_cell(name, sum(map(holds, runs)), count) for name, holds in CLAIMS]
    x = [float(at + 1) for at in range(len(PRINTED))]
    return StudyResult(cells, [Figure("Turnaround of R1 to R4", "bag", "min", [
        Series("first seed", x, [each.turnaround for each in runs[0]])])])


EXPERIMENTS = [
    Experiment("g-9", "four rules of replication in the tail", SOURCE, run_9),
]
