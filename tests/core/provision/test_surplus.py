"""Pilots of sites that no open bag may use go home."""

from __future__ import annotations

from tests.core.conftest import HOUR, Bench, shape
from tests.core.provision.tender import Tender, bag, site, states
from windfall.core.messages import events as e
from windfall.core.messages.lifecycle import DRAINING, LIVE

SOON, LONG = 9_000, 11_000


def begun(bench: Bench, tasks: int = 1) -> tuple[Tender, int, int]:
    """Return a tender, a pilot that it has started, and the bag whose only tasks that pilot did."""
    site(bench)
    number = bag(bench, shape(tasks, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    for attempt, _ in bench.take(pilot, left=2 * HOUR):
        bench.report(pilot, attempt, wall=HOUR)
    return tender, pilot, number


def test_idle_pilot_goes_home_seconds_after_the_last_bag_has_ended(bench: Bench) -> None:
    _, pilot, _ = begun(bench)
    bench.exchange(pilot, want=1, wait=20_000)
    bench.wait(SOON)
    assert bench.core.state.pilots[pilot].state == LIVE
    bench.wait(LONG - SOON)
    assert bench.core.state.pilots[pilot].state == DRAINING
    answer = bench.exchange(pilot, want=1, wait=20_000)
    assert answer is None or answer.stop == "drain"


def test_pilot_stays_while_any_bag_that_may_use_its_site_is_open(bench: Bench) -> None:
    _, pilot, _ = begun(bench)
    bag(bench, shape(1, memory=1 << 50))
    bench.wait(LONG)
    assert bench.core.state.pilots[pilot].state == LIVE


def test_bag_submitted_soon_after_the_last_one_keeps_the_pilot(bench: Bench) -> None:
    _, pilot, _ = begun(bench)
    bench.wait(SOON)
    bag(bench, shape(1, expect=HOUR))
    bench.wait(LONG)
    assert bench.core.state.pilots[pilot].state == LIVE


def test_bag_of_a_user_who_may_not_use_the_site_keeps_no_pilot_there(bench: Bench) -> None:
    _, pilot, _ = begun(bench)
    bench.submit(shape(1, memory=1 << 50), owner="bob")
    bench.wait(LONG)
    assert bench.core.state.pilots[pilot].state == DRAINING


def test_pilot_that_begins_after_the_last_bag_has_ended_goes_home_at_once(bench: Bench) -> None:
    tender, _, number = begun(bench, tasks=2)
    bench.step(e.Cancel(0, number, None))
    bench.wait(LONG)
    late = tender.begin("intent-2")
    bench.wait(1_000)
    assert bench.core.state.pilots[late].state == DRAINING
    assert "q" not in states(bench)
