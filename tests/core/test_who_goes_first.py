"""Rank is strict in every answer, few attempts come before many, and who has waited is seen, whatever else happens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import Bench, answers, granted, shape
from windfall.core.decide.hosts import quarantine as hosts_module
from windfall.core.messages import events as e
from windfall.core.messages.lifecycle import READY, STARTED

HOUR, MEAN = 3_600_000, 64_000
LATE = 3 * MEAN // 2


@pytest.fixture
def b() -> Bench:
    return Bench(lease=HOUR, silence=100 * HOUR, park=10 * HOUR, idle=100 * HOUR)


def run(b: Bench, host: str, **more: Any) -> tuple[int, int, int]:
    """A pilot, its attempt and the task."""
    pilot = b.pilot(host=host, **more)
    ((attempt, task),) = b.take(pilot, 1)
    b.exchange(pilot, started=[attempt])
    return pilot, attempt, task


def bags(answer: Any) -> list[int]:
    return [group.bag for _, groups in answer.grants for group in groups]


def done_by(b: Bench, host: str, n: int) -> None:
    pilot = b.pilot(host=host)
    for _ in range(n):
        b.report(pilot, b.take(pilot, 1)[0][0], wall=MEAN)
    b.exchange(pilot, bye="idle")


# --- rank -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [({}, {}), ({"rank": "2"}, {"rank": "1"})])
def test_short_tasks_of_a_lower_bag_are_not_held_before_the_rest_of_a_higher_one(ranks: tuple[Any, Any]) -> None:
    b = Bench()
    high = b.submit(shape(10, expect=60_000, priority=1), policy=ranks[0])
    b.submit(shape(100, expect=10), policy=ranks[1])
    assert bags(b.exchange(b.pilot(), want=1_000)) == [high]


def test_nor_where_the_higher_one_has_something_overdue(b: Bench) -> None:
    high = b.submit(shape(5, expect=60_000, priority=1), policy={"attempt-deadline": "60"})
    b.take(b.pilot(host="slow"), 1)
    b.submit(shape(99, expect=10))
    b.wait(61_000)
    assert bags(b.exchange(b.pilot(host="other"), want=100)) == [high]


def test_what_is_overdue_does_not_let_a_lower_bag_overtake_in_the_tail(b: Bench) -> None:
    policy = {"rank": "2", "attempt-deadline": "60"}
    b.submit(shape(5, expect=60_000, retries=9), replicate="tail-safe", policy=policy)
    held = [run(b, f"slow{n}")[:2] for n in range(5)]
    b.report(*held[4], "returned")
    low = b.submit(shape(9, expect=60_000), policy={"rank": "1"})
    b.wait(61_000)
    for pilot, attempt in held[:3]:
        b.report(pilot, attempt, wall=60_000)
    assert low not in bags(b.exchange(b.pilot(host="big", cores=2), want=2))


def test_what_is_overdue_is_not_taken_for_ready_where_owners_share(b: Bench) -> None:
    b.step(e.AddSite(0, "all", "ann", "local", ["bob"]))
    b.submit(shape(2, expect=60_000), owner="bob", policy={"rank": "3", "attempt-deadline": "60"})
    b.take(b.pilot(host="slow", site="all"), 1)
    low = b.submit(shape(2, expect=60_000), owner="bob", policy={"rank": "2"})
    b.submit(shape(1, expect=60_000), owner="ann")
    b.wait(61_000)
    assert low not in bags(b.exchange(b.pilot(host="big", site="all", cores=3), want=3))


# --- deadlines that move ----------------------------------------------------------------------------------------------


def test_the_presets_deadline_follows_what_tasks_take(b: Bench) -> None:
    b.submit(shape(3, expect=HOUR), replicate="deadline")
    first, second, _ = run(b, "a"), run(b, "b"), run(b, "slow")
    b.wait(60_000)
    for pilot, attempt, _ in (first, second):
        b.report(pilot, attempt, wall=60_000)
    idle = b.pilot(host="idle")
    got: list[tuple[int, int]] = []
    for _ in range(60):
        b.wait(20_000)
        got += b.take(idle, 1)
    assert [task for _, task in got] == [2]


@pytest.mark.parametrize("text", ["3 * Task.Expect", "Bag.JobsLeft < 2 ? 60 : 36000"])
def test_a_deadline_that_comes_earlier_than_was_thought_is_seen(b: Bench, text: str) -> None:
    b.submit(shape(3), policy={"attempt-deadline": text})
    first, second, _ = run(b, "a"), run(b, "b"), run(b, "slow")
    b.wait(100_000)
    for pilot, attempt, _ in (first, second):
        b.report(pilot, attempt, wall=100_000)
    idle = b.pilot(host="idle")
    assert b.exchange(idle, want=1, wait=10 * HOUR) is None
    seen = b.wait(9 * HOUR)
    assert [task for answer in answers(seen, idle) for _, task in granted(answer)] == [2]


# --- ageing -----------------------------------------------------------------------------------------------------------


def test_bags_age_again_after_all_had_ended() -> None:
    b = Bench(ageing=24_000, lease=HOUR, silence=10 * HOUR)
    low, high = b.submit(shape(1, retries=0)), b.submit(shape(2_000, priority=5))
    pilot = b.pilot()
    for bag in (low, high):
        b.step(e.Cancel(0, bag, None))
    b.wait(100_000)
    for bag in (low, high):
        b.step(e.Retry(0, bag, None))
    served: list[int] = []
    while low not in served and len(served) < 200:
        for _, groups in b.exchange(pilot, want=1).grants:
            served.append(groups[0].bag)
            b.report(pilot, groups[0].attempts[0], wall=1_000)
        b.wait(1_000)
    assert low in served


def test_what_was_just_appended_has_not_waited() -> None:
    b = Bench(ageing=24_000, lease=HOUR, silence=10 * HOUR)
    low = b.submit(shape(1), open=True)
    run(b, "long")
    b.wait(100_000)
    b.submit(shape(2_000, priority=5))
    b.append(low, 5)
    b.wait(1_100)
    assert not b.core.state.bags[low].aged_since


def test_nor_has_what_was_just_tried_again() -> None:
    b = Bench(ageing=24_000, lease=HOUR, silence=10 * HOUR)
    low = b.submit(shape(2))
    run(b, "long")
    b.step(e.Cancel(0, low, [1]))
    b.wait(100_000)
    b.submit(shape(2_000, priority=5))
    b.step(e.Retry(0, low, [1]))
    b.wait(1_100)
    assert not b.core.state.bags[low].aged_since


# --- replicas ---------------------------------------------------------------------------------------------------------


def test_no_replica_before_the_last_task_has_started_though_it_has_two_attempts(b: Bench) -> None:
    bag = b.submit(shape(40, expect=MEAN, retries=9), replicate="tail-safe", policy={"attempt-deadline": "60"})
    run(b, "slow")
    ((_, task),) = b.take(b.pilot(host="mute"), 1)  # never says that it started
    done_by(b, "quick", 38)
    b.wait(61_000)
    assert sorted(b.take(b.pilot(host=f"again{n}"), 1)[0][1] for n in range(2)) == [0, 1]
    b.wait(LATE - 60_000)
    attempts = b.core.state.attempts
    assert STARTED not in [attempts.state[row] for row in attempts.of_task(bag << 32 | task)]
    assert b.take(b.pilot(host="third"), 1) == []


def test_fewest_attempts_first_also_where_the_other_one_is_at_the_same_site(b: Bench) -> None:
    for site in ("there", "third"):
        b.step(e.AddSite(0, site, "ann", "local"))
    b.submit(shape(40, expect=MEAN, retries=9), replicate="tail-safe")
    run(b, "t1", site="there")
    run(b, "h1", site="here")
    done_by(b, "quick", 38)
    b.wait(LATE + 1_000)
    assert run(b, "t2", site="third")[2] == 0, "which has two now"
    assert [task for _, task in b.take(b.pilot(host="h2", site="here"), 1)] == [1]


def test_of_what_is_overdue_that_with_the_fewest_attempts_first(b: Bench) -> None:
    b.submit(shape(2), policy={"attempt-deadline": "60"})
    run(b, "a")
    run(b, "b")
    b.wait(61_000)
    ((_, first),) = b.take(b.pilot(host="c"), 1)
    b.wait(200_000)
    ((_, second),) = b.take(b.pilot(host="d"), 1)
    assert (first, second) == (0, 1)


def test_what_is_overdue_is_not_said_to_have_no_replica(b: Bench) -> None:
    bag = b.submit(shape(1), replicate="tail-safe", policy={"attempt-deadline": "60", "replicas-share": "0%"})
    run(b, "slow")
    assert "no replica of it will be made unless it is overdue: the bag has had 0" in b.explain(bag, 0)
    b.wait(61_000)
    assert b.take(b.pilot(host="idle"), 1)


def test_looks_for_replicas_are_forgotten_with_their_bags(b: Bench) -> None:
    for _ in range(5):
        bag = b.submit(shape(1), policy={"replicate": "NumberOfReplicas < 3"})
        pilot, attempt, _ = run(b, "h")
        b.take(b.pilot(host="i"), 1)
        b.report(pilot, attempt)
        b.step(e.Remove(0, bag))
    assert len(b.core.turn.replicas.cycles) <= 1


def test_what_runs_on_a_host_that_turned_bad_is_late_sooner(b: Bench) -> None:
    """By what became of another bag's tasks there; seen by one who waits."""
    b.submit(shape(40, expect=MEAN, retries=9), replicate="tail-safe")
    bad = b.pilot(host="bad", cores=3)
    ((attempt, task),) = b.take(bad, 1)
    done_by(b, "quick", 39)
    b.exchange(bad, started=[attempt])
    idle, began = b.pilot(host="idle"), b.now
    assert b.exchange(idle, want=1, wait=10 * HOUR) is None
    other = b.submit(shape(6, cores=2, retries=0))
    while b.core.state.bags[other].counts[READY]:
        ((held, _),) = b.take(bad, 1)
        b.exchange(bad, started=[held])
        b.report(bad, held, "failed", "exit", wall=20_000)
    seen = b.wait(began + LATE // 2 - b.now)
    assert [each for answer in answers(seen, idle) for _, each in granted(answer)] == [task]


def test_fast_pilots_on_the_host_that_runs_it_do_not_hide_another(b: Bench) -> None:
    b.submit(shape(40, expect=MEAN, retries=9), replicate="tail-safe")
    slow, _, task = run(b, "slow")
    done_by(b, "quick", 39)
    b.core.state.hosts.speed[b.core.state.pilots[slow].row] = 5.0
    for _ in range(70):
        assert b.exchange(b.pilot(host="slow"), want=1, wait=10 * HOUR) is None
    other = b.pilot(host="other")
    assert b.exchange(other, want=1, wait=10 * HOUR) is None
    seen = b.wait(LATE)
    assert [each for answer in answers(seen, other) for _, each in granted(answer)] == [task]


def test_who_waits_for_room_on_its_host_is_woken_when_another_pilot_there_makes_some(b: Bench) -> None:
    b.submit(shape(5), policy={"per-host": "1"})
    one, two = b.pilot(host="h"), b.pilot(host="h")
    ((attempt, _),) = b.take(one, 1)
    assert b.exchange(two, want=1, wait=HOUR) is None
    b.exchange(one, reports=[e.Report(attempt, "succeeded", wall=100)], bye="idle")
    assert [task for answer in answers(b.effects, two) for _, task in granted(answer)] == [1]


# --- hosts that are forgotten -----------------------------------------------------------------------------------------


def test_which_hosts_are_forgotten_is_the_same_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "MOST_HOSTS", 16)
    b = Bench(lease=HOUR, silence=10 * HOUR, forget=1_000)
    b.submit(shape(400, retries=0))
    others = b.pilot(host="others")
    b.report(others, b.take(others, 1)[0][0], wall=HOUR)
    doubted = b.pilot(host="doubted")
    for _ in range(6):
        b.wait(700_000)
        if got := b.take(doubted, 1):
            b.report(doubted, got[0][0], "failed", "exit", wall=1)
    b.exchange(doubted, bye="idle")
    b.wait(10_000)
    for n in range(20):
        pilot = b.pilot(host=f"h{n}")
        b.report(pilot, b.take(pilot, 1)[0][0], wall=1_000)
        b.exchange(pilot, bye="idle")
        b.wait(10_000)
    b.restart()  # compares fingerprints


def test_a_host_that_was_forgotten_leaves_no_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "MOST_HOSTS", 16)
    b = Bench(lease=HOUR, silence=10 * HOUR, forget=1_000)
    b.submit(shape(400, retries=0))
    others, bad = b.pilot(host="others"), b.pilot(host="bad")
    b.report(others, b.take(others, 1)[0][0], wall=HOUR)
    for _ in range(4):
        b.report(bad, b.take(bad, 1)[0][0], "failed", "exit", wall=1)
    row = b.core.state.pilots[bad].row
    b.exchange(bad, bye="idle")
    b.wait(10_000)
    for n in range(30):
        pilot = b.pilot(host=f"h{n}")
        if b.core.state.pilots[pilot].row == row:
            b.report(pilot, b.take(pilot, 1)[0][0], "failed", "exit", wall=1)
            assert row not in b.core.state.quarantined, "at its first failure"
            return
        b.report(pilot, b.take(pilot, 1)[0][0], wall=1_000)
        b.exchange(pilot, bye="idle")
        b.wait(10_000)
    pytest.fail("the row was never used again")


# --- and nothing else suffers from it ---------------------------------------------------------------------------------


def test_cores_are_not_idle_behind_a_class_that_has_more_to_do(b: Bench) -> None:
    """What a task weighs is rounded up: by that only two tasks of three cores fit on eight, beside one of one core."""
    b.submit(shape(1, expect=HOUR, priority=3))
    b.submit(shape(30, cores=3, expect=HOUR, priority=2))
    third = b.submit(shape(1, cores=3, expect=10, priority=1))
    assert third in bags(b.exchange(b.pilot(cores=8), want=100))


def test_what_is_overdue_on_the_very_host_is_no_reason_to_send_less(b: Bench) -> None:
    b.submit(shape(4, expect=HOUR), replicate="tail-safe", policy={"attempt-deadline": "60", "rank": "2"})
    big = b.pilot(cores=8, host="big")
    for _ in range(3):
        b.take(big, 1)
    b.wait(61_000)
    low = b.submit(shape(9, expect=HOUR), policy={"rank": "1"})
    assert low in bags(b.exchange(big, want=8))


def test_whoever_holds_what_the_poor_one_can_run_is_found_among_many(b: Bench) -> None:
    b.submit(shape(140, memory=3 << 30, expect=10))
    rich = [b.pilot(host=f"rich{n}") for n in range(70)]
    for pilot in rich:
        assert len(b.take(pilot, 2)) == 2
    b.submit(shape(2, expect=10))
    last = b.pilot(host="last")
    assert len(b.take(last, 2)) == 2
    poor = b.pilot(host="poor", memory=1 << 30)
    b.exchange(poor, want=1, wait=HOUR)
    assert [pilot for pilot in (*rich, last) if b.core.state.pilots[pilot].recalling] == [last]


def test_strikes_are_forgotten_with_their_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "MOST_HOSTS", 16)
    b = Bench(lease=HOUR, silence=10 * HOUR, forget=1_000)
    b.submit(shape(400, retries=0))
    for n in range(100):
        pilot = b.pilot(host=f"h{n}")
        b.report(pilot, b.take(pilot, 1)[0][0], "failed", "exit", wall=1)
        b.exchange(pilot, bye="idle")
        b.wait(10_000)
    assert len(b.core.turn.hosts.strikes) <= 33


def test_room_on_a_host_is_offered_once_to_each_class_of_its_pilots(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from windfall.core.decide.grant import wake

    b.submit(shape(99, expect=HOUR), policy={"per-host": "2"})
    pilots = [b.pilot(host="h") for _ in range(30)]
    for pilot in pilots:
        b.exchange(pilot, want=1, wait=10 * HOUR)
    asked: list[int] = []
    plain = wake.grant
    monkeypatch.setattr(wake, "grant", lambda core, pilot, *more, **how: (
        asked.append(pilot.number), plain(core, pilot, *more, **how))[1])
    attempt = b.core.state.attempts.number[b.core.state.attempts.of_pilot(pilots[0])[0]]
    b.exchange(pilots[0], reports=[e.Report(attempt, "succeeded", wall=100)])
    assert 0 < len(asked) <= 3
