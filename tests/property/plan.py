"""Plans: what happens in a world, as data that Hypothesis can shrink and a person can replay.

A world draws the rest (durations, outcomes, which message is lost) from the seed of its plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

KINDS = (
    "server crash", "pilot dies", "pilot dies unseen", "cut off", "deaf", "twin", "revoke", "drain", "new pilot", "lie",
    "cancel", "cancel some", "retry", "pause", "append", "close", "remove", "snapshot", "share",
    "partition", "host sleeps", "pilot clock jumps", "server clock jumps", "disk low", "disk full",
)  # fmt: skip


class Act(msgspec.Struct, frozen=True):
    at: int  # ms
    kind: str
    who: int = 0  # picks the bag or the pilot
    how: int = 0  # length, number of tasks, …


class BagPlan(msgspec.Struct, frozen=True):
    at: int = 0
    tasks: int = 3
    shape: str = "plain"  # one of SHAPES
    owner: int = 0
    provision: str = "swarm"
    budget: int = 0  # ms of cores
    disk: int = 0  # bytes a task takes
    nodes: int = 1
    replicate: str = "none"
    fail_over: str = ""  # the site where its tasks go that keep failing
    policy: int = 0  # one of POLICIES


class SitePlan(msgspec.Struct, frozen=True):
    """A batch system of so many cores, and the limits of the server there."""

    cores: int = 4
    shapes: tuple[tuple[int, int], ...] = ((1, 60_000),)  # cores, ms of wall time
    pilots: int = 0
    queued: int = 0
    share: int = 1_000
    delay: int = 0
    budget: int = 0
    flight: int = 16
    most: int = 1_000  # jobs that the batch system takes
    jobs: int = 0  # most of the user's, with `others` that are none of ours
    others: int = 0
    balance: int = -1  # ms of cores that the user's account has there
    disk: int = 0
    counts: int = 0  # against allowances
    nodes: int = 1  # of a further shape


class Plan(msgspec.Struct, frozen=True):
    seed: int = 0
    pilots: tuple[int, ...] = (1,)  # cores of each
    bags: tuple[BagPlan, ...] = (BagPlan(),)
    acts: tuple[Act, ...] = ()
    loss: int = 0  # percent of messages
    double: int = 0
    delay: int = 5  # ms, at most, usually
    crash: int = 0  # in a thousand, at each point where the server may die
    fail: int = 10  # percent of executions that do not succeed
    skew: int = 0  # thousandths by which clocks are fast or slow, at most
    late: int = 0  # percent of messages that come when nobody waits for them any more
    sites: tuple[SitePlan, ...] = ()  # with batch systems
    allowance: int = -1  # of everybody, ms of cores a month
    hosts: int = 0  # that the pilots share; 0: each has one of its own

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @staticmethod
    def parse(text: str) -> Plan:
        return msgspec.json.decode(text, type=Plan)


SHAPES = ("plain", "external", "sjf", "targets", "graph", "open", "limited", "long", "saving", "whole",
          "gathering", "batched", "filling", "pipeline")
DATA_SHAPES = ("data", "conscious")  # in plans of their own, and in Hypothesis'
PROVISIONS = ("swarm", "swarm", "demand", "msr", "broker")
AT_SITES = (
    "tender dies", "two tenders", "site dark", "listing misses", "listing old", "submission fails and does not",
    "requeued", "requeued and alive", "queue lost", "job killed", "limits change",
)
HORIZON = 60_000  # ms in which things happen; afterwards the world is healed


def random_plan(seed: int) -> Plan:
    """Return a random plan: every other one has batch systems, and fewer pilots without one."""
    r = random.Random(seed)
    sites = tuple(_site(r) for _ in range(r.randint(1, 3))) if seed % 2 else ()
    acts = [_act(r, KINDS) for _ in range(r.choice((0, 3, 7, 14)))]
    acts += [_act(r, AT_SITES) for _ in range(r.choice((0, 2, 5)))] if sites else []
    acts += _short_listings(random.Random(f"{seed} short")) if sites else []
    plan = Plan(
        seed=seed,
        pilots=tuple(r.choice((1, 1, 2, 4)) for _ in range(r.randint(0, 1) if sites else r.randint(1, 3))),
        bags=tuple(_bag(r, bool(sites)) for _ in range(r.randint(1, 3))),
        acts=tuple(acts),
        sites=sites,
        loss=r.choice((0, 0, 3, 15)),
        double=r.choice((0, 0, 5, 20)),
        delay=r.choice((1, 5, 60, 2_000)),
        crash=r.choice((0, 0, 5, 30)),
        fail=r.choice((0, 15, 50)),
        skew=r.choice((0, 0, 40)),
        late=r.choice((0, 0, 3)),
    )
    plan = _scarce(plan, random.Random(f"{seed} limits")) if seed % 3 == 0 else plan
    return failing(plan, random.Random(f"{seed} fail-over")) if seed % 5 < 2 else plan


def _short_listings(r: random.Random) -> list[Act]:
    return [_act(r, ("listing short",)) for _ in range(r.choice((0, 1, 4)))]


def failing(plan: Plan, r: random.Random) -> Plan:
    """Return the plan with fail-over sites and more failures."""
    names = ["here", *(f"c{place}" for place in range(len(plan.sites)))]
    bags = tuple(msgspec.structs.replace(bag, fail_over=r.choice((*names, ""))) for bag in plan.bags)
    return msgspec.structs.replace(plan, bags=bags, fail=r.choice((15, 50)))


def failing_plan(seed: int) -> Plan:
    """Return a plan with two lasting sites and tasks that often fail."""
    r = random.Random(seed)
    sites = (SitePlan(), SitePlan(8))
    kinds = ("pilot dies", "server crash", "server crash", "snapshot", "snapshot", "drain")
    acts = tuple(Act(r.randrange(HORIZON), r.choice(kinds), r.randrange(6)) for _ in range(12))
    bags = tuple(BagPlan(0, 8, r.choice(("plain", "open", "graph", "batched", "sjf")), 0, r.choice(PROVISIONS))
                 for _ in range(2))
    plan = failing(Plan(seed=seed, pilots=(1, 2), bags=bags, acts=acts, sites=sites), r)
    return msgspec.structs.replace(plan, fail=50)


def _scarce(plan: Plan, r: random.Random) -> Plan:
    """Return the plan with budgets, an allowance, accounts and disks that may be used up."""
    bags = tuple(msgspec.structs.replace(
        bag, budget=r.choice((0, 40_000, 200_000)), disk=r.choice((0, 0, 1 << 30)),
        nodes=2 if plan.sites and bag.shape == "plain" and r.random() < 0.4 else 1) for bag in plan.bags)
    sites = tuple(msgspec.structs.replace(
        site, jobs=r.choice((0, 2, 6)), others=r.choice((0, 1, 3)), balance=r.choice((-1, -1, 300_000)),
        disk=r.choice((0, 2 << 30)), counts=r.choice((0, 1, 2)), nodes=r.choice((1, 2))) for site in plan.sites)
    return msgspec.structs.replace(plan, bags=bags, sites=sites, allowance=r.choice((-1, 0, 100_000)))


def _bag(r: random.Random, sites: bool) -> BagPlan:
    at = r.choice((0, 0, r.randrange(HORIZON // 2)))
    provision = r.choice(PROVISIONS) if sites else "swarm"
    return BagPlan(at, r.choice((1, 3, 8, 20)), r.choice(SHAPES), r.randrange(2), provision)


def _site(r: random.Random) -> SitePlan:
    shapes = r.choice((((1, 60_000),), ((2, 20_000), (4, 90_000)), ((4, 40_000), (1, 20_000))))
    return SitePlan(
        r.choice((4, 8, 16)), shapes, r.choice((0, 1, 3, 8)), r.choice((0, 0, 2)), r.choice((1_000, 1_000, 500)),
        r.choice((0, 0, 8_000)), r.choice((0, 0, 200_000, 900_000)), r.choice((1, 16)), r.choice((1_000, 1_000, 2)),
    )


def _act(r: random.Random, kinds: tuple[str, ...]) -> Act:
    return Act(r.randrange(HORIZON), r.choice(kinds), r.randrange(6), r.randrange(100))


def data_plan(seed: int, sites: bool = False) -> Plan:
    """Return a random plan whose bags leave files and whose disks may be lost; with batch systems if asked."""
    plan, r = random_plan(2 * seed + sites), random.Random(seed)
    bags = tuple(msgspec.structs.replace(bag, shape=r.choice(DATA_SHAPES)) for bag in plan.bags)
    lost = tuple(Act(r.randrange(HORIZON), "disk lost", r.randrange(6)) for _ in range(r.choice((0, 1, 3))))
    return msgspec.structs.replace(plan, bags=bags, acts=plan.acts + lost)


def hole_plan(seed: int) -> Plan:
    """Return a random plan with hosts that fail every task, and bags large enough to show it."""
    plan, r = random_plan(seed), random.Random(seed)
    holes = tuple(Act(r.randrange(HORIZON // 2), "black hole", r.randrange(6)) for _ in range(r.choice((1, 2))))
    bags = tuple(msgspec.structs.replace(bag, tasks=r.choice((20, 60))) for bag in plan.bags)
    return msgspec.structs.replace(plan, bags=bags, acts=plan.acts + holes, pilots=(*plan.pilots, 1, 1), fail=5)


def replica_plan(seed: int) -> Plan:
    """Return a random plan with replicas of late tasks, and pilots to spare."""
    plan, r = random_plan(seed), random.Random(f"{seed} replicas")
    bags = tuple(msgspec.structs.replace(bag, replicate=r.choice(("tail-safe", "tail-fast"))) for bag in plan.bags)
    return msgspec.structs.replace(plan, bags=bags, pilots=(*plan.pilots, 1, 2, 4))


POLICIES: tuple[dict[str, str], ...] = (  # every one of them lets all tasks end, sooner or later
    {},
    {"requirements": "Host.Cores > 1 || Bag.Age > 40", "rank": "Host.Cores"},
    {"requirements": "Tail ? Host.Running < 2 : true", "rank": "-Bag.JobsLeft"},
    {"requirements": "Host.ErrorRate is undefined || Host.ErrorRate < 0.3 || Bag.Age > 90", "rank": "Host.ErrorRate"},
    {"requirements": "Host.Running < 1 || Host.Load < 0.5", "rank": "1 / (Host.JobsToday - 1)"},
    {"requirements": 'regexp("[0-9]", Host.Name) || Now % 7 < 3 || Bag.Age > 120', "sites": "Bag.Age > 15"},
    {"sites": 'Site.Name =!= "c0" || Bag.Age > 60', "rank": "Task.Cores * 10 + Queue.Bags"},
    {"rank": "Tail ? 5 : -5"},
)


REPEATS: tuple[dict[str, str], ...] = (
    {"attempt-deadline": "8"},
    {"attempt-deadline": "Host.Cores * 5 + Task.NumberOfReplicas", "requirements": "Host.Running < 3 || Bag.Age > 60"},
    {"attempt-deadline": "Bag.Tail ? 3 : 20", "replicate": "tail-fast"},
    {"replicate": "NumberOfReplicas < 3"},
    {"replicate": "Now - Task.Replica1.SentTime > 4 && Task.Replica2.Host.Cores isnt 1", "rank": "-Bag.JobsLeft"},
    {"replicate": "deadline"},
    {"per-host": "1"},
    {"per-host": "Tail ? 1 : Host.Cores / 2 + 1", "replicate": "tail-fast", "attempt-deadline": "PerHost * 6"},
    {"replicate": "true", "replicas-per-task": "2", "replicas-cost": "1 core-minutes"},
    {"replicate": "tail-fast", "replicas-share": "40%", "attempt-deadline": "6", "replicas-per-task": "5"},
)


def repeat_plan(seed: int) -> Plan:
    """Return a random plan with attempt deadlines, replicas by expression, and pilots to spare."""
    plan, r = random_plan(seed), random.Random(f"{seed} repeats")
    first = len(POLICIES)
    bags = tuple(msgspec.structs.replace(bag, policy=first + r.randrange(len(REPEATS))) for bag in plan.bags)
    acts = tuple(Act(r.randrange(HORIZON), "repeats", r.randrange(6), r.randrange(100)) for _ in range(r.randrange(4)))
    return msgspec.structs.replace(plan, bags=bags, acts=(*plan.acts, *acts), pilots=(*plan.pilots, 1, 2, 4))


def policy_plan(seed: int) -> Plan:
    """Return a random plan with expressions on most bags, which change while these run, and some replicas."""
    plan, r = random_plan(seed), random.Random(f"{seed} policies")
    bags = tuple(msgspec.structs.replace(bag, policy=r.randrange(len(POLICIES)),
                                         replicate=r.choice(("none", "none", "tail-safe"))) for bag in plan.bags)
    acts = tuple(Act(r.randrange(HORIZON), "policy", r.randrange(6), r.randrange(100)) for _ in range(r.randrange(5)))
    return msgspec.structs.replace(plan, bags=bags, acts=(*plan.acts, *acts), pilots=(*plan.pilots, 1, 2))


def growing_plan(seed: int) -> Plan:
    """Return a plan whose graphs come part by part, while earlier tasks run, fail, are cancelled and retried."""
    plan, r = random_plan(seed), random.Random(f"{seed} growing")
    bags = tuple(msgspec.structs.replace(bag, shape="growing") for bag in plan.bags)
    kinds = ("append part",) * 6 + ("cancel some", "retry", "snapshot", "server crash", "append", "close")
    acts = tuple(_act(r, kinds) for _ in range(20))
    return msgspec.structs.replace(plan, bags=bags, acts=(*plan.acts, *acts), pilots=(*plan.pilots, 2))


def crowded_plan(kind: str) -> Callable[[int], Plan]:
    """Return a maker of plans with one site that has room for few pilots, and many mishaps of one kind."""

    def make(seed: int) -> Plan:
        r = random.Random(seed)
        site = SitePlan(8, ((1, 60_000),), r.choice((1, 2)), flight=16)
        acts = tuple(Act(r.randrange(HORIZON), kind, r.randrange(6), r.randrange(40, 100)) for _ in range(12))
        bag = BagPlan(0, 20, r.choice(("plain", "long")), 0)
        return Plan(seed=seed, pilots=(), bags=(bag,), acts=acts, fail=0, sites=(site,))

    return make


def short_plan(seed: int) -> Plan:
    """Return a plan whose tenders and servers die during submissions, after which the batch system lists nothing
    once."""
    r = random.Random(seed)
    acts = []
    for _ in range(8):
        at = r.randrange(HORIZON)
        acts += [Act(at, r.choice(("tender dies", "server crash"))), Act(at, "listing short")]
    return Plan(seed=seed, pilots=(), bags=(BagPlan(0, 20, "long"),), acts=tuple(acts), fail=0,
                sites=(SitePlan(8, ((1, 60_000),), 6),))


def left_plan(seed: int) -> Plan:
    """Return a plan whose pilots are cut off, finish their tasks, and are killed, while their sites answer."""
    r = random.Random(seed)
    acts = []
    for _ in range(12):
        at, who = r.randrange(HORIZON), r.randrange(6)
        acts += [Act(at, "cut off", who, 99), Act(at + r.randrange(1_000, 9_000), "job killed", 0, r.randrange(100))]
    site = SitePlan(8, ((1, 60_000),), 3)
    return Plan(seed=seed, pilots=(), bags=(BagPlan(0, 20, r.choice(("plain", "external", "batched"))),),
                acts=tuple(acts), fail=0, sites=(site,))


def belied_plan(seed: int) -> Plan:
    """Return a plan whose batch system loses sight of jobs, and of nodes that are cut off; their processes run on.
    Pilots share hosts, which start again at times."""
    r = random.Random(seed)
    acts = []
    for _ in range(8):
        at, kind = r.randrange(HORIZON), r.choice(("requeued and alive", "listing misses"))
        acts += [Act(at, "cut off", r.randrange(6), 99), Act(at, kind, r.randrange(6), r.randrange(60, 100))]
    acts += [Act(r.randrange(HORIZON), r.choice(("reboot", "job killed")), r.randrange(6)) for _ in range(4)]
    return Plan(seed=seed, pilots=(), bags=(BagPlan(0, 20, "external"),), acts=tuple(acts), fail=0,
                sites=(SitePlan(8, ((1, 60_000),), 3),), hosts=r.choice((0, 1, 2)))


def regretted_plan(seed: int) -> Plan:
    """Return a plan whose tasks are cancelled while their pilots are cut off, and retried before these are back."""
    r = random.Random(seed)
    acts = []
    for _ in range(8):
        at, bag = r.randrange(HORIZON), r.randrange(6)
        acts += [Act(at, "cut off", r.randrange(6), r.randrange(10, 60)),
                 Act(at + r.randrange(100, 2_000), "cancel", bag), Act(at + r.randrange(2_000, 5_000), "retry", bag)]
    bags = tuple(BagPlan(0, 20, r.choice(("plain", "long"))) for _ in range(2))
    return Plan(seed=seed, pilots=(1, 2, 4), bags=bags, acts=tuple(acts), fail=0, delay=r.choice((5, 60)))


def slow_plan(seed: int) -> Plan:
    """Return a plan with slow answers and pilots that are cut off while they hold tasks."""
    return msgspec.structs.replace(skewed_plan(seed), skew=0, delay=2_000)


def skewed_plan(seed: int) -> Plan:
    """Return a plan with clocks that disagree and pilots that are cut off, with tasks, for about a lease."""
    r = random.Random(seed)
    acts = tuple(Act(r.randrange(HORIZON), "cut off", r.randrange(8), r.randrange(34, 60)) for _ in range(24))
    bags = tuple(BagPlan(0, 20) for _ in range(4))
    return Plan(seed=seed, pilots=(1,) * 8, bags=bags, acts=acts, fail=0, skew=40)


def plans() -> Any:
    """Return Hypothesis' strategy for plans, which shrinks towards few and small values."""
    from hypothesis import strategies as st

    sizes, shapes = st.sampled_from((1, 3, 8, 20)), st.sampled_from((*SHAPES, *DATA_SHAPES, "growing"))
    bag = st.builds(
        BagPlan, st.integers(0, HORIZON // 2), sizes, shapes, st.integers(0, 1), st.sampled_from(("swarm", "demand"))
    )
    kinds = st.sampled_from((*KINDS, *AT_SITES, "disk lost", "listing short", "append part"))
    act = st.builds(Act, st.integers(0, HORIZON), kinds, st.integers(0, 5), st.integers(0, 99))
    site = st.integers(0, 1 << 16).map(lambda seed: _site(random.Random(seed)))
    return st.builds(
        Plan,
        seed=st.integers(0, 1 << 16),
        pilots=st.lists(st.sampled_from((1, 2, 4)), min_size=1, max_size=3).map(tuple),
        bags=st.lists(bag, min_size=1, max_size=3).map(tuple),
        acts=st.lists(act, max_size=10).map(tuple),
        loss=st.sampled_from((0, 3, 15)),
        double=st.sampled_from((0, 5, 20)),
        delay=st.sampled_from((1, 5, 60, 2_000)),
        crash=st.sampled_from((0, 5, 30)),
        fail=st.sampled_from((0, 10, 40)),
        skew=st.sampled_from((0, 40)),
        late=st.sampled_from((0, 3)),
        sites=st.lists(site, max_size=2).map(tuple),
    )
