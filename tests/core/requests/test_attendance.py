"""Open bags are closed when their clients stay away."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.messages import events as e
from windfall.errors import BadInput
from windfall.model.checks.bag import check_head
from windfall.model.spec import Bag, Items, Target

MINUTE = 60_000


def open_bag(bench: Bench, absence: int = MINUTE, tasks: int = 0) -> int:
    return bench.submit(shape(tasks), open=True, absence=absence)


def is_open(bench: Bench, number: int) -> bool:
    return bench.core.state.bags[number].open


def test_open_bag_is_closed_and_ends_when_its_client_stays_away(bench: Bench) -> None:
    number = open_bag(bench)
    bench.wait(MINUTE - 1)
    assert is_open(bench, number)
    bench.wait(1)
    assert not is_open(bench, number)
    assert bench.core.state.bags[number].ended


def test_open_bag_without_a_stated_absence_stays_open(bench: Bench) -> None:
    number = open_bag(bench, absence=0)
    bench.wait(100 * 24 * 60 * MINUTE)
    assert is_open(bench, number)


def test_client_that_follows_or_appends_keeps_its_bag_open(bench: Bench) -> None:
    number = open_bag(bench)
    bench.wait(50_000)
    bench.step(e.Attend(0, [number, 99]))
    bench.wait(50_000)
    bench.append(number, 1)
    bench.wait(50_000)
    assert is_open(bench, number)
    bench.wait(10_000)
    assert not is_open(bench, number)


def test_tasks_of_a_bag_whose_client_stays_away_still_run(bench: Bench) -> None:
    number = open_bag(bench, tasks=1)
    bench.wait(MINUTE)
    pilot = bench.pilot()
    (attempt, _), = bench.take(pilot)
    bench.report(pilot, attempt)
    assert bench.tasks(number) == "s" and bench.core.state.bags[number].ended


def test_absence_begins_anew_when_the_server_restarts(bench: Bench) -> None:
    number = open_bag(bench)
    bench.wait(MINUTE - 1)
    bench.restart()
    bench.wait(MINUTE - 1)
    assert is_open(bench, number)
    bench.wait(1)
    assert not is_open(bench, number)


@pytest.mark.parametrize("bag", [
    {"open": True, "absence": MINUTE - 1}, {"open": True, "absence": 366 * 24 * 60 * MINUTE},
    {"open": True, "absence": -1}, {"open": False, "absence": MINUTE},
])
def test_absence_out_of_range_or_of_a_closed_bag_is_refused(bag: dict[str, Any]) -> None:
    target = Target(command="true", source=Items(items=[]))
    with pytest.raises(BadInput, match="absence"):
        check_head(Bag(name="b", targets=[target], **bag))
