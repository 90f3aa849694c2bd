"""Waking: which waiting pilots the core asks when tasks appear, and in which order, so that no pilot is passed over."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, answers, granted, shape
from windfall.core.decide.grant import wake
from windfall.core.messages import effects as x, events as e

ONE_HOST = 'Host.Name == "able" && Bag.Age >= 0'


@pytest.fixture
def b() -> Bench:
    return Bench(lease=3_600_000, silence=36_000_000, park=3_600_000)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the waiting pilots in the order in which the core asks them."""
    seen: list[int] = []
    plain = wake.grant

    def noted(core: Any, pilot: Any, *more: Any) -> bool:
        seen.append(pilot.number)
        return plain(core, pilot, *more)

    monkeypatch.setattr(wake, "grant", noted)
    return seen


def running_bag(b: Bench, policy: dict[str, str]) -> int:
    """Submit an open bag, which has no tail, and start its only task on host `busy`."""
    bag = b.submit(shape(1), policy=policy, open=True)
    pilot = b.pilot(host="busy")
    ((attempt, _),) = b.take(pilot, 1)
    b.exchange(pilot, started=[attempt])
    return bag


def bag_with_a_possible_replica(b: Bench) -> int:
    """Submit a bag whose running task may have a replica on another host."""
    return running_bag(b, {"replicate": "NumberOfReplicas < 2"})


def bag_with_an_overdue_task(b: Bench) -> int:
    """Submit a bag whose running task is past its deadline."""
    bag = running_bag(b, {"attempt-deadline": "5"})
    b.wait(10_000)
    return bag


def bag_for_one_host(b: Bench) -> int:
    """Submit a bag that only host `able` may run, by an expression whose value may change at any moment."""
    return b.submit(shape(1), policy={"requirements": ONE_HOST})


def waiting_pilot(b: Bench, host: str) -> int:
    pilot = b.pilot(host=host)
    assert b.exchange(pilot, want=1, wait=3_600_000) is None
    return pilot


def is_waiting(b: Bench, pilot: int) -> bool:
    return b.core.state.pilots[pilot].waiting_request is not None


def change_policy(b: Bench, bag: int) -> None:
    """Change the policy of the bag, after which the core may ask all waiting pilots again."""
    policy = b.core.state.bags[bag].policy
    limit = 50 + (policy.get("per-host") == "50")
    b.do(e.SetPolicy(0, bag, {**policy, "per-host": str(limit)}, "ann"))


@pytest.mark.parametrize("make", [bag_with_a_possible_replica, bag_with_an_overdue_task, bag_for_one_host])
def test_last_waiting_pilot_has_its_turn_in_three_rounds(b: Bench, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    """The core asks three pilots at a time; the five before the last cannot take the task."""
    monkeypatch.setattr(wake, "MOST_IN_VAIN", 3)
    bag = make(b)
    b.do(e.Pause(0, bag, True))
    for _ in range(5):
        waiting_pilot(b, "busy")
    able = waiting_pilot(b, "able")
    b.do(e.Pause(0, bag, False))
    for _ in range(2):
        change_policy(b, bag)
    assert b.core.state.pilots[able].attempts_held == 1


@pytest.mark.parametrize("make", [bag_with_a_possible_replica, bag_with_an_overdue_task, bag_for_one_host])
@pytest.mark.parametrize("seed", range(4))
def test_waiting_pilots_are_asked_equally_often(
    b: Bench, monkeypatch: pytest.MonkeyPatch, asked: list[int], make: Any, seed: int
) -> None:
    """Count over the pilots that wait all the time, while others come and go."""
    draw = random.Random(seed)
    monkeypatch.setattr(wake, "MOST_IN_VAIN", draw.randint(2, 6))
    bag = make(b)
    lasting = [waiting_pilot(b, "busy") for _ in range(draw.randint(5, 20))]
    passing: list[int] = []
    asked.clear()
    for _ in range(120):
        if draw.random() < 0.2:
            passing.append(waiting_pilot(b, "busy"))
        if passing and draw.random() < 0.2:
            b.exchange(passing.pop(draw.randrange(len(passing))), bye="idle")
        before = len(asked)
        change_policy(b, bag)
        assert len(asked) - before <= wake.MOST_IN_VAIN
    times = Counter(pilot for pilot in asked if pilot in lasting)
    assert set(times) == set(lasting) and max(times.values()) - min(times.values()) <= 2, times
    assert min(times.values()) > 5, "each pilot was asked many times"


def test_pilot_that_has_waited_longest_is_granted_first(b: Bench) -> None:
    """All pilots could take the task: first come, first served."""
    pilots = [waiting_pilot(b, f"h{number}") for number in range(6)]
    bag = b.submit(shape(0), open=True)
    for number, pilot in enumerate(pilots):
        b.append(bag, 1)
        held = [b.core.state.pilots[each].attempts_held for each in pilots]
        assert held == [1] * (number + 1) + [0] * (5 - number), pilot


@pytest.mark.parametrize("make", [bag_with_a_possible_replica, bag_with_an_overdue_task, bag_for_one_host])
def test_waiting_pilot_is_granted_a_task_when_a_paused_bag_goes_on(b: Bench, make: Any) -> None:
    bag = make(b)
    b.do(e.Pause(0, bag, True))
    able = waiting_pilot(b, "able")
    b.do(e.Pause(0, bag, False))
    assert b.core.state.pilots[able].attempts_held == 1


def wait_beside_an_unmatched_bag(b: Bench, many: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Let many pilots wait beside a ready bag that matches none of them and a running bag that may have replicas."""
    b.submit(shape(3, expect=60_000), replicate="tail-safe")
    busy = [b.pilot(host=f"busy{number}") for number in range(3)]
    held = [(pilot, attempt) for pilot in busy for attempt, _ in b.take(pilot, 1)]
    b.submit(shape(1), policy={"requirements": 'Host.Name == "nowhere" && Host.Cores > 1'})
    return [waiting_pilot(b, f"h{number % 7}") for number in range(many)], held


def test_started_tasks_make_the_core_ask_no_waiting_pilot(b: Bench, asked: list[int]) -> None:
    _, held = wait_beside_an_unmatched_bag(b, 100)
    asked.clear()
    for pilot, attempt in held:
        b.exchange(pilot, started=[attempt])
    assert not asked
    b.wait(100_000)
    assert [b.core.state.pilots[pilot].attempts_held for pilot in asked] == [1], (
        "of three that are late one may have a replica"
    )


def test_single_waiting_pilot_per_host_is_asked_for_all_alike(b: Bench, asked: list[int]) -> None:
    """The waiting pilots are on seven hosts: the core asks at most seven before the failed task is granted, and seven
    after."""
    waiting, held = wait_beside_an_unmatched_bag(b, 100)
    pilot, attempt = held[0]
    asked.clear()
    b.report(pilot, attempt, "failed", "exit", wall=10)
    assert sum(b.core.state.pilots[each].attempts_held for each in waiting) == 1
    assert len(asked) <= 1 + 7 + 7, asked
    able = waiting_pilot(b, "nowhere")
    b.submit(shape(1), policy={"requirements": 'Host.Name == "nowhere"'})
    assert b.core.state.pilots[able].attempts_held == 1, "the pilot is not like the others"


@pytest.mark.parametrize("how", ["taken", "ended", "cancelled"])
def test_pilot_waiting_behind_an_overdue_task_is_woken_when_that_is_gone(how: str) -> None:
    from windfall.core.messages import events as e

    b = Bench()
    high = b.submit(shape(1, cores=2, expect=600_000), policy={"rank": "2", "attempt-deadline": "60"})
    first, second, third = (b.pilot(cores=2, host=host) for host in "abc")
    ((held, _),) = b.take(first, 1)
    b.exchange(first, started=[held])
    low = b.submit(shape(2), policy={"rank": "1"})
    b.exchange(second, started=[b.take(second, 1)[0][0]])
    b.wait(61_000)
    assert b.exchange(second, want=1, wait=20_000) is None, "the overdue one needs both its cores, and comes first"
    if how == "taken":
        assert b.take(third, 1, wait=0)[0][1] == 0
    elif how == "ended":
        b.report(first, held, wall=60_000)
    else:
        b.step(e.Cancel(0, high, None))
    assert b.tasks(low) == "aa" and not is_waiting(b, second)


def test_pilot_with_time_left_is_asked_when_its_host_has_room() -> None:
    b = Bench()
    busy, brief, able = (b.pilot(host="h") for _ in range(3))
    bag = b.submit(shape(2, limit=600_000), policy={"per-host": "1"})
    ((held, _),) = b.take(busy, 1)
    b.exchange(busy, started=[held])
    assert b.exchange(brief, want=1, wait=20_000, left=100_000) is None
    assert b.exchange(able, want=1, wait=20_000, left=9_000_000) is None
    b.report(busy, held, wall=1_000)
    assert b.tasks(bag) == "sa" and not is_waiting(b, able)


def test_pilots_not_asked_yet_are_asked_at_the_next_start() -> None:
    """The core asks 64 pilots at a time where expressions depend on the moment."""
    b = Bench(park=HOUR, lease=10 * HOUR, silence=20 * HOUR)
    b.submit(shape(8, expect=600_000), replicate="tail-safe")
    big = b.pilot(cores=8, host="big")
    held = [attempt for attempt, _ in b.take(big, 8)]
    for number in range(200):
        b.exchange(b.pilot(host=f"h{number}"), want=1, wait=HOUR)
    bag = b.submit(shape(1), policy={"requirements": 'Host.Running == 0 && Host.Name == "h150"'})
    for attempt in held:
        b.exchange(big, started=[attempt])
    assert b.task(bag) == "active"


def test_waiting_pilot_is_judged_by_the_present_attributes_of_its_host() -> None:
    """An ad published more than a minute ago does not count."""
    b = Bench(park=HOUR, lease=10 * HOUR, silence=20 * HOUR)
    b.checking = False  # the check of waiting pilots would publish new ads
    bag = b.submit(shape(3), policy={"requirements": "Host.Attempts > 0"})
    b.submit(shape(2), policy={"requirements": "Host.Cores == 2"})
    bad, good, other = b.pilot(host="bad"), b.pilot(host="good"), b.pilot(host="good", cores=2)
    for pilot in (bad, good):
        assert b.exchange(pilot, want=1, wait=HOUR) is None
    b.report(other, b.take(other, 1)[0][0], wall=1_000)
    b.wait(70_000)
    b.submit(shape(1), policy={"requirements": "Host.Cores == 99"})
    assert b.tasks(bag) == "arr" and not is_waiting(b, good)


def test_room_on_a_host_is_offered_once_to_each_class_of_its_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
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


# --- which pilots wait in line --------------------------------------------------------------------------------------


def test_new_tasks_wake_as_many_pilots_as_they_need(bench: Bench) -> None:
    pilots = [bench.pilot() for _ in range(3)]
    for pilot in pilots:
        bench.exchange(pilot, want=4, wait=9_000)
    bench.submit(shape(2))
    woken = [effect.pilot for effect in bench.effects if isinstance(effect, x.ExchangeReply)]
    assert woken == pilots[:2]


def test_new_task_wakes_only_a_pilot_that_can_run_it(bench: Bench) -> None:
    small, large = bench.pilot(1), bench.pilot(4)
    for pilot in (small, large):
        bench.exchange(pilot, want=4, wait=9_000)
    bench.submit(shape(1, cores=4))
    assert not answers(bench.effects, small) and answers(bench.effects, large)


def test_report_is_answered_with_tasks_although_the_poll_of_the_pilot_waits(bench: Bench) -> None:
    """The poll of a full pilot waits; a report on its other connection makes room."""
    bag, pilot = bench.submit(shape(9, expect=10_000)), bench.pilot()
    (first, _), = bench.take(pilot)
    assert bench.exchange(pilot, want=9, wait=9_000) is None
    answer = bench.report(pilot, first, wall=10_000)
    assert len(granted(answer)) == 1 and bench.tasks(bag)[:3] == "sar"


def test_pilot_that_is_full_again_leaves_the_line(bench: Bench) -> None:
    """Otherwise the core would offer every ready task to all busy pilots."""
    bench.submit(shape(9, expect=10_000))
    pilot = bench.pilot()
    line = bench.core.state.pilot_classes[bench.core.state.pilots[pilot].cls].waiting
    (first, _), = bench.take(pilot)
    bench.exchange(pilot, want=9, wait=9_000)
    assert not line
    assert len(granted(bench.report(pilot, first, wall=10_000))) == 1
    assert bench.core.state.pilots[pilot].waiting_request is not None and not line


def test_pilot_behind_a_wide_task_is_woken_when_another_takes_it(bench: Bench) -> None:
    """A half-busy pilot waits behind a task of two cores; when another pilot takes it, the narrow one follows."""
    half, other = bench.pilot(2), bench.pilot(2)
    bench.submit(shape(1, expect=10_000))
    bench.take(half, want=1)
    large, small = bench.submit(shape(1, cores=2, expect=10_000)), bench.submit(shape(1, expect=10_000))
    assert bench.exchange(half, want=1, wait=9_000) is None
    bench.take(other, want=1)
    assert (bench.task(large), bench.task(small)) == ("active", "active")
    assert len(answers(bench.effects, half)) == 1


def test_full_pilot_waits_outside_the_line_until_it_has_room(bench: Bench) -> None:
    bench.submit(shape(1, expect=10_000_000))
    pilot = bench.pilot(1)
    [(attempt, _)] = bench.take(pilot)
    assert bench.exchange(pilot, want=10, wait=10_000) is None
    line = bench.core.state.pilot_classes[bench.core.state.pilots[pilot].cls].waiting
    assert pilot not in line
    bench.submit(shape(1, expect=10_000_000))
    assert answers(bench.effects, pilot) == []
    bench.report(pilot, attempt)
    assert [task for answer in answers(bench.effects, pilot) for _, task in granted(answer)] == [0]


def test_bounded_number_of_waiting_pilots_is_asked_for_a_late_task(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the waiting pilots matches the late task; there may be thousands of them."""
    asked = []
    plain = wake.grant
    monkeypatch.setattr(wake, "MOST_IN_VAIN", 3)
    monkeypatch.setattr(wake, "grant", lambda core, pilot, *rest: asked.append(pilot) or plain(core, pilot, *rest))
    b.submit(shape(1, expect=60_000), replicate="tail-safe", policy={"requirements": 'Host.Name == "busy"'})
    busy = b.pilot(host="busy")
    b.exchange(busy, started=[b.take(busy, 1)[0][0]])
    for n in range(9):
        assert b.exchange(b.pilot(host=f"idle{n}"), want=1, wait=3_600_000) is None
    b.wait(2 * 60_000)
    assert 0 < len(asked) <= 3
    assert len({id(pilot) for pilot in asked}) == len(asked)


def test_bounded_number_of_waiting_pilots_is_asked_where_expressions_depend_on_the_moment(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    b = Bench()
    monkeypatch.setattr(wake, "MOST_IN_VAIN", 3)
    bag = b.submit(shape(9), policy={"requirements": 'Bag.Age >= 0 && Host.Name == "last"'})
    pilots = [b.pilot(host=f"h{number}") for number in range(5)] + [b.pilot(host="last")]
    b.do(e.SetPolicy(0, bag, {"requirements": 'Bag.Age >= 0 && Host.Name == "nobody"'}, "ann"))
    for pilot in pilots:
        assert b.exchange(pilot, want=1, wait=20_000) is None
    b.do(e.SetPolicy(0, bag, {"requirements": 'Bag.Age >= 0 && Host.Name == "last"'}, "ann"))
    assert b.core.state.pilots[pilots[-1]].attempts_held == 0
    b.do(e.SetPolicy(0, bag, {"requirements": 'Host.Name == "last"'}, "ann"))  # not of the moment, so the core asks all
    assert b.core.state.pilots[pilots[-1]].attempts_held == 1
