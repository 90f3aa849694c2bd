"""`explain` and granting agree: in random worlds, `explain` calls a task ready for a pilot if and only if the pilot's
next exchange is granted it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.core.conftest import Bench, granted, shape
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.lifecycle import LIVE, READY
from windfall.core.read.explain import explain

GIB = 1 << 30
HOUR = 3_600_000
POLICIES: dict[str, tuple[str, ...]] = {
    "requirements": ("Host.Cores >= 3", 'Host.Name == "h1"', "Host.Memory > 1000", "Host.NoSuchThing > 1"),
    "sites": ('Site.Name == "here"', 'Site.Name == "far"'),
    "per-host": ("0", "1", "2", "Host.Cores"),
    "rank": ("Host.Cores",),
    "attempt-deadline": ("60",),
}


class RandomWorld:
    """One pilot, one or a few bags, and whatever may stand between them."""

    def __init__(self, seed: int, bags: int = 1) -> None:
        self.draw, self.several = random.Random(seed), bags > 1
        self.b = Bench(lease=HOUR, silence=9 * HOUR, idle=9 * HOUR)
        self.b.step(e.AddSite(0, "far", "ann", "local"))
        self.owner = self.draw.choice(("ann", "ann", "ann", "bob"))
        if self.maybe(0.7):
            self.b.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
        if self.maybe(0.15):
            self.b.step(e.SetAllowance(0, self.owner, self.draw.choice((0, 10 * HOUR))))
        self.bags = [self.submit() for _ in range(bags)]
        self.pilot = self.b.pilot(
            cores=self.draw.randint(1, 4), site=self.draw.choice(("here", "here", "far")), host="h1",
            memory=self.draw.choice((1, 4)) * GIB, gpus=self.draw.choice((0, 1)),
            nodes=self.draw.choice((1,) * 9 + (2,)), left=self.left(),
        )
        for _ in range(self.draw.randint(0, 2)):
            self.use_pilot()
        if self.maybe(0.05):
            self.b.step(e.DiskLow(0, True))
        if self.maybe(0.05):
            self.b.step(e.Pause(0, self.bags[0], True))
        self.b.wait(self.draw.choice((0, 10, 90_000)))

    def maybe(self, probability: float) -> bool:
        return self.draw.random() < probability

    def left(self) -> int | None:
        return self.draw.choice((None, None, None, HOUR, HOUR, 20_000))

    def target(self) -> f.TargetShape:
        draw = self.draw
        nodes = draw.choice((1,) * 9 + (2,))
        return shape(
            draw.randint(1, 6), cores=draw.choice((1, 1, 1, 2)), memory=draw.choice((0, 0, 0, 2)) * GIB,
            gpus=draw.choice((0,) * 7 + (1,)), disk=draw.choice((0, 0, GIB)), limit=draw.choice((0, 0, 60_000)),
            expect=draw.choice((0, 10, 30_000)), nodes=nodes, whole=nodes > 1 or self.maybe(0.1),
            call=self.maybe(0.1), at_once=draw.choice((0, 0, 0, 0, 1)), concurrency_group=0,
            batch=draw.choice((1, 1, 1, 2)), retries=3,
        )

    def submit(self) -> int:
        draw, target = self.draw, self.target()
        policy = {key: draw.choice(texts) for key, texts in POLICIES.items() if self.maybe(0.1)}
        provision = draw.choice(("swarm",) * 10 + ("msr", "broker"))
        if target.batch > 1 or provision != "swarm":
            policy.pop("attempt-deadline", None)
        owner = self.draw.choice(("ann", "bob")) if self.several else self.owner
        event = e.Submit(0, owner, "bag", "", b"spec", [target], self.maybe(0.1), "fcfs", False, b"", provision,
                         policy=policy, budget=draw.choice((0, 0, 0, HOUR)) if target.limit else 0)
        done = self.b.do(event)
        return int(done.value) if isinstance(done, x.Done) else self.submit()

    def use_pilot(self) -> None:
        """Let the pilot take some tasks; it starts, finishes or fails some of them."""
        answer = self.b.exchange(self.pilot, want=self.draw.randint(1, 3))
        held = granted(answer) if answer is not None else []
        started = [attempt for attempt, _ in held if self.maybe(0.7)]
        if started:
            self.b.exchange(self.pilot, started=started)
        for attempt in started:
            if self.maybe(0.5):
                self.b.wait(10)
                outcome = self.draw.choice(("succeeded", "failed"))
                self.b.report(self.pilot, attempt, outcome, "" if outcome == "succeeded" else "exit")


def calls_it_ready(told: dict[str, Any]) -> bool:
    """Do all clauses hold for a pilot?"""
    return any("pilots" in site and all(clause["holds"] for clause in site["clauses"]) for site in told["sites"])


def disagreements(world: RandomWorld) -> list[str]:
    """Say where `explain` and the pilot's next exchange disagree about a class of tasks.

    With one bag they must agree exactly.  With several, a class that is ready for the pilot may stand behind others
    that fill it; but an exchange that brings nothing refutes every class that `explain` called ready."""
    b, state = world.b, world.b.core.state
    if state.pilots[world.pilot].state != LIVE:
        return []
    told: dict[tuple[int, int], bool] = {}
    ready: dict[tuple[int, int], tuple[int, int]] = {}
    for number in world.bags:
        tasks = state.bags[number].tasks
        for task in [task for task in range(tasks.rows) if tasks.state[task] == READY]:
            ready[number, task] = kind = number, tasks.variant[task]
            if kind not in told:
                told[kind] = calls_it_ready(explain(state, b.now, number, task))
    pilot = state.pilots[world.pilot]
    answer = b.exchange(world.pilot, want=8, left=max(pilot.ends - b.now, 0) if pilot.ends else None)
    groups = [group for _, found in answer.grants for group in found] if answer is not None else []
    given = {ready[group.bag, task] for group in groups for task in group.tasks if (group.bag, task) in ready}
    found = [f"class {kind} was granted, and explain said no" for kind in given if not told[kind]]
    if not given or len(world.bags) == 1:
        found += [f"class {kind} was ready, and not granted" for kind, yes in told.items() if yes and kind not in given]
    return found


@pytest.mark.parametrize("bags", [1, 3])
@pytest.mark.parametrize("first", range(0, 1500, 500))
def test_explain_calls_a_task_ready_if_and_only_if_the_next_exchange_grants_it(first: int, bags: int) -> None:
    wrong = {seed: why for seed in range(first, first + 500) if (why := disagreements(RandomWorld(seed, bags)))}
    assert wrong == {}


def test_random_worlds_hold_both_grants_and_refusals() -> None:
    worlds = [RandomWorld(seed) for seed in range(200)]
    found = [calls_it_ready(explain(each.b.core.state, each.b.now, each.bags[0])) for each in worlds]
    assert 25 < sum(found) < 175
