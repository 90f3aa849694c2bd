"""Nobody is given more than there is room for, nor what another's turn is, nor kept from what nobody else may have."""

from __future__ import annotations

import pytest

from tests.core.conftest import Bench, answers, granted, shape
from windfall.core.decide.replicas import by_deadline, by_expression
from windfall.core.messages import effects as x, events as e, facts as f

HOUR = 3_600_000
DAY = 24 * HOUR
GIB = 1 << 30
PATIENT = {"lease": 100 * HOUR, "silence": 200 * HOUR, "idle": 200 * HOUR}


def by_bag(answer: x.ExchangeReply | None) -> list[tuple[int, int]]:
    """Which bags' tasks it brings, and how many of each."""
    groups = [group for _, found in answer.grants for group in found] if answer is not None else []
    return [(group.bag, len(group.tasks)) for group in groups]


# --- what is overdue ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, {"per-host": "1"}], ids=["as many as it wants", "one of a bag"])
def test_who_holds_more_than_it_can_run_is_given_nothing_overdue(policy: dict[str, str]) -> None:
    b = Bench(**PATIENT)
    bag = b.submit(shape(60, retries=9), policy={"attempt-deadline": "300"})
    slow = b.pilot(cores=60, host="slow")
    b.exchange(slow, started=[attempt for attempt, _ in b.take(slow, 60)])
    b.do(e.SetPolicy(0, bag, policy))
    b.submit(shape(5, retries=9))  # how long they take nobody knows: one is sent ahead
    fast = b.pilot(cores=4, host="fast")
    assert len(b.take(fast, 5)) == 5
    b.wait(301_000)
    assert b.exchange(fast, want=3, wait=20_000) is None
    assert b.core.state.pilots[fast].load == 5_000


def test_a_request_does_not_look_through_all_that_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    still = by_deadline._is_still_overdue
    monkeypatch.setattr(by_deadline, "_is_still_overdue",
                        lambda bag, cls, task: looked.append(task) or still(bag, cls, task))
    b = Bench(**PATIENT)
    bag = b.submit(shape(500, retries=9), policy={"attempt-deadline": "300", "requirements": "Host.Cores > 4"})
    slow = b.pilot(cores=500, host="slow")
    b.exchange(slow, started=[attempt for attempt, _ in b.take(slow, 500)])
    small = b.pilot(host="small")
    b.wait(301_000)
    assert len(next(iter(b.core.state.bags[bag].classes.values())).overdue) == 500
    looked.clear()
    b.exchange(small, want=1)
    assert len(looked) < 10


def test_what_has_no_deadline_any_more_is_not_overdue() -> None:
    b = Bench(**PATIENT)
    bag = b.submit(shape(9, retries=9), policy={"attempt-deadline": "300", "replicate": "none"})
    slow = b.pilot(cores=5, host="slow")
    b.exchange(slow, started=[attempt for attempt, _ in b.take(slow, 5)])
    b.wait(301_000)
    assert b.core.state.overdue
    b.do(e.SetPolicy(0, bag, {"attempt-deadline": ""}))
    assert sorted(task for _, task in b.take(b.pilot(cores=9, host="fast"), 9)) == [5, 6, 7, 8]


def test_what_came_back_and_was_handed_out_again_is_not_overdue() -> None:
    b = Bench(**PATIENT)
    b.submit(shape(3, retries=9), policy={"attempt-deadline": "300"})
    slow = b.pilot(cores=3, host="slow")
    held = b.take(slow, 3)
    b.exchange(slow, started=[attempt for attempt, _ in held])
    b.wait(301_000)
    b.exchange(slow, reports=[e.Report(held[1][0], "returned", "stop")])
    assert [task for _, task in b.take(slow, 1)] == [1]  # the others it has itself
    given = [task for _, task in b.take(b.pilot(cores=9, host="third"), 9)]
    assert sorted(given) == [0, 2]


# --- the order of bags --------------------------------------------------------------------------------------------


def test_the_rest_of_a_tail_is_not_overtaken() -> None:
    """Answers bring one of its tasks each, and nothing that ranks lower before the last."""
    b = Bench(**PATIENT)
    high = b.submit(shape(8, priority=9, expect=HOUR), replicate="tail-safe")
    low = b.submit(shape(100, priority=1, expect=10 * HOUR))
    b.take(b.pilot(cores=5, host="first"), 5)
    other = b.pilot(cores=4, host="other")
    assert [by_bag(b.exchange(other, want=4)) for _ in range(3)] == [[(high, 1)], [(high, 1)], [(high, 1), (low, 1)]]


def test_whoever_waits_beside_a_report_is_given_the_rest_of_a_tail() -> None:
    b = Bench(**PATIENT)
    b.submit(shape(12, priority=9, expect=HOUR), replicate="tail-safe")
    pilot = b.pilot(cores=2, host="a")
    first = b.take(pilot, 2)
    b.take(b.pilot(cores=6, host="b"), 6)
    b.exchange(pilot, want=4, wait=20_000)  # a poll that waits while both cores are busy
    seen = b.step(b.asks(pilot, reports=[e.Report(attempt, "succeeded", "", wall=HOUR) for attempt, _ in first]))
    given = [task for answer in answers(seen, pilot) for _, task in granted(answer)]
    assert set(given) == {8, 9} and b.core.state.pilots[pilot].attempts_held == 2


def test_what_may_go_nowhere_else_here_keeps_no_core_free() -> None:
    """`per-host` is reached: that its tasks are too wide for what is free matters to nobody."""
    b = Bench(**PATIENT)
    wide = b.submit(shape(50, cores=2, priority=9, expect=HOUR), policy={"per-host": "1"})
    narrow = b.submit(shape(50, priority=1, expect=HOUR))
    pilot = b.pilot(cores=4)
    answer = b.exchange(pilot, want=9)
    assert by_bag(answer) == [(wide, 1), (narrow, 2)]
    last = granted(answer)[-1][0]
    again = b.exchange(pilot, reports=[e.Report(last, "succeeded", "", wall=HOUR)], want=9, wait=20_000)
    assert by_bag(again) == [(narrow, 1)]


def test_what_there_is_no_room_for_is_not_overtaken_where_owners_share() -> None:
    b = Bench()
    b.do(e.AddSite(0, "pool", "ann", "local", shared=["bob"]))
    wide = b.submit(shape(10, cores=2, priority=9, expect=30_000))
    b.submit(shape(10, priority=1, expect=30_000))
    his = b.submit(shape(1, expect=30_000), owner="bob")
    assert by_bag(b.exchange(b.pilot(cores=4, site="pool"), want=9)) == [(wide, 1), (his, 1)]


def test_a_wide_task_that_was_lifted_need_not_be_the_first_of_its_bag() -> None:
    """A host runs empty for it although another one of its bag, before it, does not fit the time that is left."""
    b = Bench(lease=100 * DAY, silence=1_000 * DAY, idle=1_000 * DAY)
    b.do(e.AddSite(0, "pool", "ann", "local", shared=["bob"]))
    b.submit(shape(3_000, limit=2 * HOUR, expect=HOUR), owner="bob")
    end = b.now + 50 * DAY
    pilot = b.pilot(cores=4, site="pool", left=50 * DAY)
    runs = [(b.now + HOUR, attempt) for attempt, _ in b.take(pilot, 1, left=50 * DAY)]
    bag = b.submit(shape(1, name="long", limit=100 * DAY, expect=HOUR),
                   shape(1, name="wide", cores=4, limit=HOUR, expect=HOUR))
    for _ in range(2 * 24 * 4):
        b.wait(HOUR // 4)
        reports = [e.Report(attempt, "succeeded", "", wall=HOUR) for at, attempt in runs if at <= b.now]
        answer = b.exchange(pilot, reports=reports, want=1, left=end - b.now)
        if bag in dict(by_bag(answer)):
            return
        new = [attempt for attempt, _ in granted(answer)] if answer is not None else []
        b.exchange(pilot, started=new)
        runs = [each for each in runs if each[0] > b.now] + [(b.now + HOUR, attempt) for attempt in new]
    pytest.fail("it was not granted in two days")


# --- what fits ----------------------------------------------------------------------------------------------------


def test_a_bag_that_chooses_by_data_has_no_more_on_a_host_than_it_may() -> None:
    b = Bench()
    b.do(
        e.Submit(
            0,
            "ann",
            "bag",
            "",
            b"spec",
            [shape(8)],
            False,
            "data-conscious",
            False,
            data_selection=f.DataSelection(),
            policy={"per-host": "1"},
        )
    )
    assert len(granted(b.exchange(b.pilot(cores=4), want=8))) == 1


@pytest.mark.parametrize("what", ["memory", "disk"])
def test_a_pilot_is_given_what_it_has_itself_not_what_its_class_has(what: str) -> None:
    """Pilots of 62.5 GiB are of a class with 64."""
    b = Bench()
    b.submit(shape(4, **{what: 16 * GIB - GIB // 8}, expect=HOUR))
    one, other = (b.pilot(cores=4, host=host, **{what: int(62.5 * GIB)}) for host in "ab")
    assert (len(b.take(one, 9)), len(b.take(other, 9))) == (3, 1)


# --- replicas -----------------------------------------------------------------------------------------------------


def test_who_is_late_is_seen_when_tasks_take_less_time_than_before() -> None:
    b = Bench(**PATIENT)
    b.submit(shape(40, retries=9), replicate="tail-safe")
    pilots = [b.pilot(host=f"t{n}") for n in range(20)]
    held = [b.take(pilot, 1)[0][0] for pilot in pilots]
    quick = b.pilot(host="quick")
    for _ in range(20):
        b.report(quick, b.take(quick, 1)[0][0], wall=600_000)
    b.exchange(quick, bye="idle")
    for pilot, attempt in zip(pilots, held, strict=True):
        b.exchange(pilot, started=[attempt])
    idle = b.pilot(host="idle")
    b.wait(10_000)
    assert b.exchange(idle, want=1, wait=20_000) is None
    for pilot, attempt in list(zip(pilots, held, strict=True))[:18]:
        b.exchange(pilot, reports=[e.Report(attempt, "succeeded", "", wall=10_000)])
    given: list[object] = []
    for _ in range(50):  # not after fifteen minutes
        given += [each for answer in answers(b.wait(1_000), idle) for each in granted(answer)]
        if (
            b.core.state.pilots[idle].waiting_request is None
            and (answer := b.exchange(idle, want=1, wait=20_000)) is not None
        ):
            given += granted(answer)
        if given:
            return
    pytest.fail("nobody was seen to be late")


def test_what_a_replica_did_not_use_is_there_for_others() -> None:
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
    replica = granted(answers(b.wait(1_500), helper)[0])[0][0]  # it may take all there is
    b.exchange(helper, started=[replica])
    idle = b.pilot(host="idle")
    assert b.exchange(idle, want=1, wait=HOUR) is None
    b.wait(5_000)
    seen = b.step(b.asks(wide, reports=[e.Report(one, "succeeded", "", wall=HOUR * 3 // 2 + 6_000)]))
    assert [task for answer in answers(seen, idle) for _, task in granted(answer)] == [2]


def test_those_that_nobody_takes_do_not_hide_others() -> None:
    """By expression, and more of them than are listed."""
    b, wide = Bench(**PATIENT), by_expression.MOST_WANTED + 40
    b.submit(shape(wide, name="wide", cores=4, expect=HOUR), shape(4, name="narrow", expect=HOUR),
             policy={"replicate": "Task.NumberOfReplicas < 2"})
    for n in range(wide):
        large = b.pilot(cores=4, host=f"large{n}")
        b.exchange(large, started=[b.take(large, 1)[0][0]])
    small = b.pilot(cores=4, host="small")
    b.exchange(small, started=[attempt for attempt, _ in b.take(small, 4)])
    idle = [b.pilot(host=f"idle{n}") for n in range(4)]
    given = [granted(answer) for pilot in idle if (answer := b.exchange(pilot, want=1, wait=HOUR)) is not None]
    for _ in range(6):
        seen = b.wait(5_000)
        given += [granted(answer) for pilot in idle for answer in answers(seen, pilot)]
    assert sorted(task for each in given for _, task in each) == list(range(wide, wide + 4))


# --- recovery -----------------------------------------------------------------------------------------------------


def test_a_bag_that_was_lifted_and_has_ended_is_lifted_after_a_restart_as_before() -> None:
    b = Bench(idle=100 * DAY)
    b.submit(shape(3_000, priority=9))
    low = b.submit(shape(1, priority=1))
    pilot = b.pilot()
    while not b.core.state.bags[low].aged_since:
        b.wait(HOUR)
        b.exchange(pilot, held=[])
        for attempt, _ in b.take(pilot, 1):
            b.report(pilot, attempt, wall=5)
    b.report(pilot, b.take(pilot, 1)[0][0], wall=5)
    assert b.core.state.bags[low].ended and b.core.state.bags[low].aged_since
    b.restart(b.snapshot())  # which compares what there is before and after
    assert b.core.state.bags[low].aged_since
