"""What happens in a world: a plan is data, so that Hypothesis can shrink it and a person can replay it.

What a plan does not say (durations, outcomes, which message is lost) is drawn from its seed.
"""

from __future__ import annotations

import random
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

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @staticmethod
    def parse(text: str) -> Plan:
        return msgspec.json.decode(text, type=Plan)


SHAPES = ("plain", "external", "sjf", "targets", "graph", "open", "limited", "long", "saving", "whole",
          "gathering", "batched", "filling", "pipeline")
DATA_SHAPES = ("data", "conscious")  # in plans of their own, and in Hypothesis'
HORIZON = 60_000  # ms in which things happen; afterwards the world is healed


def random_plan(seed: int) -> Plan:
    r = random.Random(seed)
    return Plan(
        seed=seed,
        pilots=tuple(r.choice((1, 1, 2, 4)) for _ in range(r.randint(1, 3))),
        bags=tuple(_bag(r) for _ in range(r.randint(1, 3))),
        acts=tuple(_act(r) for _ in range(r.choice((0, 3, 7, 14)))),
        loss=r.choice((0, 0, 3, 15)),
        double=r.choice((0, 0, 5, 20)),
        delay=r.choice((1, 5, 60, 2_000)),
        crash=r.choice((0, 0, 5, 30)),
        fail=r.choice((0, 15, 50)),
        skew=r.choice((0, 0, 40)),
        late=r.choice((0, 0, 3)),
    )


def _bag(r: random.Random) -> BagPlan:
    at = r.choice((0, 0, r.randrange(HORIZON // 2)))
    return BagPlan(at, r.choice((1, 3, 8, 20)), r.choice(SHAPES), r.randrange(2))


def _act(r: random.Random) -> Act:
    return Act(r.randrange(HORIZON), r.choice(KINDS), r.randrange(6), r.randrange(100))


def data_plan(seed: int) -> Plan:
    """The same with bags that leave files behind, and disks that are lost."""
    plan, r = random_plan(seed), random.Random(seed)
    bags = tuple(msgspec.structs.replace(bag, shape=r.choice(DATA_SHAPES)) for bag in plan.bags)
    lost = tuple(Act(r.randrange(HORIZON), "disk lost", r.randrange(6)) for _ in range(r.choice((0, 1, 3))))
    return msgspec.structs.replace(plan, bags=bags, acts=plan.acts + lost)


def plans() -> Any:
    """Hypothesis' strategy; what is left out or small is what a shrunk plan has."""
    from hypothesis import strategies as st

    sizes, kinds = st.sampled_from((1, 3, 8, 20)), st.sampled_from(SHAPES + DATA_SHAPES)
    bag = st.builds(BagPlan, st.integers(0, HORIZON // 2), sizes, kinds, st.integers(0, 1))
    acts = st.sampled_from((*KINDS, "disk lost"))
    act = st.builds(Act, st.integers(0, HORIZON), acts, st.integers(0, 5), st.integers(0, 99))
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
    )
