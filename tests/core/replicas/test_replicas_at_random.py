"""Replicas in random runs: each grant of one is checked against the columns of attempts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.core.conftest import Bench, WatchedTurn, shape
from windfall.core.decide.replicas import caps, scan
from windfall.core.decide.replicas.caps import usual_time
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import ACTIVE, GRANTED, STARTED
from windfall.core.state.host_table import bad_hosts
from windfall.core.state.world import BagState

MEAN, HOUR = 64_000, 3_600_000
TASKS, STEPS = 40, 600


class Judge:
    """A judge that sees every grant before the core applies it."""

    def __init__(self, bench: Bench) -> None:
        self.core = bench.core
        self.replicas = 0
        self.broken: list[tuple[str, int, int]] = []
        self.waited: dict[tuple[int, ...], int] = {}

    def see(self, fact: f.Granted) -> None:
        for group in fact.groups:
            bag = self.core.state.bags[group.bag]
            for task in group.tasks:
                if bag.tasks.state[task] == ACTIVE:
                    self.replicas += 1
                    self.judge(bag, task, self.core.state.pilots[fact.pilot].row)

    def judge(self, bag: BagState, task: int, host: int) -> None:
        state, a = self.core.state, self.core.state.attempts
        rows = [row for row in a.of_task(bag.number << 32 | task) if a.state[row] in (GRANTED, STARTED)]
        hosts = [state.pilots[a.pilot[row]].row for row in rows]
        enough = 0.9 * 1.5 * usual_time(state, state.classes[a.cls[rows[0]]])  # averages move a little
        ran = max(self.core.now - a.started[row] for row in rows if a.state[row] == STARTED)
        said = {
            "on a host that runs it": host in hosts,
            "more of a task than may be": len(rows) >= caps.preset_of(bag).per_task,
            "more of a bag than may be": caps.replicas_left(bag) <= 0,
            "while others are ready": bag.has_backlog(),
            "early": ran < enough and not bad_hosts(state.hosts, np.array(hosts)).any(),
        }
        self.broken += [(what, self.core.now, task) for what, so in said.items() if so]

    def look_at_those_who_wait(self) -> None:
        """Check that no pilot waits for long beside a late task that it could have."""
        state = self.core.state
        for bag in [state.bags[number] for number in state.replicating]:
            if not bag.counts[ACTIVE] or bag.has_backlog() or caps.replicas_left(bag) <= 0:
                continue
            late = scan.scan_attempts(self.core.turn, bag, caps.preset_of(bag)).late
            waiting = [state.pilots[number] for pc in state.pilot_classes.values() for number in pc.waiting]
            for pilot in waiting:
                for each in late:
                    if pilot.row not in each.hosts and pilot.row not in state.quarantined:
                        key = (pilot.number, each.task, each.tries, each.live)
                        if self.core.now - self.waited.setdefault(key, self.core.now) > MEAN // 8:
                            self.broken.append(("waits in vain", self.core.now, each.task))


def says(b: Bench, pilot: int, draw: random.Random) -> dict[str, Any]:
    a = b.core.state.attempts
    mine = {a.number[row]: a.state[row] for row in a.of_pilot(pilot).tolist()}
    running = [number for number, state in mine.items() if state == STARTED]
    reports = [e.Report(number, "cancelled", "", wall=1) for number, state in mine.items()
               if state not in (GRANTED, STARTED)]
    if running and draw.random() < 0.6:
        outcome = draw.choices(("succeeded", "failed", "lost"), (8, 1, 1))[0]
        reports.append(e.Report(draw.choice(running), outcome, "", wall=draw.randint(MEAN // 2, 2 * MEAN)))
    return {"started": [number for number, state in mine.items() if state == GRANTED], "reports": reports,
            "want": draw.choice((0, 1, 2)), "wait": draw.choice((0, 20_000, HOUR))}


def play(seed: int, monkeypatch: pytest.MonkeyPatch) -> Judge:
    draw = random.Random(seed)
    b = Bench(lease=HOUR, silence=10 * HOUR, park=HOUR, idle=10 * HOUR)
    judge = Judge(b)
    b.step(e.AddSite(0, "there", "ann", "local"))
    for _ in range(draw.choice((1, 2))):
        policy = draw.choice(({}, {"replicas-share": "100%"}, {"replicas-per-task": "2"}))
        b.submit(shape(TASKS, expect=MEAN, retries=50), replicate="tail-safe", policy=policy)
    pilots = [b.pilot(host=f"h{n % 9}", site=draw.choice(("here", "there")), cores=draw.choice((1, 1, 2)))
              for n in range(14)]
    with monkeypatch.context() as patch:
        plain = WatchedTurn.emit
        patch.setattr(WatchedTurn, "emit", lambda core, fact: (
            judge.see(fact) if isinstance(fact, f.Granted) else None, plain(core, fact)))
        for _ in range(STEPS):
            pilot = draw.choice(pilots)
            b.exchange(pilot, **says(b, pilot, draw))
            b.wait(draw.choice((10, 100, 500, 3_000, 20_000)))
            judge.look_at_those_who_wait()
    return judge


@pytest.mark.parametrize("first", [0, 5, 10])
def test_replicas_of_random_runs_break_no_rule(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = [play(seed, monkeypatch) for seed in range(first, first + 5)]
    assert [judge.broken for judge in judges] == [[]] * 5
    assert sum(judge.replicas for judge in judges) > 20
