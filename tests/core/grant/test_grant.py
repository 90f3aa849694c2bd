"""Who gets what, in which order, and how many at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.conftest import Bench, answers, granted, shape
from windfall.core.messages import events as e
from windfall.core.state.backlog import Backlog
from windfall.core.state.columns import Tasks


def costs(*values: float) -> bytes:
    return np.array(values, dtype="<f4").tobytes()


def order(bench: Bench, pilot: int, n: int) -> list[int]:
    """Tasks as they come when each is reported before the next is asked for."""
    seen = []
    for _ in range(n):
        (attempt, task), = bench.take(pilot, want=1)
        seen.append(task)
        bench.report(pilot, attempt, wall=1)
    return seen


def test_first_come_first_served(bench: Bench) -> None:
    bench.submit(shape(3))
    assert order(bench, bench.pilot(), 3) == [0, 1, 2]


def test_what_came_back_goes_first(bench: Bench) -> None:
    bench.submit(shape(4))
    pilot = bench.pilot(2)
    (a, _), (_, _) = bench.take(pilot, want=2)
    bench.report(pilot, a, "returned")
    assert [task for _, task in bench.take(pilot, want=2)] == [0, 2]


def test_shortest_first_by_cost(bench: Bench) -> None:
    bench.submit(shape(5, costs=costs(3, 1, 2, 1, 9)), select="sjf")
    assert order(bench, bench.pilot(), 5) == [1, 3, 2, 0, 4]


def test_shortest_first_when_something_came_back(bench: Bench) -> None:
    bench.submit(shape(4, costs=costs(3, 1, 2, 4)), select="sjf")
    pilot = bench.pilot(4)
    (a, first), (_, second) = bench.take(pilot, want=2)
    assert (first, second) == (1, 2)
    bench.report(pilot, a, "returned")
    assert [task for _, task in bench.take(pilot, want=3)] == [1, 0, 3]


def test_shortest_first_after_a_duration_failure(bench: Bench) -> None:
    """The class of what overran has costs too; it once had no way to find them."""
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


def test_targets_by_expected_duration(bench: Bench) -> None:
    bench.submit(shape(1, name="long", expect=9_000), shape(1, name="short", expect=10), select="sjf")
    assert order(bench, bench.pilot(), 2) == [1, 0]


def test_priority_before_order_of_submission(bench: Bench) -> None:
    low, high = bench.submit(shape(1)), bench.submit(shape(1, priority=5))
    bench.take(bench.pilot(), want=1)
    assert (bench.task(low), bench.task(high)) == ("ready", "active")


def test_what_does_not_fit_is_left_to_others(bench: Bench) -> None:
    big, small = bench.submit(shape(1, cores=8)), bench.submit(shape(1))
    bench.take(bench.pilot(2))
    assert (bench.task(big), bench.task(small)) == ("ready", "active")


def test_what_cannot_finish_in_time_is_left_to_others(bench: Bench) -> None:
    long, short = bench.submit(shape(1, limit=60_000)), bench.submit(shape(1, limit=1_000))
    check = bench.submit(shape(1, limit=60_000, checkpoint=True, grace=500))
    bench.take(bench.pilot(4), left=2_000)
    assert [bench.task(bag) for bag in (long, short, check)] == ["ready", "active", "active"]


def test_memory_gpus_and_disk_count(bench: Bench) -> None:
    needs = ({"memory": 8 << 30}, {"gpus": 1}, {"disk": 1 << 50})
    bags = [bench.submit(shape(1, **need)) for need in needs]
    pilot = bench.pilot(8, memory=4 << 30)
    assert bench.take(pilot) == [] and {bench.task(bag) for bag in bags} == {"ready"}


@pytest.mark.parametrize(("expect", "held"), [(0, 4), (10_000, 2), (100, 12), (1, 514)])
def test_prefetch_is_worth_half_a_second_of_work(bench: Bench, expect: int, held: int) -> None:
    """Unknown: one more than runs.  Long: none.  Short: as many as keep a slot busy, within bounds."""
    bench.submit(shape(2_000, expect=expect))
    assert len(bench.take(bench.pilot(2), want=5_000)) == held


def test_prefetch_follows_what_tasks_really_take(bench: Bench) -> None:
    bench.submit(shape(100))
    pilot = bench.pilot()
    (a, _), (b, _) = bench.take(pilot)
    bench.exchange(pilot, reports=[e.Report(a, wall=50), e.Report(b, wall=50)])
    assert len(bench.take(pilot)) == 11


def test_never_more_than_wanted(bench: Bench) -> None:
    bench.submit(shape(100, expect=1))
    assert len(bench.take(bench.pilot(8), want=3)) == 3


# --- the backlog by itself ---------------------------------------------------------------------------------------


def test_a_backlog_of_several_runs() -> None:
    tasks = Tasks(30)
    backlog = Backlog(tasks, 0)
    backlog.add_run(0, 3)
    backlog.add_run(10, 2)
    backlog.add_run(20, 3)
    taken = backlog.take(4)
    assert taken == [0, 1, 2, 10]
    tasks.np_state[taken] = 1
    tasks.state[1] = 0
    backlog.put(1)
    assert backlog.take(9) == [1, 11, 20, 21, 22]


def test_a_backlog_with_gaps_larger_than_a_span() -> None:
    tasks = Tasks(20_000)
    tasks.np_state[:19_990] = 4
    backlog = Backlog(tasks, 0)
    backlog.add_run(0, 20_000)
    assert backlog.take(3) == [19_990, 19_991, 19_992]


def test_putting_many_back_rewinds() -> None:
    tasks = Tasks(500)
    backlog = Backlog(tasks, 0)
    backlog.add_run(0, 500)
    assert len(backlog.take(500)) == 500
    backlog.put_all(100, 300)
    assert backlog.take(1) == [0]  # all are ready here: it walks from the start
    assert backlog.heap == []


def test_a_pilots_own_memory_and_disk_decide(bench: Bench) -> None:
    """Not those of a rounded class: 900 MB run on a pilot of 1000 MB, and 1100 MB do not."""
    bench.submit(shape(1, memory=900 * 10**6, disk=19 * 10**8))
    bench.submit(shape(1, memory=1_010 * 10**6))
    pilot = bench.pilot(4, memory=1000 * 10**6, disk=20 * 10**8)
    assert len(bench.take(pilot)) == 1
    assert "memory (needs 1.01 GB, has 1 GB)" in bench.explain(2)


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


def test_a_full_pilot_waits_outside_the_line_until_it_has_room(bench: Bench) -> None:
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
