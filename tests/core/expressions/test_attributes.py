"""Attributes: what expressions may read of hosts, bags and queues, and where their values come from."""

from __future__ import annotations

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.expressions import attributes as ads
from windfall.core.messages import events as e


def test_jobs_today_of_a_host_restart_at_midnight() -> None:
    b = Bench()
    b.now = 10 * ads.DAY + 5
    b.submit(shape(9))
    pilot = b.pilot()
    for _ in range(3):
        (attempt, _), = b.take(pilot, 1)
        b.report(pilot, attempt)
    state = b.core.state
    assert ads.host_ad(state, state.pilots[pilot], b.now)["Host.JobsToday"] == 3
    assert ads.host_ad(state, state.pilots[pilot], 11 * ads.DAY)["Host.JobsToday"] == 0
    assert ads.host_ad(state, state.pilots[pilot], b.now)["Host.LastSuccess"] == b.now // 1000


@pytest.mark.parametrize("together", [1, 5, 20])
def test_host_speed_is_learnt_from_reports_of_any_size(together: int) -> None:
    b = Bench()
    b.submit(shape(400))
    quick, slow = b.pilot(cores=together, host="quick"), b.pilot(cores=together, host="slow")
    state = b.core.state
    for _ in range(8):
        for pilot, wall in ((quick, 1_000), (slow, 3_000)):
            held = b.take(pilot, together)
            b.exchange(pilot, reports=[e.Report(attempt, wall=wall) for attempt, _ in held])
    speeds = [ads.host_ad(state, state.pilots[pilot], b.now)["Host.Speed"] for pilot in (quick, slow)]
    assert speeds[0] > 1.2 > 1 > speeds[1]


def test_host_speed_compares_hosts_by_tasks_of_the_same_class() -> None:
    b = Bench()
    b.submit(shape(60), policy={"rank": "Host.Speed"})
    quick, slow = b.pilot(host="quick"), b.pilot(host="slow")
    state = b.core.state
    assert ads.host_ad(state, state.pilots[quick], b.now)["Host.Speed"] == 1.0
    for _ in range(25):
        for pilot, wall in ((quick, 1_000), (slow, 3_000)):
            b.report(pilot, b.take(pilot, 1)[0][0], wall=wall)
    speeds = [ads.host_ad(state, state.pilots[pilot], b.now)["Host.Speed"] for pilot in (quick, slow)]
    assert speeds[0] > 1.5 > 1 > speeds[1] > 0.4
    b.restart()


def test_every_attribute_of_the_vocabulary_can_be_read() -> None:
    b = Bench()
    bag = b.submit(shape(2))
    state, pilot = b.core.state, b.core.state.pilots[b.pilot()]
    subject = ads.Subject(state, b.now, state.bags[bag], state.sites["here"], state.classes[1], pilot)
    unknown = {"Host.TimeLeft", "Host.ErrorRate", "Host.Turnaround", "Host.LastSuccess", "Task.Expect",
               "Bag.BudgetLeft"}
    from windfall.model.policies import attributes

    for scope, table in attributes.ADS.items():
        for each in table:
            path = f"{scope}.{each.name}"
            value = ads.value_now(subject, path)
            assert (value is None) == (path in unknown), path
            kinds = {attributes.NUMBER: (int, float), attributes.TEXT: (str,), attributes.TRUTH: (bool,)}[each.type]
            assert value is None or type(value) in kinds, path
            assert (path in ads.LASTING) + (path in ads.LEARNT) + (path in attributes.FRESH) == 1, path


def test_queue_bags_counts_the_bags_that_have_not_ended() -> None:
    b = Bench()
    def known() -> object:
        bag = b.core.state.bags[last]
        return ads.value_now(ads.Subject(b.core.state, b.now, bag, b.core.state.sites["here"]), "Queue.Bags")

    first, last = b.submit(shape(1)), b.submit(shape(1))
    assert known() == 2
    b.do(e.Cancel(0, first, None))
    assert known() == 1
    b.restart(b.snapshot())
    assert known() == 1
    b.do(e.Retry(0, first, None))
    assert known() == 2
    b.restart()
    assert known() == 2
    b.do(e.Cancel(0, first, None))
    b.do(e.Remove(0, first))
    assert known() == 1
