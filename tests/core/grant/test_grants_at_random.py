"""A judge reads the rules plainly and checks every grant of random runs: rank is strict within an owner,
`requirements` and `per-host` hold, replicas keep to their caps and to SWARM's rule, and no pilot waits beside a task
that it could have.

The judge knows nothing of classes, kept orders and kept scans; it looks at all tasks and all attempts every time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.conftest import Bench, WatchedTurn, shape
from windfall.core.decide.replicas import caps
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import ACTIVE, DROPPED, GRANTED, LIVE, READY, STARTED
from windfall.core.state.world import BagState, PilotState

HOUR, MEAN = 3_600_000, 64_000
OWNERS = ("ann", "bob")
PATIENCE = 62_000  # ms; the core looks for overdue tasks once a minute
REQUIREMENTS: dict[str, Callable[[PilotState], bool]] = {
    "": lambda pilot: True,
    "Host.Cores >= 2": lambda pilot: pilot.cores >= 2,
    'Host.Site == "there"': lambda pilot: pilot.site == "there",
}
SETTINGS = {
    "requirements": ("", "", *REQUIREMENTS), "rank": ("1", "2", "3"), "per-host": ("", "", "1", "2"),
    "attempt-deadline": ("", "", "60", "100"), "replicas-per-task": ("", "2", "3"), "replicas-share": ("", "100%"),
    "replicate": ("tail-safe", "tail-safe", "tail-fast", "deadline", "none"),
}  # fmt: skip


def admits(bag: BagState, pilot: PilotState) -> bool:
    return not bag.paused and REQUIREMENTS[bag.policy.get("requirements", "")](pilot)


def full(bag: BagState, held: int) -> bool:
    return held >= int(bag.policy.get("per-host") or 1_000)


class Judge:
    def __init__(self, b: Bench) -> None:
        self.b, self.broken = b, []
        self.seen: Counter[str] = Counter()
        self.waits: dict[tuple[int, ...], int] = {}  # pilot, bag and offer → since when

    def say(self, *what: object) -> None:
        self.broken.append((self.b.now, *what))

    def attempts(self, *states: int) -> list[tuple[int, int, int]]:
        """Return (row, bag << 32 | task, pilot) of the attempts in these states."""
        a = self.b.core.state.attempts
        return [(row, a.task[row], a.pilot[row]) for row in range(a.rows) if a.state[row] in states]

    def held(self, host: int) -> Counter[int]:
        pilots = self.b.core.state.pilots
        return Counter(task >> 32 for _, task, pilot in self.attempts(GRANTED, STARTED, DROPPED)
                       if pilots[pilot].row == host)

    # --- what is handed out

    def grant(self, fact: f.Granted) -> None:
        state = self.b.core.state
        pilot, given, fresh = state.pilots[fact.pilot], Counter[int](), Counter[int]()
        for group in fact.groups:
            bag = state.bags[group.bag]
            given[group.bag] += len(group.tasks)
            if not admits(bag, pilot):
                self.say("may not have it", group)
            for task in group.tasks:
                if bag.tasks.state[task] == READY:
                    fresh[group.bag] += 1
                else:
                    self.replica(bag, task, pilot)
        held = self.held(pilot.row) + given
        for number, n in given.items():
            if full(state.bags[number], held[number] - 1) and n:
                self.say("per-host", number, held[number])
        for number in fresh:
            self.overtaken(pilot, state.bags[number], held, fresh)

    def overtaken(self, pilot: PilotState, low: BagState, held: Counter[int], fresh: Counter[int]) -> None:
        for high in self.b.core.state.bags.values():
            ahead = high.owner == low.owner and float(high.policy["rank"]) > float(low.policy["rank"])
            if not ahead or low.aged_since or not admits(high, pilot) or full(high, held[high.number]):
                continue
            if high.counts[READY] > fresh[high.number]:
                self.say("rank", pilot.number, low.number, "before", high.number, dict(fresh))

    def replica(self, bag: BagState, task: int, pilot: PilotState) -> None:
        a, mode = self.b.core.state.attempts, bag.replicate_setting
        mine = [(row, on) for row, ref, on in self.attempts(GRANTED, STARTED) if ref == bag.number << 32 | task]
        if pilot.row in [self.b.core.state.pilots[on].row for _, on in mine]:
            self.say("its host runs it", bag.number, task)
        span = 1_000 * int(bag.policy.get("attempt-deadline") or (60 if mode == "deadline" else 10**6))
        overdue = all(a.granted[row] + span <= self.b.now for row, _ in mine)
        self.seen["overdue" if overdue else "replicas"] += 1
        if len(mine) >= int(bag.policy.get("replicas-per-task") or (4 if overdue else caps.preset_of(bag).per_task)):
            self.say("cap of a task", bag.number, task, len(mine))
        if not overdue:
            self.speculative(bag, mode)

    def speculative(self, bag: BagState, mode: str) -> None:
        if mode in ("none", "deadline") or caps.replicas_left(bag) <= 0 or bag.has_backlog():
            self.say("no replica now", bag.number, mode, caps.replicas_left(bag), bag.has_backlog())
        started = {ref & 0xFFFFFFFF for _, ref, _ in self.attempts(STARTED) if ref >> 32 == bag.number}
        waits = [task for task in range(bag.size) if bag.tasks.state[task] <= ACTIVE and task not in started]
        if mode == "tail-safe" and waits:
            self.say("before the last has started", bag.number, waits)

    # --- who waits

    def look(self) -> None:
        state, found = self.b.core.state, set()
        for pc in state.pilot_classes.values():
            for pilot in [state.pilots[number] for number in pc.waiting]:
                if pilot.row in state.quarantined or pilot.state != LIVE or pilot.lease_expired:
                    continue
                held = self.held(pilot.row)
                for bag in state.bags.values():
                    if bag.owner in pc.owners and admits(bag, pilot) and not full(bag, held[bag.number]):
                        found.update((pilot.number, bag.number, *what) for what in self.offers(bag, pilot))
        self.waits = {what: self.waits.get(what, self.b.now) for what in found}
        for what, since in self.waits.items():
            if self.b.now - since > PATIENCE:
                self.say("waits in vain", what, since)

    def offers(self, bag: BagState, pilot: PilotState) -> list[tuple[int, int]]:
        """Return what the bag offers the pilot: (-1, 0) if it has ready tasks, and (task, tries) of each overdue
        one."""
        core, a = self.b.core, self.b.core.state.attempts
        found = [(-1, 0)] if bag.has_backlog() else []
        if not bag.policy.get("attempt-deadline"):
            return found
        span, most = 1_000 * int(bag.policy["attempt-deadline"]), int(bag.policy.get("replicas-per-task") or 4)
        of: dict[int, list[int]] = {}
        for row, ref, _ in self.attempts(*range(1, 10)):
            if ref >> 32 == bag.number:
                of.setdefault(ref & 0xFFFFFFFF, []).append(row)
        for task, rows in of.items():
            live = [row for row in rows if a.state[row] in (GRANTED, STARTED)]
            if bag.tasks.state[task] != ACTIVE or not 0 < len(live) < most:
                continue
            grace_ends, resumed = core.turn.grace_ends(), core.turn.resumed
            due = [max(a.granted[row] + span, grace_ends * (a.granted[row] < resumed)) for row in live]
            if max(due) <= self.b.now and pilot.row not in [core.state.pilots[a.pilot[row]].row for row in rows]:
                found.append((task, bag.tasks.tries[task]))
        return found


class Churn:
    """Random acts: policies change, bags are submitted, paused, cancelled and retried, pilots come and go, the server
    restarts."""

    def __init__(self, b: Bench, seed: int, shared: bool) -> None:
        self.b, self.draw, self.shared = b, random.Random(seed), shared
        for site in ("here", "there"):
            b.step(e.AddSite(0, site, "ann", "local", ["bob"] if shared else []))
        self.chunks: dict[Any, Any] = {}
        self.pilots: list[int] = []
        self.bags: list[int] = []
        for _ in range(3):
            self.submit()
        for _ in range(12):
            self.arrive()

    def policy(self) -> dict[str, str]:
        return {key: self.draw.choice(texts) for key, texts in SETTINGS.items()}

    def submit(self) -> None:
        tasks = shape(self.draw.randint(3, 25), expect=self.draw.choice((10, MEAN, MEAN)), retries=50)
        owner = self.draw.choice(OWNERS) if self.shared else "ann"
        policy = {key: text for key, text in self.policy().items() if text}
        self.bags.append(self.b.submit(tasks, owner=owner, policy=policy))

    def arrive(self) -> None:
        site, cores = self.draw.choice(("here", "there")), self.draw.choice((1, 1, 2, 3))
        self.pilots.append(self.b.pilot(host=f"h{self.draw.randrange(9)}", site=site, cores=cores))

    def vanish(self) -> None:
        if len(self.pilots) > 6:
            self.b.step(e.Gone(0, self.pilots.pop(self.draw.randrange(len(self.pilots))), "gone"))

    def change(self) -> None:
        self.b.step(e.SetPolicy(0, self.draw.choice(self.bags), self.policy()))

    def pause(self) -> None:
        bag = self.draw.choice(self.bags)
        self.b.step(e.Pause(0, bag, not self.b.core.state.bags[bag].paused))

    def cancel(self) -> None:
        bag = self.draw.choice(self.bags)
        self.b.step(e.Cancel(0, bag, self.draw.sample(range(self.b.core.state.bags[bag].size), 2)))

    def retry(self) -> None:
        self.b.step(e.Retry(0, self.draw.choice(self.bags), None))

    def restart(self) -> None:
        saved = None
        if self.draw.random() < 0.5:
            number, meta, new = self.b.snapshot()
            self.chunks.update(new)
            self.b.core.saved()
            saved = number, meta, dict(self.chunks)
        self.b.restart(saved)
        self.chunks = self.chunks if saved else {}

    def ask(self) -> None:
        """Let one pilot report some of its attempts, start others, and ask for more."""
        number, a, draw = self.draw.choice(self.pilots), self.b.core.state.attempts, self.draw
        pilot = self.b.core.state.pilots[number]
        if pilot.state != LIVE:
            return
        mine = {a.number[row]: a.state[row] for row in a.of_pilot(number).tolist()}
        running = [attempt for attempt, code in mine.items() if code == STARTED]
        gone = [attempt for attempt, code in mine.items() if code not in (GRANTED, STARTED)]
        reports = [e.Report(attempt, "cancelled", "", wall=1) for attempt in gone]
        if running and draw.random() < 0.5:
            outcome = draw.choices(("succeeded", "failed", "returned"), (8, 1, 1))[0]
            reports.append(e.Report(draw.choice(running), outcome, "", wall=draw.randint(MEAN // 2, 2 * MEAN)))
        reports += [e.Report(each, "returned", "recall") for each in pilot.recalling if mine.get(each) == GRANTED]
        told = {report.a for report in reports}
        begun = [each for each, code in mine.items() if code == GRANTED and each not in told and draw.random() < 0.7]
        self.b.exchange(number, started=begun, reports=reports, want=draw.choice((0, 1, 2, 5)),
                        wait=draw.choice((0, 20_000, 10 * HOUR)))

    def step(self) -> None:
        acts = (self.change, self.pause, self.cancel, self.retry, self.submit, self.vanish, self.arrive, self.restart)
        act = self.draw.choices((*acts, None), (8, 4, 4, 4, 4, 4, 4, 1, 167))[0]
        if act is not None:
            act()
        self.ask()
        self.b.wait(self.draw.choice((10, 500, 3_000, 20_000)))


@pytest.mark.parametrize("seed", range(8))
def test_every_grant_of_a_random_run_obeys_the_rules(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    b = Bench(lease=10 * HOUR, silence=100 * HOUR, park=10 * HOUR, idle=100 * HOUR)
    judge, plain = Judge(b), WatchedTurn.emit

    def emit(core: Any, fact: f.Fact) -> None:
        if isinstance(fact, f.Granted):
            judge.grant(fact)
        plain(core, fact)

    monkeypatch.setattr(WatchedTurn, "emit", emit)
    churn = Churn(b, seed, shared=seed % 2 == 1)
    for _ in range(300):
        churn.step()
        judge.look()
        assert not judge.broken, judge.broken[:3]
    assert judge.seen["overdue"] + judge.seen["replicas"] > 0
