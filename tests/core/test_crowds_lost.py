"""Limits of how many tasks are in play (`at-once`), and hosts that are lost with them."""

from __future__ import annotations

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.messages import events as e


@pytest.mark.parametrize("started", [True, False])
def test_what_died_with_its_pilot_is_not_in_play(bench: Bench, started: bool) -> None:
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


def test_nor_is_what_was_given_up(bench: Bench) -> None:
    bag = bench.submit(shape(1, at_once=1, concurrency_group=0))
    silent, lives = bench.pilot(host="silent"), bench.pilot(host="lives")
    [(first, _)] = bench.take(silent)
    for _ in range(8):
        bench.wait(10_000)
        bench.exchange(lives, want=1)
    assert bench.tasks(bag) == "a" and bench.core.state.bags[bag].running_in_group == {0: 1}
    answer = bench.exchange(silent, held=[first], started=[first])  # it was slow to say so: there is no room for it
    assert answer.cancel == [first] and bench.attempt(first) == "lost"
    bench.restart(bench.snapshot())
    assert bench.core.state.bags[bag].running_in_group == {0: 1}


def test_one_that_comes_back_goes_on_if_there_is_room(bench: Bench) -> None:
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


def test_who_waits_is_asked_when_the_site_says_so(bench: Bench) -> None:
    bag = bench.submit(shape(2, at_once=1, concurrency_group=0))
    dies, lives = bench.pilot(host="dies"), bench.pilot(host="lives")
    [(attempt, _)] = bench.take(dies, want=1)
    bench.exchange(dies, started=[attempt])
    assert bench.exchange(lives, want=1, wait=20_000) is None
    bench.do(e.Gone(0, dies))
    assert bench.core.state.pilots[lives].attempts_held == 1 and bench.tasks(bag) == "ar"
