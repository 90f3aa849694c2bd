"""Who waits is asked when something has changed that it waited for, and nobody goes before what should come first."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.core import conftest
from tests.core.conftest import Bench, granted, shape
from windfall.core.decide.grant.order import looked_at
from windfall.errors import BadInput
from windfall.model.checks.bag import setting

HOUR = 3_600_000
LONG = {"park": HOUR, "lease": 10 * HOUR, "silence": 20 * HOUR}


def waits(b: Bench, pilot: int) -> bool:
    return b.core.state.pilots[pilot].waiting_request is not None


@pytest.mark.parametrize("how", ["taken", "ended", "cancelled"])
def test_who_waits_behind_an_overdue_task_is_woken_when_that_is_gone(how: str) -> None:
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
    assert b.tasks(low) == "aa" and not waits(b, second)


@pytest.mark.parametrize("expect", [600_000, 0])
def test_an_overdue_task_is_not_overtaken_by_a_lower_bag(expect: int) -> None:
    """Also where short tasks, or those of unknown length, may be held ahead."""
    b = Bench(lease=HOUR)
    high = b.submit(shape(1, cores=2, expect=expect), policy={"rank": "2", "attempt-deadline": "60"})
    first, second = (b.pilot(cores=2, host=host) for host in "ab")
    b.exchange(first, started=[b.take(first, 1)[0][0]])
    b.submit(shape(50, expect=30_000), policy={"rank": "1"})
    ((held, _),) = b.take(second, 1)
    b.exchange(second, started=[held])
    b.wait(61_000)
    assert not granted(b.exchange(second, want=1)), "one core is free, and it needs two"
    b.report(second, held, wall=60_000)
    b.take(second, 1)
    assert b.core.state.bags[high].tasks.live[0] == 2


def test_a_host_that_has_had_its_fill_of_a_bag_has_room_for_others() -> None:
    b = Bench()
    first, second = b.pilot(cores=2, host="h"), b.pilot(cores=2, host="h")
    b.submit(shape(1), policy={"rank": "3"})
    b.exchange(first, started=[b.take(first, 1)[0][0]])
    b.submit(shape(2, cores=2, expect=600_000), policy={"rank": "2", "per-host": "1"})
    assert b.exchange(first, want=1, wait=20_000) is None, "it waits for two cores"
    low = b.submit(shape(2, expect=600_000), policy={"rank": "1", "per-host": "9"})
    b.take(second, 1)
    b.wait(1_000)
    assert b.tasks(low).count("a") == 1 and not waits(b, first)


def test_of_pilots_on_one_host_the_one_with_time_left_is_asked() -> None:
    b = Bench()
    busy, brief, able = (b.pilot(host="h") for _ in range(3))
    bag = b.submit(shape(2, limit=600_000), policy={"per-host": "1"})
    ((held, _),) = b.take(busy, 1)
    b.exchange(busy, started=[held])
    assert b.exchange(brief, want=1, wait=20_000, left=100_000) is None
    assert b.exchange(able, want=1, wait=20_000, left=9_000_000) is None
    b.report(busy, held, wall=1_000)
    assert b.tasks(bag) == "sa" and not waits(b, able)


@pytest.mark.parametrize("mode", ["tail-fast", "tail-safe"])
def test_as_many_attempts_as_may_be_go_to_those_who_wait(mode: str) -> None:
    b = Bench(**LONG)
    bag = b.submit(shape(2, expect=1_000), policy={"replicate": mode, "replicas-share": "300%"})
    slow, quick, *idle = (b.pilot(host=host) for host in "abcd")
    ((held, _),) = b.take(slow, 1)
    b.report(quick, b.take(quick, 1)[0][0], wall=1_000)
    for pilot in idle:
        assert b.exchange(pilot, want=1, wait=HOUR) is None
    b.exchange(slow, started=[held])
    b.wait(600_000)
    assert b.core.state.bags[bag].tasks.live[0] == 3 and not any(waits(b, pilot) for pilot in idle)


def test_those_who_were_not_asked_yet_are_asked_at_the_next_start() -> None:
    """64 are asked at a time where expressions speak of the moment."""
    b = Bench(**LONG)
    b.submit(shape(8, expect=600_000), replicate="tail-safe")
    big = b.pilot(cores=8, host="big")
    held = [attempt for attempt, _ in b.take(big, 8)]
    for number in range(200):
        b.exchange(b.pilot(host=f"h{number}"), want=1, wait=HOUR)
    bag = b.submit(shape(1), policy={"requirements": 'Host.Running == 0 && Host.Name == "h150"'})
    for attempt in held:
        b.exchange(big, started=[attempt])
    assert b.task(bag) == "active"


def test_who_waits_is_judged_by_what_its_host_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by an ad of more than a minute ago."""
    monkeypatch.setattr(conftest, "check_all", lambda core, witness: [])
    b = Bench(**LONG)
    bag = b.submit(shape(3), policy={"requirements": "Host.Attempts > 0"})
    b.submit(shape(2), policy={"requirements": "Host.Cores == 2"})
    bad, good, other = b.pilot(host="bad"), b.pilot(host="good"), b.pilot(host="good", cores=2)
    for pilot in (bad, good):
        assert b.exchange(pilot, want=1, wait=HOUR) is None
    b.report(other, b.take(other, 1)[0][0], wall=1_000)
    b.wait(70_000)
    b.submit(shape(1), policy={"requirements": "Host.Cores == 99"})
    assert b.tasks(bag) == "arr" and not waits(b, good)


def test_a_bag_that_is_lifted_is_let_down_again_though_there_is_always_more_of_it() -> None:
    b = Bench(ageing=24_000, prefetch=0)
    low = b.submit(shape(3, expect=1_000), policy={"rank": "1"}, open=True)
    high = b.submit(shape(5_000, expect=1_000), policy={"rank": "2"})
    pilot, seen = b.pilot(), []
    for _ in range(200):
        answer = b.exchange(pilot, want=1, wait=0)
        assert answer is not None
        ((bag, attempt),) = [(group.bag, group.attempts[0]) for _, groups in answer.grants for group in groups]
        b.wait(1_000)
        b.report(pilot, attempt, wall=1_000)
        seen.append(bag)
        if bag == low:
            b.append(low, 1)
    assert min(Counter(seen[20:]).values()) > 60, "each has its turn, again and again"
    longest = max(len(run) for run in "".join("l" if bag == low else "h" for bag in seen).replace("lh", "l h").replace(
        "hl", "h l").split())
    assert longest <= 60 and {low, high} == {*seen}


@pytest.mark.parametrize("text", [" " * 400 + "1" * 800 + "!", "1" * 4_095 + "!", "1 a" * 1_300 + "!"])
def test_a_number_that_is_none_is_refused_at_once(text: str) -> None:
    for key in ("per-host", "attempt-deadline"):
        began = time.process_time()
        with pytest.raises(BadInput):
            setting(text, key)
        assert time.process_time() - began < 2, "it took minutes"


def test_of_long_expressions_fewer_hosts_are_gone_through() -> None:
    b = Bench()
    short = b.submit(shape(1), policy={"requirements": "Host.Cores > 0"})
    long = b.submit(shape(1), policy={"requirements": " + ".join(["Host.Cores"] * 150) + " > 0"})
    assert looked_at(b.core.state.bags[short]) == 1_000 and 25 <= looked_at(b.core.state.bags[long]) < 150


def test_expressions_of_tasks_are_short_where_there_are_many_targets() -> None:
    from windfall.core.messages import effects as x, events as e

    b = Bench()
    targets = [shape(1, name=f"t{number}") for number in range(1_000)]
    long = " + ".join(["Task.Cores"] * 150) + " > 0"
    for text, taken in (("Task.Cores > 0", True), (long, False), (long.replace("Task", "Host"), True)):
        event = e.Submit(0, "ann", "bag", "", b"spec", targets, False, "fcfs", False, policy={"requirements": text})
        made = b.do(event)
        assert isinstance(made, x.Done) is taken
        if not taken:
            assert "1,000 targets" in made.message and "1,000,000" in made.hint
    bag = max(b.core.state.bags)
    assert "targets" in b.do(e.SetPolicy(0, bag, {"requirements": long}, "ann")).message
