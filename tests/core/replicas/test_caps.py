"""Caps that a user sets on replicas: per task, per bag, and by their cost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, answers, granted, shape
from windfall.core.decide.replicas.by_expression import CYCLE
from windfall.core.messages import events as e

MINUTE = 60_000


@pytest.fixture
def b() -> Bench:
    return Bench(lease=24 * HOUR, silence=48 * HOUR, park=24 * HOUR)


def running(b: Bench, n: int, expect: int = MINUTE, **policy: str) -> tuple[int, list[tuple[int, int]]]:
    """Submit a bag and start each task on a host of its own; return the bag and (pilot, attempt) of each."""
    bag = b.submit(shape(n, expect=expect), policy={"replicate": "tail-fast", **policy})
    held = []
    for k in range(n):
        pilot = b.pilot(host=f"own{k}")
        ((attempt, _),) = b.take(pilot, 1)
        b.exchange(pilot, started=[attempt])
        held.append((pilot, attempt))
    return bag, held


def idle(b: Bench, n: int, wait: int = 0, start: bool = True) -> list[int]:
    """Let so many idle hosts ask; return the tasks that they were granted."""
    found = []
    for _ in range(n):
        pilot = b.pilot(host=f"idle{b.core.state.next_pilot}")
        held = b.take(pilot, 1)
        if start and held:
            b.exchange(pilot, started=[attempt for attempt, _ in held])
        found += [task for _, task in held]
        b.wait(wait)
    return found


def set_policy(b: Bench, bag: int, **policy: str) -> Any:
    return b.do(e.SetPolicy(0, bag, {key.replace("_", "-"): text for key, text in policy.items()}, "ann"))


# --- of a task ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cap", "replicas"), [("1", 0), ("2", 1), ("4", 3)])
def test_replicas_per_task_caps_the_attempts_of_a_task_at_a_time(b: Bench, cap: str, replicas: int) -> None:
    bag, _ = running(b, 1, **{"replicas-per-task": cap, "replicas-share": "900%"})
    assert idle(b, 6) == [0] * replicas
    assert f"replicas-per-task = {cap} allows {cap} of a task" in b.explain(bag, 0)


def test_replicas_per_task_overrides_the_caps_of_presets_and_expressions(b: Bench) -> None:
    bag, _ = running(b, 1, **{"replicas-share": "900%"})
    assert idle(b, 6) == [0, 0], "tail-fast: three at a time"
    set_policy(b, bag, replicate="true", replicas_per_task="8")
    assert idle(b, 8, CYCLE) == [0] * 5
    set_policy(b, bag, replicas_per_task="9")
    assert idle(b, 2, CYCLE) == [0]
    set_policy(b, bag, replicas_per_task="")
    assert idle(b, 2, CYCLE) == [], "six attempts, the cap of expressions"


def test_replicas_per_task_caps_the_attempts_of_an_overdue_task(b: Bench) -> None:
    running(b, 1, **{"replicate": "none", "attempt-deadline": "60", "replicas-per-task": "2"})
    for wanted in ([0], [], []):
        b.wait(2 * MINUTE)
        assert idle(b, 1) == wanted


# --- of a bag -------------------------------------------------------------------------------------------------------


def test_replicas_share_caps_the_replicas_of_a_bag(b: Bench) -> None:
    bag, _ = running(b, 10, **{"replicas-share": "30%"})
    assert idle(b, 8) == [0, 1, 2]
    assert "no replica of it will be made: the bag has had 3, and replicas-share = 30% allows" in b.explain(bag, 5)
    set_policy(b, bag, replicas_share="50%")
    assert idle(b, 8) == [3, 4]
    set_policy(b, bag, replicas_share="0%")
    assert idle(b, 1) == []


def test_waiting_pilot_is_granted_a_replica_when_a_cap_is_raised(b: Bench) -> None:
    bag, _ = running(b, 2, **{"replicas-share": "0%"})
    pilot = b.pilot(host="idle")
    assert b.exchange(pilot, want=1, wait=HOUR) is None
    set_policy(b, bag, replicas_share="50%")
    assert b.core.state.pilots[pilot].attempts_held == 1


# --- of what they cost ----------------------------------------------------------------------------------------------


def test_replicas_cost_counts_running_replicas_by_the_mean_and_then_by_their_time(b: Bench) -> None:
    bag, _ = running(b, 8, expect=15 * MINUTE, **{"replicas-cost": "1 core-hours"})
    assert idle(b, 8) == [0, 1, 2, 3]
    b.wait(HOUR)
    assert idle(b, 2) == [], "the replicas take longer than expected"
    set_policy(b, bag, replicas_cost="6 core-hours")
    assert len(idle(b, 8)) == 4


def test_replicas_cost_caps_the_replicas_of_one_answer(b: Bench) -> None:
    running(b, 8, expect=15 * MINUTE, **{"replicas-cost": "1 core-hours"})
    assert len(b.take(b.pilot(cores=8, host="wide"))) == 4


def test_time_of_needless_replicas_is_spent(b: Bench) -> None:
    bag, held = running(b, 4, expect=15 * MINUTE, **{"replicas-cost": "1 core-hours"})
    assert idle(b, 1) == [0]
    b.wait(45 * MINUTE)
    b.report(*held[0])
    assert b.core.state.bags[bag].replica_waste == 45 * MINUTE
    assert idle(b, 3) == [1]
    b.wait(20 * MINUTE)
    b.report(*held[1])
    assert b.core.state.bags[bag].replica_waste == 65 * MINUTE
    assert idle(b, 3) == []
    assert "needless attempts have used 1.083 core-hours, and replicas-cost = 1 core-hours" in b.explain(bag, 2)


def test_time_of_both_attempts_is_spent_when_the_replica_wins(b: Bench) -> None:
    bag, _ = running(b, 1)
    b.wait(10 * MINUTE)
    fast = b.pilot(host="fast")
    ((attempt, _),) = b.take(fast, 1)
    b.exchange(fast, started=[attempt])
    b.wait(MINUTE)
    b.report(fast, attempt)
    assert b.core.state.bags[bag].replica_waste == 11 * MINUTE


def test_cost_that_a_replica_did_not_use_pays_for_another() -> None:
    b = Bench(**PATIENT)
    b.submit(shape(2, name="wide", cores=4, expect=HOUR, retries=9), shape(40, name="narrow", expect=HOUR, retries=9),
             replicate="tail-safe", policy={"replicas-cost": "4 core-hours", "replicas-share": "100%"})
    first, wide, narrow = b.pilot(cores=4, host="first"), b.pilot(cores=4, host="wide"), b.pilot(host="narrow")
    b.report(first, b.take(first, 1)[0][0], wall=HOUR)
    b.exchange(first, bye="idle")
    one, other = b.take(wide, 1)[0][0], b.take(narrow, 1)[0][0]
    quick = b.pilot(host="quick")
    for _ in range(39):
        b.report(quick, b.take(quick, 1)[0][0], wall=HOUR)
    b.exchange(quick, bye="idle")
    b.exchange(wide, started=[one])
    b.exchange(narrow, started=[other])
    b.wait(HOUR * 3 // 2 - 1_000)
    helper = b.pilot(cores=4, host="helper")
    assert b.exchange(helper, want=1, wait=20_000) is None
    replica = granted(answers(b.wait(1_500), helper)[0])[0][0]  # the replica may cost all that is left
    b.exchange(helper, started=[replica])
    idle = b.pilot(host="idle")
    assert b.exchange(idle, want=1, wait=HOUR) is None
    b.wait(5_000)
    seen = b.step(b.asks(wide, reports=[e.Report(one, "succeeded", "", wall=HOUR * 3 // 2 + 6_000)]))
    assert [task for answer in answers(seen, idle) for _, task in granted(answer)] == [2]


def test_attempts_that_never_started_or_were_lost_cost_nothing(b: Bench) -> None:
    bag, held = running(b, 2)
    assert idle(b, 1, start=False) == [0]
    b.wait(MINUTE)
    b.report(*held[0])
    b.step(e.Gone(0, held[1][0]))
    ((attempt, task),) = b.take(again := b.pilot(host="again"), 1)
    assert task == 1
    b.report(again, attempt)
    assert b.core.state.bags[bag].replica_waste == 0


def test_replicas_cost_allows_no_replica_while_no_duration_is_known(b: Bench) -> None:
    bag, _ = running(b, 2, expect=0, **{"replicas-cost": "1000 core-hours"})
    assert idle(b, 1) == []
    set_policy(b, bag, replicas_cost="")
    assert idle(b, 2) == [0, 1]


def test_replica_waste_survives_a_restart_and_a_snapshot(b: Bench) -> None:
    bag, held = running(b, 2, **{"replicas-cost": "1 core-minutes"})
    idle(b, 1)
    b.wait(MINUTE)
    b.report(*held[0])
    snapshot = b.snapshot()
    for made in (None, snapshot):
        b.restart(made)
        assert b.core.state.bags[bag].replica_waste == MINUTE and idle(b, 1) == []


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "text"), [
    ("replicas-per-task", "0"), ("replicas-per-task", "33"), ("replicas-per-task", "-1"), ("replicas-per-task", "2.5"),
    ("replicas-per-task", "Host.Cores"), ("replicas-share", "15"), ("replicas-share", "1001%"),
    ("replicas-share", "-1%"), ("replicas-share", "%"), ("replicas-cost", "10"), ("replicas-cost", "10 hours"),
    ("replicas-cost", "9" * 400 + " core-hours"), ("replicas-share", "9" * 400 + "%"), ("replicas-most", "3"),
])  # fmt: skip
def test_malformed_cap_is_refused(b: Bench, key: str, text: str) -> None:
    bag = b.submit(shape(1))
    assert key in set_policy(b, bag, **{key: text}).message
    assert not b.core.state.bags[bag].policy
