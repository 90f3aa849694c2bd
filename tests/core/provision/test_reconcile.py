"""Reconciling intents with demand: making pilots, withdrawing them, and the limits and budgets of sites."""

from __future__ import annotations

import pytest

from tests.core.conftest import GONE_SILENT, HOUR, Bench, shape
from tests.core.provision.tender import ONE, Tender, bag, site, states
from windfall.core.decide.provision.demand import MOST_PILOTS
from windfall.core.decide.provision.reconcile import AT_ONCE
from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import Limits, Shape

# --- pilots follow the demand ---------------------------------------------------------------------------------------


def test_a_pilot_that_enrols_makes_its_intent_running_and_takes_a_task(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-2")
    assert states(bench) == "qr"
    assert [task for _, task in bench.take(pilot, left=HOUR)] == [0] and bench.tasks(number) == "ar"


def test_queued_pilots_shrink_with_demand_newest_first(bench: Bench) -> None:
    site(bench)
    site(bench, "c2")
    bag(bench, shape(3, expect=HOUR))
    here, there = Tender(bench, "c1"), Tender(bench, "c2")
    here.work()
    there.work()
    bench.take(here.begin("intent-1"), left=HOUR)
    bench.wait(1_000)
    assert states(bench) == "rqq" and states(bench, "c2") == "qqs"
    there.work()
    assert states(bench, "c2") == "qq" and list(there.jobs) == ["intent-4", "intent-5"]


def test_queued_pilots_of_a_cancelled_bag_are_stopped_a_few_at_a_time(bench: Bench) -> None:
    site(bench, flight=3)
    number = bag(bench, shape(8))
    tender = Tender(bench)
    tender.work()
    assert states(bench) == "q" * 8
    bench.step(e.Cancel(0, number, None))
    bench.wait(1_000)
    assert states(bench) == "s" * 8
    assert len(tender.tell().stop) == 3
    tender.work(stopped=tender.orders.stop)
    assert states(bench) == ""


def test_intents_not_yet_ordered_end_when_their_bag_is_cancelled(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(4))
    bench.step(e.Cancel(0, number, None))
    bench.wait(1_000)
    assert not bench.core.state.intents


def test_longer_shape_is_chosen_after_an_exceeded_time_limit(bench: Bench) -> None:
    long = Shape(1, 4 << 30, 0, 1 << 40, 24 * HOUR)
    site(bench, shapes=[ONE, long])
    bag(bench, shape(1, limit=HOUR // 2))
    tender = Tender(bench)
    assert tender.orders.start == [("intent-1", ONE)]
    tender.submit("intent-1")
    pilot = tender.begin("intent-1")
    (attempt, _), = bench.take(pilot, left=HOUR)
    bench.report(pilot, attempt, "failed", "time")
    bench.wait(1_000)
    assert bench.core.state.intents[2].shape == long


def test_the_shape_that_wastes_least_is_chosen_and_whole_nodes_count_one(bench: Bench) -> None:
    big = Shape(8, 64 << 30, 0, 1 << 40, HOUR)
    node = Shape(8, 64 << 30, 0, 1 << 40, HOUR, whole=True)
    site(bench, shapes=[big, Shape(1, 2 << 30, 0, 1 << 40, HOUR), node])
    bag(bench, shape(16, limit=1_000, memory=4 << 30), shape(3, name="whole", limit=1_000, whole=True))
    made = [i.shape for i in bench.core.state.intents.values()]
    assert made.count(big) == 2 and made.count(node) == 3 and len(made) == 5


# --- limits and budget (P6 is checked after every step) -------------------------------------------------------------


def test_limits_bound_all_pilots_and_the_queued_ones(bench: Bench) -> None:
    site(bench, pilots=4, queued=3)
    bag(bench, shape(10, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    assert states(bench) == "qqq"
    for nonce in list(tender.jobs)[:2]:
        bench.take(tender.begin(nonce), left=HOUR)
    bench.wait(1_000)
    tender.work()
    assert states(bench) == "rrqq"


def test_site_budget_reserves_the_worst_case_and_takes_back_what_was_not_used(bench: Bench) -> None:
    site(bench, budget=5 * HOUR // 2)
    bag(bench, shape(9, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    assert states(bench) == "qq"
    pilot = tender.begin("intent-1")
    bench.take(pilot, left=HOUR)
    bench.wait(HOUR // 4)
    bench.exchange(pilot, bye="stopped")
    tender.jobs.pop("intent-1")
    bench.wait(1_000)
    assert bench.core.state.sites["c1"].core_ms_used == 0 and states(bench) == "lq"
    bench.wait(1_000)
    assert tender.tell().look
    tender.list()
    assert bench.core.state.sites["c1"].core_ms_used == HOUR // 4 + 2_000
    bench.wait(1_000)
    assert states(bench) == "qi"


def test_a_silent_pilot_holds_its_reservation_until_its_wall_time_is_over(bench: Bench) -> None:
    site(bench, budget=HOUR)
    bag(bench, shape(2, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    bench.take(tender.begin("intent-1"), left=HOUR)
    bench.wait(HOUR - GONE_SILENT)
    assert states(bench) == "r"
    bench.wait(3 * GONE_SILENT)
    assert states(bench) == "" and bench.core.state.sites["c1"].core_ms_used == HOUR


def test_a_budget_needs_wall_times(bench: Bench) -> None:
    refused = bench.do(e.AddSite(0, "c1", "ann", "slurm", limits=Limits([Shape(1)], budget=HOUR)))
    assert isinstance(refused, x.Refuse) and refused.error == "bad-input"


def test_lowered_limits_stop_queued_pilots(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(5))
    Tender(bench).work()
    site(bench, pilots=2)
    bench.wait(1_000)
    assert states(bench) == "qqsss"


def test_site_of_another_owner_gets_pilots_only_when_shared(bench: Bench) -> None:
    bench.step(e.AddSite(0, "theirs", "bob", "slurm", limits=Limits([ONE])))
    bag(bench, shape(2))
    assert not bench.core.state.intents
    bench.step(e.AddSite(0, "theirs", "bob", "slurm", ["ann"]))
    bench.wait(1_000)
    assert states(bench, "theirs") == "ii"


# --- sites that are silent, change or hold off ----------------------------------------------------------------------


def test_queued_intent_of_a_silent_site_waits(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(1))
    Tender(bench).work()
    bench.wait(5 * HOUR)
    assert states(bench) == "q" and bench.tasks(number) == "r"


def test_pilots_are_withdrawn_from_a_site_that_lost_its_shapes(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    tender.work()
    site(bench, shapes=[])
    bench.wait(1_000)
    tender.work()
    assert states(bench) == "" and not tender.jobs


def test_a_site_that_holds_off_does_not_hold_up_the_others(bench: Bench) -> None:
    site(bench)
    site(bench, "c2")
    bag(bench, shape(1))
    tender = Tender(bench)
    tender.tell(refused=[("intent-1", "no")])
    bench.wait(2_000)
    bag(bench, shape(1))
    assert states(bench, "c2") == "ii"


def test_explain_names_what_is_queued_and_what_cannot_be(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2), shape(1, name="large", cores=64))
    Tender(bench).work()
    assert "2 wait in its queue" in bench.explain(number, 0)
    assert "could hold it: the site's file has no shape with 64 cores)" in bench.explain(number, 2)
    long = bag(bench, shape(1, name="long", limit=10 * HOUR))
    assert "no shape with 10 h for a task" in bench.explain(long, 0)


def test_site_whose_pilots_never_enrol_is_tried_less_and_less_often(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tries = 0
    for _ in range(60):
        tender.work()
        bench.wait(30_000)
        tries += len(tender.jobs)
        tender.jobs.clear()  # the pilot died before it could enrol
        tender.tell()
        tender.list()
    assert 4 <= tries <= 8


@pytest.mark.parametrize("provision", ["swarm", "msr"])
def test_pilots_that_start_too_late_for_their_wall_time_are_not_sent_in_a_loop(bench: Bench, provision: str) -> None:
    site(bench)
    bag(bench, shape(2, limit=HOUR - 10_000), provision=provision)
    tender = Tender(bench)
    tries = 0
    for _ in range(100):
        tender.work()
        for nonce in list(tender.jobs):
            tries += 1
            pilot = tender.begin(nonce, left=HOUR - 60_000)
            bench.exchange(pilot, want=1, left=HOUR - 60_000)
            bench.exchange(pilot, bye="idle")
            del tender.jobs[nonce]
        bench.wait(20_000)
    assert 4 <= tries <= 30


def test_shape_that_the_budget_never_pays_for_is_passed_over(bench: Bench) -> None:
    big, small = Shape(4, 4 << 30, 0, 1 << 40, HOUR), Shape(1, 4 << 30, 0, 1 << 40, HOUR // 2)
    site(bench, shapes=[big, small], budget=2 * HOUR)
    bag(bench, shape(3))
    assert [i.shape for i in bench.core.state.intents.values()] == [small] * 3


@pytest.mark.parametrize("provision", ["swarm", "msr"])
def test_pilot_after_one_that_started_too_slowly_gets_a_longer_wall_time(bench: Bench, provision: str) -> None:
    short, long = (Shape(1, 4 << 30, 0, 1 << 40, wall) for wall in (120_000, HOUR))
    site(bench, shapes=[short, long], pilots=1)
    bag(bench, shape(1, limit=100_000), provision=provision)
    tender = Tender(bench)
    assert [each for _, each in tender.orders.start] == [short]
    tender.work()
    (nonce,) = tender.jobs
    pilot = tender.begin(nonce, left=90_000)  # the pilot took half a minute to start
    assert bench.take(pilot, left=90_000) == []
    bench.exchange(pilot, bye="idle")
    tender.jobs.clear()
    for _ in range(10):
        bench.wait(2_000)
        tender.list()
    assert [each for _, each in tender.orders.start] == [long]


def test_pilots_are_sent_when_a_site_matches_by_the_age_of_a_bag(bench: Bench) -> None:
    site(bench)
    tender = Tender(bench)
    bench.submit(shape(3), policy={"sites": "Age > 600"})
    for minute in range(14):
        tender.work()
        assert (states(bench) == "qqq") == (minute > 11) or 10 <= minute <= 11
        bench.wait(60_000)
        tender.list()


def test_pilots_are_withdrawn_from_a_site_that_no_longer_matches(bench: Bench) -> None:
    site(bench)
    tender = Tender(bench)
    bench.submit(shape(3), policy={"sites": "Age < 600"})
    bench.wait(5_000)
    tender.work()
    assert states(bench) == "qqq"
    for _ in range(13):
        bench.wait(60_000)
        tender.work()
        tender.list()
    assert "q" not in states(bench)


def test_site_without_limits_gets_a_bounded_number_of_intents_per_step(bench: Bench) -> None:
    """A bag may be very large, and its site without limits; the core still makes a bounded number of intents per
    step."""
    site(bench)
    bag(bench, shape(300_000))
    for _ in range(40):
        before = len(bench.core.state.intents)
        bench.wait(1_000)
        assert len(bench.core.state.intents) - before <= AT_ONCE
    assert len(bench.core.state.intents) == MOST_PILOTS
