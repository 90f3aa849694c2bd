"""GridBot's table of replication by scheduling (Silberstein et al. 2009): 30,000 jobs on collaborative grids.

Each policy runs on the paper's server (`feeder.py`) and on ours, with the same hosts, jobs and deadline.  `Study` holds
the numbers that the paper does not print, one set for all policies and seeds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from windfall.core.config import Config
from windfall.core.messages.lifecycle import O_CANCELLED, O_SUCCEEDED
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Outcome, Series
from windfall.sim.experiments.feeder import Feeder, Rules
from windfall.sim.experiments.grids import HOUR, MINUTE, SECOND, SOURCE, Kind, remember, settle_in, some
from windfall.sim.record import Record
from windfall.sim.world import Work, World

SEEDS = 15
TIE = 1.05


@dataclass(frozen=True)
class Study:
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


class Policy(NamedTuple):
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
    Policy("permissive", "permissive", (58, 30, 4.1)),
    Policy("restrictive", "restrictive", (11, 7, 3.2)),
    Policy("permissive", "restrictive", (73, 57, 4.2)),
    Policy("disabled", "permissive", (0, 0, 5.1)),
    Policy("disabled", "restrictive", (0, 0, 5.8)),
)


class Row(NamedTuple):
    replicas: float  # percent of the jobs
    waste: float  # percent of the jobs: results that were thrown away, or attempts that were cancelled
    turnaround: float  # h


def platform(seed: int, study: Study) -> World:
    lease = HOUR  # the paper's server takes silence as a loss only at the deadline
    config = Config(lease=lease, park=lease * 5 // 6, deaths=1_000, idle=round(study.idle * SECOND), silence=24 * HOUR,
                    prefetch=0)
    world = World(seed, config, settle=round(study.away * MINUTE), tells=False)
    draw = random.Random(f"hosts {seed}")
    hosts = settle_in(world, [Kind("grid", study.hosts, study.bad, study.loses, study.spread,
                                   returns=some(study.returns), deadline=round(study.deadline * MINUTE))], draw)
    world.engine.run(1)
    remember(world, hosts, draw, study.clean)
    return world


def work_of(seed: int, study: Study) -> Work:
    draw = random.Random(f"jobs {seed}")
    walls = [round(draw.uniform(*study.minutes) * MINUTE) for _ in range(study.tasks)]
    return Work(study.tasks, lambda task, _draw: walls[task], retries=100, expect=750_000)


def papers(seed: int, policy: Policy, study: Study = Study()) -> Row:
    """Run a policy on the paper's server."""
    world, work = platform(seed, study), work_of(seed, study)
    rules = Rules(REPLICATION[policy.replication], buffer=study.buffer)
    if policy.scheduling == "restrictive":
        rules = rules._replace(tail=RELIABLE)
    feeder = Feeder(world, work, rules, seed)
    begun = world.engine.now
    world.engine.run(done=lambda: feeder.done)
    share = 100 / study.tasks
    return Row(len(feeder.jobs) * share, feeder.discarded * share, (max(feeder.ends.values()) - begun) / HOUR)


def ours(seed: int, policy: Policy, study: Study = Study(), preset: str = "") -> Row:
    """Run a policy on our own server: replicas do not queue, and superfluous ones are cancelled."""
    world, work = platform(seed, study), work_of(seed, study)
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
    share, bag = 100 / study.tasks, world.server.core.state.bags[1]
    return Row(bag.replicas_granted * share, wasted * share, (record.bags[1].ended - record.bags[1].submitted) / HOUR)


def one_server(policy: Policy) -> bool:
    """Do the paper's server and ours do the same under this policy?  They do, to the millisecond, if it has neither
    replicas nor a tail."""
    return policy.replication == "disabled" and policy.scheduling == "permissive"


def in_order(rows: list[Row]) -> bool:
    """Are the turnarounds in the paper's order?

    Restrictive/restrictive < permissive/permissive ≤ permissive/restrictive < disabled; less than a twentieth is a tie.
    """
    permissive, restrictive, mixed, *disabled = (row.turnaround for row in rows)
    return restrictive < permissive <= TIE * mixed and max(permissive, mixed) < min(disabled)


def run_r(options: Options) -> Outcome:
    seeds = range(options.first_seed, options.first_seed + (options.seeds or SEEDS))
    emulated: list[list[Row]] = []
    own: list[list[Row]] = []
    for seed in seeds:
        emulated.append([papers(seed, policy) for policy in POLICIES])
        own.append([row if one_server(policy) else ours(seed, policy)
                    for policy, row in zip(POLICIES, emulated[-1], strict=True)])
        for name, rows in (("the paper's server", emulated[-1]), ("ours", own[-1])):
            options.tell(f"seed {seed}, {name}: " + ", ".join(f"{row.turnaround:.2f} h" for row in rows))
    cells = [cell for at, policy in enumerate(POLICIES) for cell in _cells(policy, [rows[at] for rows in emulated])]
    right = sum(map(in_order, emulated))
    count = len(seeds)
    cells.append(Cell(f"of {count} seeds, in the paper's order", None, right, "", 13 / 15 * count, count))
    cells += [_beside(policy, [rows[at] for rows in emulated], [rows[at] for rows in own])
              for at, policy in enumerate(POLICIES)]
    cells += [Cell(f"{_name(policy)}: replicas, waste on our server", None, value, "%")
              for at, policy in enumerate(POLICIES) if policy.replication != "disabled"
              for value in (_mean([rows[at].replicas for rows in own]), _mean([rows[at].waste for rows in own]))]
    return Outcome(cells, [_figure(emulated, own)])


def _name(policy: Policy) -> str:
    return f"{policy.replication}/{policy.scheduling}"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _cells(policy: Policy, rows: list[Row]) -> list[Cell]:
    replicas, waste, hours = policy.paper
    return [
        Cell(f"{_name(policy)}: turnaround", hours, _mean([row.turnaround for row in rows]), "h", 0.8 * hours,
             1.2 * hours),
        Cell(f"{_name(policy)}: replicas", replicas, _mean([row.replicas for row in rows]), "%"),
        Cell(f"{_name(policy)}: waste", waste, _mean([row.waste for row in rows]), "%"),
    ]


def _beside(policy: Policy, emulated: list[Row], own: list[Row]) -> Cell:
    ratio = _mean([row.turnaround for row in own]) / _mean([row.turnaround for row in emulated])
    return Cell(f"{_name(policy)}: on our server, of the paper's server's time", None, ratio, "", None, TIE)


def _figure(emulated: list[list[Row]], own: list[list[Row]]) -> Figure:
    x = [float(n + 1) for n in range(len(POLICIES))]
    series = [Series(name, x, [_mean([rows[at].turnaround for rows in runs]) for at in range(len(POLICIES))])
              for name, runs in (("the paper's server", emulated), ("ours", own))]
    series.append(Series("printed", x, [policy.paper[2] for policy in POLICIES]))
    return Figure("Turnaround, by policy in the order of the table", "policy", "h", series)


EXPERIMENTS = [
    Experiment("g-r", "replication by scheduling, thirty thousand jobs", SOURCE, run_r),
]
