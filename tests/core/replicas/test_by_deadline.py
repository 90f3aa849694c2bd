"""Attempts that have not reported by their deadline: their task is given to another host, and the first wins."""

from __future__ import annotations

import pytest

from tests.core.conftest import Bench, answers, granted, shape
from windfall.core.decide.replicas.by_deadline import MOST_PER_TASK, MOST_SEEN, SHORTEST
from windfall.core.messages import events as e

DUE = {"attempt-deadline": "60"}


@pytest.fixture
def b() -> Bench:
    """Hosts are not given up for being slow."""
    return Bench(lease=3_600_000, silence=36_000_000)


def running(b: Bench, *hosts: str, **more: object) -> tuple[int, list[tuple[int, int]]]:
    """A bag of which each host runs one task: bag, (pilot, attempt)."""
    more.setdefault("policy", DUE)
    bag = b.submit(shape(len(hosts) + int(str(more.pop("spare", 0)))), **more)
    held = []
    for host in hosts:
        pilot = b.pilot(host=host)
        ((attempt, _),) = b.take(pilot, 1)
        b.exchange(pilot, started=[attempt])
        held.append((pilot, attempt))
    return bag, held


def test_what_is_overdue_is_given_to_another_host(b: Bench) -> None:
    bag, ((slow, first),) = running(b, "slow")
    idle = b.pilot(host="idle")
    assert b.take(idle) == [], "it has time yet"
    b.wait(61_000)
    ((second, task),) = b.take(idle)
    assert (task, second != first) == (0, True)
    b.report(idle, second)
    assert b.task(bag) == "succeeded"
    assert b.exchange(slow).cancel == [first]


def test_the_old_attempt_may_still_win(b: Bench) -> None:
    bag, ((slow, first),) = running(b, "slow")
    b.wait(61_000)
    idle = b.pilot(host="idle")
    ((second, _),) = b.take(idle)
    b.report(slow, first)
    assert b.task(bag) == "succeeded"
    assert b.exchange(idle).cancel == [second]


def test_who_waits_is_given_it_when_it_falls_due(b: Bench) -> None:
    running(b, "slow")
    idle = b.pilot(host="idle")
    assert b.exchange(idle, want=1, wait=20_000) is None
    b.wait(41_000)
    assert b.exchange(idle, want=1, wait=20_000) is None
    (answer,) = answers(b.wait(21_000), idle)
    assert granted(answer)


def test_never_on_a_host_that_runs_it(b: Bench) -> None:
    running(b, "slow")
    b.wait(61_000)
    assert b.take(b.pilot(host="slow")) == []


def test_at_another_site_rather_than_at_the_same(b: Bench) -> None:
    b.step(e.AddSite(0, "there", "ann", "local"))
    b.submit(shape(3), policy=DUE)
    for host, site in (("a", "here"), ("b", "there"), ("c", "here")):
        b.take(b.pilot(host=host, site=site), 1)
    b.wait(61_000)
    asking = [b.pilot(host=f"i{n}", site=site) for n, site in enumerate(("here", "here", "there"))]
    assert [[task for _, task in b.take(pilot, 1)] for pilot in asking] == [[1], [0], [2]]


def test_what_has_got_a_replica_is_not_overdue_any_more(b: Bench) -> None:
    n = MOST_SEEN + 1
    bag = b.submit(shape(n + 1), policy={**DUE, "replicate": "true"})
    for host, cores in (("most", n), ("one", 1)):
        pilot = b.pilot(host=host, cores=cores)
        b.exchange(pilot, started=[attempt for attempt, _ in b.take(pilot, cores)])
    b.wait(61_000)
    (cls,) = b.core.state.bags[bag].classes.values()
    assert n in cls.overdue, "behind so many that it is not seen"
    assert [task for _, task in b.take(b.pilot(host="most"))] == [n]
    assert n not in cls.overdue and 0 in cls.overdue


def test_it_goes_before_what_nobody_runs_and_in_its_bags_place(b: Bench) -> None:
    bag, _ = running(b, "slow", spare=3)
    higher = b.submit(shape(1, priority=1))
    b.wait(61_000)
    tasks = [b.take(b.pilot(host=f"h{n}"), 1)[0] for n in range(3)]
    state = b.core.state.attempts
    bags = [state.task[state.row(attempt)] >> 32 for attempt, _ in tasks]
    assert bags == [higher, bag, bag] and [task for _, task in tasks] == [0, 0, 1]


def test_a_replica_has_a_deadline_of_its_own_and_there_are_not_ever_more(b: Bench) -> None:
    bag, _ = running(b, "h0")
    for n in range(1, MOST_PER_TASK):
        b.wait(61_000)
        assert len(b.take(b.pilot(host=f"h{n}"))) == 1
        assert b.take(b.pilot(host=f"i{n}")) == [], "the newest has time yet"
    b.wait(61_000)
    assert b.take(b.pilot(host="last")) == []
    assert b.core.state.bags[bag].tasks.live[0] == MOST_PER_TASK


def test_where_the_newest_is_lost_the_old_one_is_overdue_still(b: Bench) -> None:
    running(b, "slow")
    b.wait(61_000)
    second = b.pilot(host="second")
    b.take(second)
    b.exchange(second, bye="idle")
    b.wait(SHORTEST)
    assert len(b.take(b.pilot(host="third"))) == 1


def test_by_an_expression_of_the_host(b: Bench) -> None:
    policy = {"attempt-deadline": 'Host.Name == "slow" ? 600 : 60 * Host.Cores'}
    running(b, "slow", "other", policy=policy)
    b.wait(61_000)
    ((_, task),) = b.take(b.pilot(host="idle", cores=4))
    assert task == 1
    b.wait(540_000)
    ((_, task),) = b.take(b.pilot(host="idle too"))
    assert task == 0
    again = b.take(b.pilot(host="and another", cores=2))
    assert [task for _, task in again] == [1], "four times as long, on four cores"


@pytest.mark.parametrize("text", ["Host.ErrorRate", "1/0", "-5", "0"])
def test_what_is_undefined_or_an_error_is_no_deadline(b: Bench, text: str) -> None:
    running(b, "slow", policy={"attempt-deadline": text})
    b.wait(600_000)
    assert b.take(b.pilot(host="idle")) == []


def test_the_preset_takes_it_from_what_such_tasks_take(b: Bench) -> None:
    """Three times 40 s; nothing is known when they begin."""
    bag, ((slow, _), (quick, second)) = running(b, "slow", "quick", replicate="deadline", policy={})
    idle = b.pilot(host="idle")
    b.wait(40_000)
    b.report(quick, second, wall=40_000)
    b.wait(75_000)
    assert b.take(idle) == []
    b.wait(SHORTEST)
    assert [task for _, task in b.take(idle)] == [0]


def test_it_can_be_set_and_taken_away_while_the_bag_runs(b: Bench) -> None:
    bag, _ = running(b, "slow", policy={})
    b.wait(61_000)
    idle = b.pilot(host="idle")
    b.do(e.SetPolicy(0, bag, DUE))
    b.do(e.SetPolicy(0, bag, {"attempt-deadline": ""}))
    assert b.take(idle) == []
    b.do(e.SetPolicy(0, bag, {"attempt-deadline": "600"}))
    assert b.take(idle) == []
    b.do(e.SetPolicy(0, bag, DUE))
    assert len(b.take(idle)) == 1


def test_none_of_what_must_not_run_twice(b: Bench) -> None:
    running(b, "slow", external=True)
    b.wait(61_000)
    assert b.take(b.pilot(host="idle")) == []


def test_it_must_match_like_any_task(b: Bench) -> None:
    running(b, "slow", policy={**DUE, "requirements": 'Host.Name != "bad"'})
    b.wait(61_000)
    assert b.take(b.pilot(host="bad")) == []
    assert len(b.take(b.pilot(host="good"))) == 1


def test_a_paused_bag_repeats_nothing(b: Bench) -> None:
    bag, _ = running(b, "slow")
    b.wait(61_000)
    b.do(e.Pause(0, bag, True))
    idle = b.pilot(host="idle")
    assert b.take(idle) == []
    b.do(e.Pause(0, bag, False))
    assert len(b.take(idle)) == 1


def test_after_a_restart_nothing_is_overdue_before_a_lease_has_passed() -> None:
    b = Bench()
    bag, ((slow, first),) = running(b, "slow")
    b.wait(61_000)
    b.restart()
    idle = b.pilot(host="idle")
    assert b.take(idle) == []
    b.exchange(slow, held=[first])
    b.wait(60_000)
    b.exchange(slow, held=[first])
    b.wait(6_000)
    assert len(b.take(b.pilot(host="new"))) == 1
    b.restart(b.snapshot())
    assert b.core.state.deadlines == {bag: None}


@pytest.mark.parametrize("sets", [False, True])
def test_not_even_if_something_else_of_the_bag_is_looked_at_by_then(sets: bool) -> None:
    b = Bench()
    bag, ((slow, first),) = running(b, "slow", spare=1)
    b.wait(61_000)
    b.restart()
    b.exchange(slow, held=[first])
    b.wait(1_000)
    assert [task for _, task in b.take(b.pilot(host="new"), 1)] == [1]
    if sets:
        b.do(e.SetPolicy(0, bag, {"attempt-deadline": "2"}))
    b.wait(61_000)
    assert [task for _, task in b.take(b.pilot(host="idle"), 1)] == [1], "that one was handed out since"
    b.wait(6_000)
    assert [task for _, task in b.take(b.pilot(host="other"), 1)] == [0]


@pytest.mark.parametrize("own", [1, 63, 64, 200])
def test_what_a_large_host_runs_itself_does_not_hide_the_rest(own: int) -> None:
    b = Bench(lease=36_000_000, silence=360_000_000)
    b.submit(shape(own + 4), policy={"attempt-deadline": "60"})
    large, small = b.pilot(cores=256, host="large"), b.pilot(cores=4, host="small")
    b.exchange(large, started=[attempt for attempt, _ in b.take(large, own)])
    b.exchange(small, started=[attempt for attempt, _ in b.take(small, 4)])
    b.wait(61_000)
    assert sorted(task for _, task in b.take(large, 8)) == [*range(own, own + 4)]


def test_what_hangs_on_a_host_keeps_none_of_its_cores_idle() -> None:
    b = Bench(lease=3_600_000, silence=36_000_000)
    b.submit(shape(1, cores=8, expect=3_600_000), policy={"attempt-deadline": "60"})
    pilot = b.pilot(cores=16)
    b.exchange(pilot, started=[attempt for attempt, _ in b.take(pilot, 1)])
    b.submit(shape(100, expect=3_600_000))
    others = [attempt for attempt, _ in b.take(pilot, 8)]
    b.exchange(pilot, started=others)
    b.wait(61_000)
    for attempt in others:
        b.report(pilot, attempt)
        assert len(b.take(pilot, 1)) == 1
