"""Grants: which tasks a pilot gets, in which order, and how many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, bags_of, granted, shape
from windfall.core.messages import events as e


def costs(*values: float) -> bytes:
    return np.array(values, dtype="<f4").tobytes()


def order(bench: Bench, pilot: int, n: int) -> list[int]:
    """Let the pilot run n tasks one by one; return them in the order of their grants."""
    seen = []
    for _ in range(n):
        (attempt, task), = bench.take(pilot, want=1)
        seen.append(task)
        bench.report(pilot, attempt, wall=1)
    return seen


def test_tasks_are_granted_first_come_first_served(bench: Bench) -> None:
    bench.submit(shape(3))
    assert order(bench, bench.pilot(), 3) == [0, 1, 2]


def test_returned_task_is_granted_first(bench: Bench) -> None:
    bench.submit(shape(4))
    pilot = bench.pilot(2)
    (a, _), (_, _) = bench.take(pilot, want=2)
    bench.report(pilot, a, "returned")
    assert [task for _, task in bench.take(pilot, want=2)] == [0, 2]


def test_shortest_task_goes_first_by_cost(bench: Bench) -> None:
    bench.submit(shape(5, costs=costs(3, 1, 2, 1, 9)), select="sjf")
    assert order(bench, bench.pilot(), 5) == [1, 3, 2, 0, 4]


def test_shortest_task_goes_first_after_one_was_returned(bench: Bench) -> None:
    bench.submit(shape(4, costs=costs(3, 1, 2, 4)), select="sjf")
    pilot = bench.pilot(4)
    (a, first), (_, second) = bench.take(pilot, want=2)
    assert (first, second) == (1, 2)
    bench.report(pilot, a, "returned")
    assert [task for _, task in bench.take(pilot, want=3)] == [1, 0, 3]


def test_shortest_task_goes_first_after_an_exceeded_time_limit(bench: Bench) -> None:
    """A class made for retries with a longer limit has costs, too; it once could not find them."""
    bench.submit(shape(3, costs=costs(3, 1, 2), limit=1_000), select="sjf")
    pilot = bench.pilot()
    for expected in (1, 2, 0):
        (attempt, task), = bench.take(pilot, want=1)
        assert task == expected
        bench.report(pilot, attempt, "failed", "time")
    assert order(bench, pilot, 3) == [1, 2, 0]


def test_appended_tasks_without_a_cost_come_last(bench: Bench) -> None:
    bag = bench.submit(shape(2, costs=costs(2, 1)), select="sjf", open=True)
    bench.append(bag, 2)
    assert order(bench, bench.pilot(), 4) == [1, 0, 2, 3]


def test_target_with_the_shortest_expected_duration_goes_first(bench: Bench) -> None:
    bench.submit(shape(1, name="long", expect=9_000), shape(1, name="short", expect=10), select="sjf")
    assert order(bench, bench.pilot(), 2) == [1, 0]


def test_priority_goes_before_the_order_of_submission(bench: Bench) -> None:
    low, high = bench.submit(shape(1)), bench.submit(shape(1, priority=5))
    bench.take(bench.pilot(), want=1)
    assert (bench.task(low), bench.task(high)) == ("ready", "active")


@pytest.mark.parametrize(("expect", "held"), [(0, 4), (10_000, 2), (100, 12), (1, 514)])
def test_prefetch_is_worth_half_a_second_of_work(bench: Bench, expect: int, held: int) -> None:
    """A pilot prefetches one task per slot if no duration is known, none if tasks are long, many if they are short."""
    bench.submit(shape(2_000, expect=expect))
    assert len(bench.take(bench.pilot(2), want=5_000)) == held


def test_prefetch_follows_what_tasks_really_take(bench: Bench) -> None:
    bench.submit(shape(100))
    pilot = bench.pilot()
    (a, _), (b, _) = bench.take(pilot)
    bench.exchange(pilot, reports=[e.Report(a, wall=50), e.Report(b, wall=50)])
    assert len(bench.take(pilot)) == 11


def test_grant_never_exceeds_what_the_pilot_wants(bench: Bench) -> None:
    bench.submit(shape(100, expect=1))
    assert len(bench.take(bench.pilot(8), want=3)) == 3


# --- the backlog by itself ------------------------------------------------------------------------------------------


def test_a_grant_is_bounded_in_bytes(bench: Bench) -> None:
    bench.submit(shape(100, message_bytes=1 << 20))
    pilot = bench.pilot(64)
    assert len(bench.take(pilot)) == 4
    assert len(bench.take(pilot)) == 4


def test_resent_grants_are_bounded_in_bytes_and_all_arrive(bench: Bench) -> None:
    bench.submit(shape(20, message_bytes=1 << 20))
    pilot = bench.pilot(20)
    for _ in range(5):
        bench.exchange(pilot, want=100, ack=0)
    seen: dict[int, int] = {}
    for ack in range(6):
        answer = bench.exchange(pilot, ack=ack)
        assert answer is not None and len(granted(answer)) <= 8
        seen.update(granted(answer))
    assert len(seen) == 20


@pytest.mark.parametrize("ranks", [({}, {}), ({"rank": "2"}, {"rank": "1"})])
def test_prefetch_of_a_lower_bag_does_not_overtake_the_rest_of_a_higher_one(ranks: tuple[Any, Any]) -> None:
    b = Bench()
    high = b.submit(shape(10, expect=60_000, priority=1), policy=ranks[0])
    b.submit(shape(100, expect=10), policy=ranks[1])
    assert bags_of(b.exchange(b.pilot(), want=1_000)) == [high]


def test_lower_class_is_granted_behind_one_with_more_tasks_than_fit() -> None:
    """Only two of thirty tasks of three cores fit beside one of one core; the lower class is still granted a task."""
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(1, expect=HOUR, priority=3))
    b.submit(shape(30, cores=3, expect=HOUR, priority=2))
    third = b.submit(shape(1, cores=3, expect=10, priority=1))
    assert third in bags_of(b.exchange(b.pilot(cores=8), want=100))
