"""Batches: a slot gets a whole batch; an incomplete batch waits for a while; returned tasks rejoin the rest of
theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.conftest import GONE_SILENT, Bench, shape
from windfall.core.messages import effects as x, events as e, facts as f


def groups(answer: x.ExchangeReply | None) -> list[list[int]]:
    assert answer is not None
    return [group.tasks for _, granted in answer.grants for group in granted]


def test_a_pilot_gets_as_many_batches_as_it_has_slots(bench: Bench) -> None:
    bench.submit(batched(20))
    answer = bench.exchange(bench.pilot(cores=3), want=1_000)
    assert groups(answer) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert answer is not None and [g.chain for g in answer.grants[0][1]] == [0, 1, 2]


def test_a_batch_takes_one_slot(bench: Bench) -> None:
    """Two of four cores get a batch each, the other two a single task each."""
    bench.submit(batched(32, batch=16, priority=1))
    bench.submit(shape(10, expect=60_000))
    pilot = bench.pilot(cores=4)
    assert [len(tasks) for tasks in groups(bench.exchange(pilot, want=1_000))] == [16, 16, 2]
    assert bench.core.state.pilots[pilot].load == 4_000
    assert bench.core.state.pilots[pilot].attempts_held == 34


def test_a_slot_is_free_when_its_batch_is_done(bench: Bench) -> None:
    bench.submit(batched(12))
    pilot = bench.pilot()
    held = bench.take(pilot)
    for attempt, _ in held[:3]:
        assert groups(bench.exchange(pilot, want=10, reports=[e.Report(attempt, wall=60_000)])) == []
    last = bench.exchange(pilot, want=10, reports=[e.Report(held[3][0], wall=60_000)])
    assert groups(last) == [[4, 5, 6, 7]]


def test_short_batches_are_prefetched_like_short_tasks(bench: Bench) -> None:
    bench.submit(batched(100, expect=50))
    assert len(groups(bench.exchange(bench.pilot(), want=1_000))) == 1 + 500 // (4 * 50)


def test_last_batch_of_a_closed_bag_is_granted_at_once(bench: Bench) -> None:
    bench.submit(batched(6, patience=30_000))
    assert groups(bench.exchange(bench.pilot(cores=2), want=100)) == [[0, 1, 2, 3], [4, 5]]


def test_an_incomplete_batch_of_an_open_bag_waits_for_more(bench: Bench) -> None:
    bag = bench.submit(batched(6, patience=30_000), open=True)
    pilot = bench.pilot(cores=2)
    assert groups(bench.exchange(pilot, want=100)) == [[0, 1, 2, 3]]
    assert bench.exchange(pilot, want=100, wait=20_000) is None
    assert "waits for its batch to fill: 2 of 4 tasks are there" in bench.explain(bag, 5)
    assert "in 30 s" in bench.explain(bag, 5)
    bench.append(bag, 2)
    assert [g.tasks for _, gs in answers(bench)[0].grants for g in gs] == [[4, 5, 6, 7]]


def answers(bench: Bench) -> list[x.ExchangeReply]:
    return [effect for effect in bench.effects if isinstance(effect, x.ExchangeReply)]


def test_incomplete_batch_is_granted_when_its_patience_ends(bench: Bench) -> None:
    bag = bench.submit(batched(2, batch=5, patience=15_000), open=True)
    pilot = bench.pilot(cores=2)
    assert bench.exchange(pilot, want=100, wait=20_000) is None
    bench.wait(10_000)
    bench.append(bag, 1)  # the tasks that came first wait no longer for this one
    assert bench.wait(4_999) == []
    told = [effect for effect in bench.wait(1) if isinstance(effect, x.ExchangeReply)]
    assert [g.tasks for _, gs in told[0].grants for g in gs] == [[0, 1, 2]]
    bench.append(bag, 1)  # too late for the batch, so the task waits for one of its own
    assert bench.exchange(pilot, want=100) is not None and bench.task(bag, 3) == "ready"
    bench.wait(15_000)
    assert groups(bench.exchange(pilot, want=100)) == [[3]]


def test_incomplete_batch_is_granted_when_its_bag_is_closed(bench: Bench) -> None:
    bag = bench.submit(batched(2, patience=3_600_000), open=True)
    assert bench.exchange(bench.pilot(), want=100, wait=20_000) is None
    bench.step(e.Close(0, bag))
    assert [g.tasks for _, gs in answers(bench)[0].grants for g in gs] == [[0, 1]]


def test_incomplete_batch_is_granted_at_once_without_patience(bench: Bench) -> None:
    bench.submit(batched(2), open=True)
    assert groups(bench.exchange(bench.pilot(), want=100)) == [[0, 1]]


@pytest.mark.parametrize("snapshot", [True, False])
def test_patience_survives_a_restart(bench: Bench, snapshot: bool) -> None:
    bag = bench.submit(batched(5, patience=30_000), open=True)
    bench.take(bench.pilot())
    bench.wait(10_000)
    bench.restart(bench.snapshot() if snapshot else None)
    bench.wait(20_000)
    assert bench.core.state.bags[bag].targets[0].released == 5
    bench.restart()
    assert groups(bench.exchange(bench.pilot(), want=100)) == [[4]]


def test_returned_tasks_are_granted_with_the_rest_of_their_batch(bench: Bench) -> None:
    bag = bench.submit(batched(8))
    pilot = bench.pilot(cores=2)
    held = {task: attempt for attempt, task in bench.take(pilot)}
    bench.exchange(pilot, reports=[
        e.Report(held[0]), e.Report(held[1], "failed", "exit"), e.Report(held[3], "returned", "stop"),
        e.Report(held[6], "failed", "exit"),
    ])
    assert bench.tasks(bag) == "sraraara"
    assert groups(bench.exchange(bench.pilot(cores=2), want=100)) == [[1, 3], [6]]


def test_batches_of_a_lost_pilot_are_granted_again_whole(bench: Bench) -> None:
    bench.submit(batched(8))
    bench.take(bench.pilot(cores=2))
    bench.wait(GONE_SILENT)
    assert groups(bench.exchange(bench.pilot(cores=2), want=100)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_tasks_of_a_batch_whose_pilot_died_are_granted_singly(bench: Bench) -> None:
    """Any task of the batch may have killed the pilot: granted alone, a harmless one is not charged with another
    death."""
    bench.submit(batched(8))
    pilot = bench.pilot()
    bench.take(pilot)
    bench.step(e.Gone(0, pilot))
    assert groups(bench.exchange(bench.pilot(cores=8), want=100)) == [[0], [1], [2], [3], [4, 5, 6, 7]]


def test_a_grant_that_was_lost_is_sent_again_as_it_was(bench: Bench) -> None:
    bench.submit(batched(8))
    pilot = bench.pilot(cores=2)
    first = bench.exchange(pilot, want=100)
    again = bench.exchange(pilot, ack=0)
    assert first is not None and again is not None and first.grants == again.grants


def test_cheapest_task_is_granted_with_its_whole_batch(bench: Bench) -> None:
    costs = np.array([5, 5, 5, 5, 9, 1, 9, 9], dtype="<f4").tobytes()
    bench.submit(batched(8, costs=costs), select="sjf")
    assert groups(bench.exchange(bench.pilot(), want=100)) == [[4, 5, 6, 7]]


def test_batch_too_large_for_a_message_is_granted_in_pieces() -> None:
    bench = Bench(message=1_000)
    bench.submit(batched(8, batch=8, message_bytes=256))
    pilot = bench.pilot()
    held = bench.take(pilot)
    assert [task for _, task in held] == [0, 1, 2]
    bench.exchange(pilot, reports=[e.Report(attempt, wall=600_000) for attempt, _ in held])
    assert [task for _, task in bench.take(pilot)] == [3, 4, 5]


def test_appended_runs_of_several_targets_are_counted_by_target(bench: Bench) -> None:
    bag = bench.submit(batched(1, patience=30_000), shape(0, name="other"), open=True)
    for _ in range(3):
        bench.append(bag, 1, target=1)
        bench.append(bag, 1)
    assert groups(bench.exchange(bench.pilot(), want=100))[0] == [0, 2, 4, 6]


def test_retried_task_waits_again_for_its_batch_to_fill(bench: Bench) -> None:
    bag = bench.submit(batched(6, patience=30_000), open=True)
    bench.step(e.Cancel(0, bag, [5]))
    bench.step(e.Retry(0, bag, [5]))
    assert groups(bench.exchange(bench.pilot(cores=4), want=100)) == [[0, 1, 2, 3]]
    bench.append(bag, 2)
    assert groups(bench.exchange(bench.pilot(cores=4), want=100)) == [[4, 5, 6, 7]]


def batched(count: int = 20, batch: int = 4, **more: Any) -> f.TargetShape:
    return shape(count, batch=batch, **more)
