"""GridBot's table of replication by scheduling (Silberstein et al. 2009): 30,000 jobs on collaborative grids.

Each policy runs on the paper's server (`feeder.py`) and on ours, with the same hosts, jobs and deadline.  `CALIBRATION`
holds the numbers that the paper does not print, one set for all policies and seeds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from windfall.core.config import Config
from windfall.core.messages.lifecycle import O_CANCELLED, O_SUCCEEDED
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Series, StudyResult
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
from windfall.sim.record import Record
from windfall.sim.world import Work, World, WorldRules

SEEDS = 15
TIE = 1.05


@dataclass(frozen=True)
class ReplicasCalibration:
    tasks: int = 30_000
    minutes: tuple[float, float] = (10.0, 15.0)  # printed
    hosts: int = 3_000
    bad: float = 0.15  # share of the hosts that lose much
    loses: tuple[float, float] = (0.07, 0.27)  # together a tenth of all jobs; printed
    clean: float = 0.01  # the other hosts have lost this share of what they lose now, so that they pass for reliable
    spread: float = 0.15  # deviation of the logarithm of the speeds
    away: float = 10.0  # min until a preempted host returns
    deadline: float = 55.0  # min
    buffer: int = 15_000  # the tail begins when the queue holds fewer jobs than this
    idle: float = 10.0  # s after which a pilot without work leaves
    returns: float = 30.0  # min, on average, until its host has a new pilot


CALIBRATION = ReplicasCalibration()


class PaperPolicy(NamedTuple):
    replication: str
    scheduling: str
    paper: tuple[float, float, float]  # replicas and waste in percent, turnaround in hours


RELIABLE = "Host.ErrorRate <= 0.01"


def restrictive(n: int) -> str:
    """Return the expression that grants a job with n replicas one more.

    One replica is on an unreliable host or has run for half an hour, and the last was sent a quarter of an hour ago, as
    in the paper's other restrictive rule.
    """
    bad = " || ".join(f"Task.Replica{at}.Host.ErrorRate > 0.01 || Now - Task.Replica{at}.SentTime > 1800"
                      for at in range(1, n + 1))
    late = f" && Now - Task.Replica{n}.SentTime > 900" if n > 1 else ""
    return f"Task.NumberOfReplicas == {n}{late} && ({bad})"


REPLICATION = {
    "permissive": "Task.NumberOfReplicas < 5",
    "restrictive": " || ".join(map(restrictive, (1, 2, 3, 4))),
    "disabled": "",
}
POLICIES = (
    PaperPolicy("permissive", "permissive", (58, 30, 4.1)),
    PaperPolicy("restrictive", "restrictive", (11, 7, 3.2)),
    PaperPolicy("permissive", "restrictive", (73, 57, 4.2)),
    PaperPolicy("disabled", "permissive", (0, 0, 5.1)),
    PaperPolicy("disabled", "restrictive", (0, 0, 5.8)),
)


class PolicyNumbers(NamedTuple):
    replicas: float  # percent of the jobs
    waste: float  # percent of the jobs: results that were thrown away, or attempts that were cancelled
    turnaround: float  # h


def platform(seed: int, calibration: ReplicasCalibration) -> World:
    lease = HOUR  # the paper's server takes silence as a loss only at the deadline
    config = Config(lease=lease, park=lease * 5 // 6, deaths=1_000, idle=round(calibration.idle * SECOND),
                    silence=24 * HOUR, prefetch=0)
    world = World(seed, config, WorldRules(restart_wait=round(calibration.away * MINUTE), reports_gone=False))
    draw = random.Random(f"hosts {seed}")
    grid = HostKind("grid", calibration.hosts, calibration.bad, calibration.loses, calibration.spread,
                    returns=exponential(calibration.returns), deadline=round(calibration.deadline * MINUTE))
    hosts = add_hosts(world, [grid], draw)
    world.engine.run(1)
    record_earlier_losses(world, hosts, draw, calibration.clean)
    return world


def work_of(seed: int, calibration: ReplicasCalibration) -> Work:
    draw = random.Random(f"jobs {seed}")
    walls = [round(draw.uniform(*calibration.minutes) * MINUTE) for _ in range(calibration.tasks)]
    return Work(calibration.tasks, lambda task, _draw: walls[task], retries=100, expect=750_000)


def run_on_papers_server(
    seed: int, policy: PaperPolicy, calibration: ReplicasCalibration = CALIBRATION
) -> PolicyNumbers:
    """Run a policy on the paper's server."""
    world, work = platform(seed, calibration), work_of(seed, calibration)
    rules = FeederRules(REPLICATION[policy.replication], buffer=calibration.buffer)
    if policy.scheduling == "restrictive":
        rules = rules._replace(tail=RELIABLE)
    feeder = Feeder(world, work, rules, seed)
    begun = world.engine.now
    world.engine.run(done=lambda: feeder.done)
    share = 100 / calibration.tasks
    return PolicyNumbers(len(feeder.jobs) * share, feeder.discarded * share, (max(feeder.ends.values()) - begun) / HOUR)


def run_on_our_server(
    seed: int, policy: PaperPolicy, calibration: ReplicasCalibration = CALIBRATION, preset: str = ""
) -> PolicyNumbers:
    """Run a policy on our own server: replicas do not queue, and superfluous ones are cancelled."""
    world, work = platform(seed, calibration), work_of(seed, calibration)
    record = Record()
    record.attach(world.server)
    if policy.scheduling == "restrictive":
        work.policy["requirements"] = f"!Bag.Tail || {RELIABLE}"
    if preset:
        work.replicate = preset
    elif REPLICATION[policy.replication]:
        work.policy["replicate"] = REPLICATION[policy.replication]
    world.submit(work)
    world.run()
    wasted = sum(not each.counts and each.outcome in (O_SUCCEEDED, O_CANCELLED) for each in record.attempts())
    share, bag, times = 100 / calibration.tasks, world.server.core.state.bags[1], record.bags[1]
    return PolicyNumbers(bag.replicas_granted * share, wasted * share, (times.ended - times.submitted) / HOUR)


def servers_agree(policy: PaperPolicy) -> bool:
    """Do the paper's server and ours do the same under this policy?  They do, to the millisecond, if it has neither
    replicas nor a tail."""
    return policy.replication == "disabled" and policy.scheduling == "permissive"


def is_in_order(rows: list[PolicyNumbers]) -> bool:
    """Are the turnarounds in the paper's order?

    Restrictive/restrictive < permissive/permissive ≤ permissive/restrictive < disabled; less than a twentieth is a tie.
    """
    permissive, restrictive, mixed, *disabled = (row.turnaround for row in rows)
    return restrictive < permissive <= TIE * mixed and max(permissive, mixed) < min(disabled)


def run_r(options: Options) -> StudyResult:
    emulated: list[list[PolicyNumbers]] = []  # by seed, then by policy
    own: list[list[PolicyNumbers]] = []
    for seed in options.seed_range(SEEDS):
        emulated.append([run_on_papers_server(seed, policy) for policy in POLICIES])
        own.append([row if servers_agree(policy) else run_on_our_server(seed, policy)
                    for policy, row in zip(POLICIES, emulated[-1], strict=True)])
        options.tell(f"seed {seed}, the paper's server: {_turnarounds(emulated[-1])}")
        options.tell(f"seed {seed}, ours: {_turnarounds(own[-1])}")
    by_policy = list(zip(POLICIES, zip(*emulated, strict=True), zip(*own, strict=True), strict=True))
    cells = [cell for policy, papers_runs, _ in by_policy for cell in _cells(policy, papers_runs)]
    count = len(emulated)
    cells.append(Cell(f"of {count} seeds, in the paper's order", None, sum(map(is_in_order, emulated)),
                      low=13 / 15 * count, high=count))
    cells += [_beside(policy, papers_runs, own_runs) for policy, papers_runs, own_runs in by_policy]
    cells += [cell for policy, _, own_runs in by_policy for cell in _own_cells(policy, own_runs)]
    return StudyResult(cells, [_figure(emulated, own)])


def _turnarounds(rows: list[PolicyNumbers]) -> str:
    return ", ".join(f"{row.turnaround:.2f} h" for row in rows)


def _name(policy: PaperPolicy) -> str:
    return f"{policy.replication}/{policy.scheduling}"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _cells(policy: PaperPolicy, rows: Sequence[PolicyNumbers]) -> list[Cell]:
    replicas, waste, hours = policy.paper
    return [
        Cell(f"{_name(policy)}: turnaround", hours, _mean([row.turnaround for row in rows]), "h",
             low=0.8 * hours, high=1.2 * hours),
        Cell(f"{_name(policy)}: replicas", replicas, _mean([row.replicas for row in rows]), "%"),
        Cell(f"{_name(policy)}: waste", waste, _mean([row.waste for row in rows]), "%"),
    ]


def _own_cells(policy: PaperPolicy, rows: Sequence[PolicyNumbers]) -> list[Cell]:
    if policy.replication == "disabled":
        return []
    return [Cell(f"{_name(policy)}: replicas, waste on our server", None, value, "%")
            for value in (_mean([row.replicas for row in rows]), _mean([row.waste for row in rows]))]


def _beside(policy: PaperPolicy, emulated: Sequence[PolicyNumbers], own: Sequence[PolicyNumbers]) -> Cell:
    ratio = _mean([row.turnaround for row in own]) / _mean([row.turnaround for row in emulated])
    return Cell(f"{_name(policy)}: on our server, of the paper's server's time", None, ratio, high=TIE)


def _figure(emulated: list[list[PolicyNumbers]], own: list[list[PolicyNumbers]]) -> Figure:
    x = [float(n + 1) for n in range(len(POLICIES))]
    series = [Series(name, x, [_mean([rows[at].turnaround for rows in runs]) for at in range(len(POLICIES))])
              for name, runs in (("the paper's server", emulated), ("ours", own))]
    series.append(Series("printed", x, [policy.paper[2] for policy in POLICIES]))
    return Figure("Turnaround, by policy in the order of the table", "policy", "h", series)


EXPERIMENTS = [
    Experiment("g-r", "replication by scheduling, thirty thousand jobs", SOURCE, run_r),
]
