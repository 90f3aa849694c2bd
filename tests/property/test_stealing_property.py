"""Work stealing makes progress: in random worlds, a task that is recalled for a pilot goes to that pilot or to nobody,
and no pair of pilots repeats a recall."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.messages import effects as x, events as e

GIB = 1 << 30
HOUR = 3_600_000
ROUNDS = 12
POLICIES = (
    {}, {}, {"requirements": "Host.Cores >= 2"}, {"requirements": 'Host.Name == "donor"'}, {"per-host": "2"},
    {"per-host": "0"}, {"sites": 'Site.Name == "here"'},
)


class RandomWorld:
    """A donor that holds more than it can run, and an idle pilot beside it."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.b = b = Bench(lease=HOUR, silence=9 * HOUR, idle=9 * HOUR, park=HOUR)
        b.step(e.AddSite(0, "far", "bob", "local", ["ann"]))
        self.limit = draw.choice((0, 0, 60_000))
        self.donor = b.pilot(cores=draw.choice((1, 2)), host="donor", memory=4 * GIB)
        bags = [self.submit() for _ in range(draw.choice((1, 1, 2)))]
        self.held = dict(self.take(self.donor, 200))
        self.running = list(self.held)[: draw.choice((0, 1, 2))]
        if self.running:
            b.exchange(self.donor, started=self.running)
        if draw.random() < 0.5:  # the donor's attempts stand; from here on the owner may use nothing more that counts
            b.step(e.SetAllowance(0, "ann", draw.choice((0, 1, HOUR))))
        if draw.random() < 0.2:
            b.do(e.SetPolicy(0, bags[0], draw.choice(POLICIES)))
        self.thief = b.pilot(
            cores=draw.choice((1, 2)), host="thief", site=draw.choice(("here", "far")),
            memory=draw.choice((1, 4)) * GIB,
            left=draw.choice((None, None, 30_000)),
        )

    def submit(self) -> int:
        draw = self.draw
        target = shape(
            draw.choice((20, 40)), expect=draw.choice((1, 10, 100)), memory=draw.choice((0, 0, 2)) * GIB,
            limit=self.limit, batch=draw.choice((1, 1, 1, 3)), retries=3, disk=0,
            at_once=draw.choice((0, 0, 0, 25)), concurrency_group=0,
        )
        budget = draw.choice((0, 0, 20 * (self.limit + 1_000))) if self.limit else 0
        event = e.Submit(0, "ann", "bag", "", b"spec", [target], False, "fcfs", False,
                         policy=dict(draw.choice(POLICIES)), budget=budget)
        done = self.b.do(event)
        return int(done.value) if isinstance(done, x.Done) else self.submit()

    def take(self, pilot: int, want: int) -> list[tuple[int, tuple[int, int]]]:
        """Grant tasks to a pilot: (attempt, (bag, task))."""
        answer = self.b.exchange(pilot, want=want)
        groups = [group for _, found in answer.grants for group in found] if answer is not None else []
        return [(attempt, (group.bag, task)) for group in groups
                for attempt, task in zip(group.attempts, group.tasks, strict=True)]

    def play(self) -> list[str]:
        """Let the thief ask and the donor answer its recalls, again and again; say what breaks the property."""
        wrong = []
        recalled: Counter[tuple[int, int]] = Counter()  # task → how often
        for turn in range(ROUNDS):
            left = max(self.b.core.state.pilots[self.thief].ends - self.b.now, 0) or None
            self.b.exchange(self.thief, want=8, left=left, wait=HOUR)  # waits where nothing is there for it
            orders = self.b.exchange(self.donor)
            asked = [attempt for attempt in orders.recall if attempt in self.held] if orders is not None else []
            back = [self.held.pop(attempt) for attempt in asked]
            recalled.update(back)
            if not asked:
                continue
            reports = [e.Report(attempt, "returned", "recall") for attempt in asked]
            self.b.exchange(self.donor, reports=reports)
            again = dict(self.take(self.donor, 200))
            self.held.update(again)
            if returned := sorted(set(back) & set(again.values())):
                wrong.append(f"round {turn}: tasks {returned} went back to the donor")
            self.b.wait(10)
        wrong += [f"task {task} was recalled {n} times" for task, n in recalled.items() if n > 1]
        return wrong


@pytest.mark.parametrize("first", range(0, 600, 200))
def test_stolen_task_goes_to_the_thief_or_to_nobody(first: int) -> None:
    wrong = {seed: why for seed in range(first, first + 200) if (why := RandomWorld(seed).play())}
    assert wrong == {}


def test_random_worlds_hold_both_thefts_and_refusals() -> None:
    stolen = 0
    for seed in range(100):
        world = RandomWorld(seed)
        had = len(world.held)
        world.play()
        stolen += len(world.held) < had
    assert 8 < stolen < 85


def test_owner_without_allowance_has_no_task_recalled_for_a_site_that_counts() -> None:
    b = Bench(lease=HOUR, silence=9 * HOUR, idle=9 * HOUR, park=HOUR)
    b.step(e.AddSite(0, "far", "bob", "local", ["ann"]))
    b.submit(shape(30, expect=1, limit=60_000))
    donor = b.pilot()
    assert len(b.take(donor, 30)) > 20
    b.step(e.SetAllowance(0, "ann", 0))
    b.exchange(b.pilot(host="thief", site="far"), want=8, wait=HOUR)
    assert b.core.state.pilots[donor].recalling == {}


def test_task_under_a_budget_that_is_all_pledged_is_recalled_for_an_idle_pilot() -> None:
    """An attempt that comes back gives back what it pledged, and that pays for the thief's."""
    b = Bench(lease=HOUR, silence=9 * HOUR, idle=9 * HOUR, park=HOUR)
    bag = b.submit(shape(3, expect=1, limit=59_000))
    b.step(e.SetBudget(0, bag, 1 << 40))
    donor = b.pilot()
    assert len(b.take(donor, 3)) == 3
    pledged = b.core.state.bags[bag].pledged
    assert pledged > 0
    b.step(e.SetBudget(0, bag, pledged))
    thief = b.pilot(host="thief")
    b.exchange(thief, want=1, wait=HOUR)
    asked = b.exchange(donor).recall
    assert len(asked) == 1
    b.exchange(donor, reports=[e.Report(attempt, "returned", "recall") for attempt in asked])
    assert b.core.state.pilots[thief].attempts_held == 1
