"""Crowds: of tasks that say so, no more are in play at a time, wherever they run.  Every step is checked for that."""

from __future__ import annotations

from tests.core.conftest import Bench, shape


def test_no_more_than_may_be(bench: Bench) -> None:
    bag = bench.submit(shape(5, at_once=2, concurrency_group=0))
    first, second = bench.pilot(4), bench.pilot(4)
    (a, _), _ = [*bench.take(first), *bench.take(second)]
    assert bench.tasks(bag).count("a") == 2 and bench.take(second) == []
    bench.report(first, a, wall=10)
    assert bench.tasks(bag).count("s") == 1
    assert len(bench.take(second)) + len(bench.take(first)) <= 1 and bench.tasks(bag).count("a") <= 2
    assert bench.explain(bag)  # it can say why


def test_targets_that_count_together(bench: Bench) -> None:
    """Others are not held back."""
    bag = bench.submit(
        shape(3, name="x", at_once=1, concurrency_group=0),
        shape(3, name="y", at_once=1, concurrency_group=0),
        shape(2, name="z", concurrency_group=2),
    )
    pilot = bench.pilot(8)
    bench.take(pilot)
    states = bench.tasks(bag)
    assert states[:6].count("a") == 1 and states[6:] == "aa"


def test_all_end(bench: Bench) -> None:
    """With failures and a host that is lost on the way."""
    bag = bench.submit(shape(6, at_once=2, concurrency_group=0, retries=9))
    pilot = bench.pilot(4)
    for turn in range(60):
        taken = bench.take(pilot)
        assert len(taken) <= 2
        for attempt, _ in taken:
            bench.report(pilot, attempt, "failed" if turn == 1 else "succeeded", "exit" if turn == 1 else "", wall=5)
        if bench.tasks(bag) == "ssssss":
            break
    assert bench.tasks(bag) == "ssssss"


def test_a_new_pilot_gets_what_a_returned_one_had(bench: Bench) -> None:
    bag = bench.submit(shape(2, at_once=1, concurrency_group=0))
    first, second = bench.pilot(), bench.pilot()
    ((attempt, _),) = bench.take(first)
    assert bench.take(second) == []
    bench.report(first, attempt, "returned", "stop")
    assert len(bench.take(second)) == 1 and bench.tasks(bag).count("a") == 1
