"""GridBot's figure 8 (Silberstein et al. 2009): five bags of 1,200 jobs of three minutes at once, each with a policy.

B1 and B2 send bundles of ten to a host, B2 only to hosts that lose little; B4 uses such hosts alone; B5 keeps the
dedicated cluster for its tail.  B1 has the highest rank.  As in the paper hosts call only when they are done, so that
granted jobs cannot be recalled.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from windfall.core.config import Config
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Series, StudyResult, seeds_cell
from windfall.sim.experiments.grids import HOUR, MINUTE, SOURCE, HostKind, add_hosts, record_earlier_losses
from windfall.sim.record import Record
from windfall.sim.world import Work, World, WorldRules

SEEDS = 15
BAGS = 5


@dataclass(frozen=True)
class FiveBagsCalibration:
    tasks: int = 1_200  # printed
    minutes: tuple[float, float] = (2.5, 3.5)
    grid: int = 300  # hosts
    bad: float = 0.25  # share of the grid's hosts that lose much
    loses: tuple[float, float] = (0.0001, 0.06)  # share of the three-minute jobs that good and bad hosts lose
    cluster: int = 100  # hosts; printed
    spread: float = 0.15  # deviation of the logarithm of the grid's speeds
    away: float = 10.0  # min until a preempted host returns
    deadline: float = 60.0  # min


CALIBRATION = FiveBagsCalibration()


GOOD = "Host.ErrorRate < 0.01"
HELD = ("10", f"{GOOD} ? 10 : 1", "1", "1", "1")
REQUIREMENTS = ("true", "true", "true", GOOD, '!Bag.Tail || Host.Site == "cluster"')


def replicate_expression(held: str) -> str:
    """Return the expression that adds a replica when the last one was sent `held` times 1,000 s ago."""
    texts = []
    for n in (1, 2, 3):
        seconds = f"1000 * ({held.replace('Host.', f'Task.Replica{n}.Host.')})"
        texts.append(f"Task.NumberOfReplicas == {n} && Now - Task.Replica{n}.SentTime > {seconds}")
    return " || ".join(texts)


def policy_of(place: int) -> dict[str, str]:
    """Return the policy of a bag.

    The paper's `Concurrency` counts all jobs of a host; our `per-host` counts the bag's own, `requirements` the others.
    """
    held = HELD[place]
    return {"rank": str(BAGS - place), "per-host": held, "replicate": replicate_expression(held),
            "requirements": f"Host.Running < ({held}) && ({REQUIREMENTS[place]})"}


class BagTimes(NamedTuple):
    """The times of one bag in one run, in minutes."""

    turnaround: float  # from the submission
    tail: float  # from when, for the first time, fewer of its tasks waited than ran


def play(seed: int, calibration: FiveBagsCalibration = CALIBRATION) -> list[BagTimes]:
    lease = 10 * MINUTE
    low, high = (round(each * MINUTE) for each in calibration.minutes)
    config = Config(lease=lease, park=lease * 5 // 6, deaths=1_000, idle=1 << 40, silence=24 * HOUR,
                    prefetch=10 * high)
    rules = WorldRules(restart_wait=round(calibration.away * MINUTE), reports_gone=False, obeys=False)
    world = World(seed, config, rules)
    record = Record()
    record.attach(world.server)
    draw = random.Random(f"hosts {seed}")
    grid = HostKind("grid", calibration.grid, calibration.bad, calibration.loses, calibration.spread)
    hosts = add_hosts(world, [grid, HostKind("cluster", calibration.cluster)], draw)
    world.engine.run(1)
    record_earlier_losses(world, hosts, draw)
    limit = round(calibration.deadline * MINUTE) - 15 * MINUTE
    for place in range(BAGS):
        world.submit(Work(calibration.tasks, lambda _task, lot: lot.randint(low, high), retries=100, limit=limit,
                          expect=(low + high) // 2, policy=policy_of(place), name=f"B{place + 1}"))
    begun = world.engine.now
    world.run()
    return [_row(record, bag, begun) for bag in range(1, BAGS + 1)]


def _row(record: Record, bag: int, begun: int) -> BagTimes:
    sent: dict[int, int] = {}
    done: list[int] = []
    for attempt in record.attempts():
        if attempt.bag == bag:
            sent[attempt.task] = min(sent.get(attempt.task, attempt.granted), attempt.granted)
            done += [attempt.end] if attempt.counts else []
    ended = record.bags[bag].ended
    return BagTimes((ended - begun) / MINUTE, (ended - tail_start(sent, done)) / MINUTE)


def tail_start(sent: dict[int, int], done: list[int]) -> int:
    """Return when, for the first time, fewer tasks wait to be sent than run."""
    waiting, running = len(sent), 0
    for at, change in sorted([(at, 1) for at in sent.values()] + [(at, -1) for at in done]):
        running += change
        waiting -= change > 0
        if waiting < running:
            return at
    return 0


CLAIMS = (
    ("tail of B1 longer than of B3", lambda b: b[0].tail > b[2].tail),
    ("tail of B2 longer than of B3", lambda b: b[1].tail > b[2].tail),
    ("turnaround of B4 below B3's", lambda b: b[3].turnaround < b[2].turnaround),
    ("tail of B5 longer than of B4", lambda b: b[4].tail > b[3].tail),
)


def run_8(options: Options) -> StudyResult:
    runs = []
    for seed in options.seed_range(SEEDS):
        runs.append(play(seed))
        options.tell(f"seed {seed}: " + ", ".join(f"{row.turnaround:.0f} ({row.tail:.0f}) min" for row in runs[-1]))
    cells = []
    for place in range(BAGS):
        for name in BagTimes._fields:
            values = [getattr(rows[place], name) for rows in runs]
            cells.append(Cell(f"B{place + 1}: {name}", None, sum(values) / len(values), "min"))
    cells += [seeds_cell(name, sum(map(holds, runs)), len(runs)) for name, holds in CLAIMS]
    x = [float(place + 1) for place in range(BAGS)]
    series = [Series(name, x, [getattr(row, name) for row in runs[0]]) for name in BagTimes._fields]
    return StudyResult(cells, [Figure("Turnaround and tail of B1 to B5", "bag", "min", series)])


EXPERIMENTS = [
    Experiment("g-8", "five bags at once, each with a policy of its own", SOURCE, run_8),
]
