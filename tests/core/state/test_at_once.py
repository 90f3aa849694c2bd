"""`at-once`: no more tasks of a concurrency group are in play than its limit, which is checked after every step."""

from __future__ import annotations

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.messages import events as e


def test_grant_never_exceeds_the_at_once_limit(bench: Bench) -> None:
    bag = bench.submit(shape(5, at_once=2, concurrency_group=0))
    first, second = bench.pilot(4), bench.pilot(4)
    (a, _), _ = [*bench.take(first), *bench.take(second)]
    assert bench.tasks(bag).count("a") == 2 and bench.take(second) == []
    bench.report(first, a, wall=10)
    assert bench.tasks(bag).count("s") == 1
    assert len(bench.take(second)) + len(bench.take(first)) <= 1 and bench.tasks(bag).count("a") <= 2
    assert bench.explain(bag)  # explain knows why


def test_targets_of_one_group_count_together(bench: Bench) -> None:
    """Targets of other groups are not held back."""
    bag = bench.submit(
        shape(3, name="x", at_once=1, concurrency_group=0),
        shape(3, name="y", at_once=1, concurrency_group=0),
        shape(2, name="z", concurrency_group=2),
    )
    pilot = bench.pilot(8)
    bench.take(pilot)
    states = bench.tasks(bag)
    assert states[:6].count("a") == 1 and states[6:] == "aa"


def test_every_task_under_an_at_once_limit_ends(bench: Bench) -> None:
    """Some attempts fail on the way."""
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


def test_returned_task_frees_its_place_for_another_pilot(bench: Bench) -> None:
    bag = bench.submit(shape(2, at_once=1, concurrency_group=0))
    first, second = bench.pilot(), bench.pilot()
    ((attempt, _),) = bench.take(first)
    assert bench.take(second) == []
    bench.report(first, attempt, "returned", "stop")
    assert len(bench.take(second)) == 1 and bench.tasks(bag).count("a") == 1


# --- pilots that are lost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("started", [True, False])
def test_tasks_of_a_dead_pilot_free_their_places(bench: Bench, started: bool) -> None:
    bag = bench.submit(shape(2, at_once=1, concurrency_group=0))
    dies, lives = bench.pilot(host="dies"), bench.pilot(host="lives")
    [(attempt, task)] = bench.take(dies, want=1)
    bench.exchange(dies, started=[attempt] if started else [])
    assert bench.take(lives) == []
    bench.do(e.Gone(0, dies))
    assert [task for _, task in bench.take(lives)] == [task]
    assert bench.tasks(bag) == "ar"
    bench.restart()
    assert bench.core.state.bags[bag].running_in_group == {0: 1}


def test_lost_attempt_frees_its_place_and_is_cancelled_when_it_comes_back(bench: Bench) -> None:
    bag = bench.submit(shape(1, at_once=1, concurrency_group=0))
    silent, lives = bench.pilot(host="silent"), bench.pilot(host="lives")
    [(first, _)] = bench.take(silent)
    for _ in range(8):
        bench.wait(10_000)
        bench.exchange(lives, want=1)
    assert bench.tasks(bag) == "a" and bench.core.state.bags[bag].running_in_group == {0: 1}
    answer = bench.exchange(silent, held=[first], started=[first])  # too late: its place is taken
    assert answer.cancel == [first] and bench.attempt(first) == "lost"
    bench.restart(bench.snapshot())
    assert bench.core.state.bags[bag].running_in_group == {0: 1}


def test_lost_attempt_that_comes_back_goes_on_if_there_is_room(bench: Bench) -> None:
    bag = bench.submit(shape(2, at_once=1, concurrency_group=0))
    pilot = bench.pilot(2)
    [(first, _)] = bench.take(pilot)
    bench.wait(80_000)
    assert bench.attempt(first) == "lost" and bench.core.state.bags[bag].running_in_group == {0: 0}
    assert bench.exchange(pilot, held=[first], started=[first]).cancel == []
    assert bench.attempt(first) == "started" and bench.core.state.bags[bag].running_in_group == {0: 1}
    bench.do(e.Cancel(0, bag, None))
    assert bench.core.state.bags[bag].running_in_group == {0: 1}  # until its pilot says that it is dead
    bench.report(pilot, first, "cancelled")
    assert bench.core.state.bags[bag].running_in_group == {0: 0}


def test_waiting_pilot_is_granted_the_place_of_a_dead_pilot(bench: Bench) -> None:
    bag = bench.submit(shape(2, at_once=1, concurrency_group=0))
    dies, lives = bench.pilot(host="dies"), bench.pilot(host="lives")
    [(attempt, _)] = bench.take(dies, want=1)
    bench.exchange(dies, started=[attempt])
    assert bench.exchange(lives, want=1, wait=20_000) is None
    bench.do(e.Gone(0, dies))
    assert bench.core.state.pilots[lives].attempts_held == 1 and bench.tasks(bag) == "ar"
