"""The dialogue with a site's tender: orders, listings, and what the core believes of them."""

from __future__ import annotations

import pytest

from tests.core.conftest import HOUR, Bench, shape
from tests.core.provision.tender import APART, LANDING, ONE, Tender, bag, site, states
from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import IntentsEnded

# --- orders ---------------------------------------------------------------------------------------------------------


def test_an_intent_is_committed_before_anything_is_ordered(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    assert [nonce for nonce, _ in tender.orders.start] == ["intent-1", "intent-2"]
    assert tender.orders.start[0][1] == ONE


def test_orders_are_repeated_until_acknowledged_and_wake_no_tender(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    first = tender.orders.start
    tender.seen = 0  # the answer was lost
    assert tender.tell(wait=1_000).start == first
    assert tender.tell(wait=1_000) is None  # the request waits: the tender works on its orders
    tender.tell(accepted=[("intent-1", "7")])
    assert [nonce for nonce, _ in tender.orders.start] == ["intent-2"]
    assert states(bench) == "qi"


def test_waiting_tender_is_woken_by_demand(bench: Bench) -> None:
    site(bench)
    tender = Tender(bench)
    bench.wait(2_000)
    assert tender.tell(wait=20_000) is None
    bench.submit(shape(1))
    woken = [effect for effect in bench.effects if isinstance(effect, x.SiteOrders)]
    assert [nonce for nonce, _ in woken[0].start] == ["intent-1"]


def test_tender_that_asks_twice_in_one_step_is_answered_twice(bench: Bench) -> None:
    site(bench)
    Tender(bench)
    asked = [e.SiteReport(0, "c1", "t1") for _ in range(2)]
    heard = bench.step(*asked)
    assert [effect.key for effect in heard if isinstance(effect, x.SiteOrders)] == [event.key for event in asked]


def test_refusal_makes_a_site_wait_twice_as_long_each_time(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    tender.tell(refused=[("intent-1", "too many jobs"), ("intent-2", "too many jobs")])
    bench.wait(10_000)
    assert states(bench) == ""
    bench.wait(6_000)
    assert states(bench) == "ii"
    nonces = [nonce for nonce, _ in tender.tell().start]
    tender.tell(refused=[(nonce, "still") for nonce in nonces])
    bench.wait(20_000)
    assert states(bench) == ""  # the site waits twice as long


# --- pilots and their jobs ------------------------------------------------------------------------------------------


def test_pilot_may_enrol_before_its_submission_is_reported(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tender.submit("intent-1")
    tender.begin("intent-1")
    assert states(bench) == "r"
    tender.tell(accepted=[("intent-1", "job-intent-1")])
    assert states(bench) == "r" and bench.core.state.intents[1].batch_id == "job-intent-1"


def test_job_of_a_pilot_that_left_counts_until_a_listing_lacks_it(bench: Bench) -> None:
    """The job counts until a listing begun after the goodbye lacks it; the core asks for one at once if it lacks
    room."""
    site(bench, pilots=1)
    bag(bench, shape(3))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    bench.take(pilot, left=HOUR)
    bench.wait(60_000)
    tender.tell()
    tender.list()
    before = tender.now
    bench.wait(10_000)
    bench.exchange(pilot, bye="idle")
    bench.wait(1_000)
    assert states(bench) == "l" and not tender.tell().look  # the job is about to end
    bench.wait(1_000)
    orders = tender.tell()
    assert orders.look and not orders.start
    tender.tell(listed=[], began=before)  # begun before the goodbye
    assert states(bench) == "l"
    bench.wait(10_000)
    assert tender.tell().look
    tender.list()  # the job is still there
    assert states(bench) == "l"
    tender.jobs.clear()
    bench.wait(10_000)
    assert tender.tell().look
    tender.list()
    assert [intent.nonce for intent in bench.core.state.intents.values()] == ["intent-2"]


def test_a_job_that_stays_after_its_pilot_has_left_is_stopped(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    bench.exchange(pilot, bye="idle")
    bench.wait(LANDING)
    tender.tell()
    tender.list()
    assert states(bench) in ("s", "si") and ("intent-1", "job-intent-1") in tender.tell().stop
    tender.tell(stopped=[("intent-1", "job-intent-1")])
    assert "s" not in states(bench)


def test_a_job_whose_pilot_has_left_is_over_with_its_wall_time(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    bench.exchange(tender.begin("intent-1"), bye="idle")
    assert states(bench)[0] == "l"
    bench.wait(HOUR + 100_000)
    assert "l" not in states(bench)


def test_new_tender_lists_at_once_the_jobs_of_pilots_that_left(bench: Bench) -> None:
    site(bench, pilots=1)
    bag(bench, shape(3))
    old = Tender(bench)
    old.work()
    bench.exchange(old.begin("intent-1"), bye="idle")
    assert states(bench) == "l"
    new = Tender(bench, name="t2")
    assert new.orders.look
    bench.wait(1_000)
    assert not new.list().look and states(bench) == "", "nothing of it is there"
    bench.wait(1_000)
    assert states(bench) == "i"


def test_job_of_a_pilot_reported_gone_counts_until_a_listing_lacks_it(bench: Bench) -> None:
    site(bench, pilots=1)
    bag(bench, shape(5, expect=HOUR))
    tender = Tender(bench)
    bench.wait(LANDING)
    tender.tell()
    tender.list()
    tender.work()
    pilot = tender.begin("intent-1")
    bench.take(pilot, left=HOUR)
    bench.step(e.Gone(0, pilot))
    bench.wait(2_000)
    assert states(bench) == "l", "its job is there, and counts"
    del tender.jobs["intent-1"]
    tender.tell()
    tender.list()
    bench.wait(2_000)
    assert states(bench) == "i"


def test_a_pilot_of_an_intent_that_is_over_gets_nothing(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2))
    tender = Tender(bench)
    tender.work()
    bench.step(e.Cancel(0, number, None))
    bench.wait(1_000)
    tender.work()
    bag(bench, shape(1))
    tender.jobs["intent-1"] = ("job", False)
    answer = bench.exchange(tender.begin("intent-1"), want=1)
    assert answer is not None and answer.stop == "drain" and not answer.grants


# --- tenders come, go and crash -------------------------------------------------------------------------------------


def test_new_tender_orders_no_earlier_intent_before_two_listings_lack_it(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    old = Tender(bench)
    old.submit("intent-1")  # and dies before it reports that
    new = Tender(bench, name="t2")
    new.jobs = old.jobs
    assert new.orders.start == [] and not new.orders.look
    new.list()  # too early: a submission may be under way
    assert new.orders.start == []
    bench.wait(LANDING)
    assert new.tell().look
    new.list()
    assert states(bench) == "qi" and new.orders.start == [] and not new.orders.look  # a listing may be short
    bench.wait(APART)
    assert new.tell().look
    new.list()
    assert [nonce for nonce, _ in new.orders.start] == ["intent-2"]


def test_intent_made_since_the_tender_said_hello_is_ordered_at_once(bench: Bench) -> None:
    site(bench)
    tender = Tender(bench)
    bag(bench, shape(1))
    bench.wait(1_000)
    assert [nonce for nonce, _ in tender.tell().start] == ["intent-1"]


def test_restarted_server_orders_nothing_before_a_listing(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    tender.submit("intent-1")
    bench.restart(bench.snapshot())
    assert tender.tell().start == []
    bench.wait(LANDING)
    tender.tell()
    tender.list_twice()
    assert states(bench) == "qi" and [nonce for nonce, _ in tender.orders.start] == ["intent-2"]


def test_replaced_tender_is_told_that_it_is_over(bench: Bench) -> None:
    site(bench)
    old = Tender(bench)
    Tender(bench, name="t2")
    assert old.tell().over


def test_last_of_two_tenders_in_one_step_gets_the_orders(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    first, last = bench.step(e.SiteReport(0, "c1", "t1", hello=True), e.SiteReport(0, "c1", "t2", hello=True))
    assert (first.over, first.start) == (True, [])
    assert not last.over and len(last.start) == 2


# --- listings and stops ---------------------------------------------------------------------------------------------


def test_unknown_and_unwanted_jobs_are_stopped(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    bench.step(e.Cancel(0, number, None))
    bench.wait(1_000)
    tender.work()
    tender.jobs = {"intent-1": ("job-1", True), "intent-99": ("job-99", False)}
    tender.list()
    assert sorted(tender.orders.stop) == [("intent-1", "job-1"), ("intent-99", "job-99")]
    tender.jobs.clear()
    tender.list()
    assert tender.orders.stop == []


def test_a_second_job_under_one_nonce_is_stopped(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    tender.tell(listed=[e.ListedJob("intent-1", "job-intent-1", False), e.ListedJob("intent-1", "other", False)],
                began=tender.now)
    assert tender.orders.stop == [("intent-1", "other")] and states(bench) == "q"


def test_job_missing_from_listings_begun_after_its_submission_is_gone(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    before = tender.now
    bench.now += 500
    tender.work()
    tender.jobs.clear()
    tender.tell(listed=[], began=before)
    assert states(bench) == "q"  # that listing began too early to tell
    bench.wait(500)
    tender.tell()
    tender.list_twice()
    assert states(bench) == ""
    bench.wait(20_000)
    assert states(bench) == "i"  # another pilot is still wanted


def test_a_pilot_missing_from_a_listing_is_gone_unless_it_spoke_since(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(1, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    (attempt, _), = bench.take(pilot, left=HOUR)
    bench.exchange(pilot, started=[attempt])
    tender.jobs.clear()
    tender.tell()
    bench.wait(1_000)
    bench.exchange(pilot)
    tender.list()
    assert bench.tasks(number) == "a" and states(bench) == "r"
    bench.wait(1_000)
    tender.tell()
    tender.list_twice()
    assert bench.tasks(number) == "r" and bench.attempt(attempt) == "lost"
    bench.wait(1_000)
    assert states(bench) == "i"


@pytest.mark.parametrize("runs", [False, True])
def test_single_short_listing_ends_no_intent(bench: Bench, runs: bool) -> None:
    """A queued job and a running one stay as they are, and are not submitted again."""
    site(bench, pilots=3)
    number = bag(bench, shape(3, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    bench.wait(LANDING)
    tender.tell()
    tender.list()
    if runs:
        bench.take(tender.begin("intent-1"), want=1, left=HOUR)
    before = states(bench)
    bench.wait(1_000)
    tender.tell()
    tender.tell(listed=[], began=tender.now)  # the batch system listed nothing
    assert states(bench) == before and bench.core.state.sites["c1"].session.retry_after <= bench.now
    assert tender.tell(wait=20_000) is None
    seen = bench.wait(APART)  # the core asks for another listing soon
    assert [each.look for each in seen if isinstance(each, x.SiteOrders)] == [True]
    tender.tell()
    tender.list()
    bench.wait(APART)
    tender.tell()
    tender.tell(listed=[], began=tender.now)  # a short listing long after counts as the first
    assert states(bench) == before and bench.tasks(number).count("a") == runs


def test_stopping_intent_counts_until_two_listings_lack_it(bench: Bench) -> None:
    site(bench, pilots=1)
    number = bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    bench.step(e.Cancel(0, number, None))
    bench.wait(2_000)
    assert states(bench) == "s"
    tender.tell()
    tender.tell(listed=[], began=tender.now)
    assert states(bench) == "s"
    bench.wait(APART)
    tender.tell()
    tender.tell(listed=[], began=tender.now)
    assert states(bench) == ""


def test_many_missing_jobs_end_in_two_facts(bench: Bench) -> None:
    site(bench, pilots=50)
    bag(bench, shape(50, expect=HOUR))
    tender = Tender(bench)
    for _ in range(9):
        tender.work()
    for nonce in list(tender.jobs)[:10]:
        tender.begin(nonce)
    bench.wait(1_000)
    tender.jobs.clear()
    tender.tell()
    tender.list()
    bench.wait(APART)
    tender.tell()
    tender.list()
    ended = [fact for fact in bench.facts if isinstance(fact, IntentsEnded)]
    assert [len(fact.intents) for fact in ended] == [40, 10]


def test_requeued_job_is_stopped_and_its_tasks_are_charged_with_no_death(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(1, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    (attempt, _), = bench.take(pilot, left=HOUR)
    bench.exchange(pilot, started=[attempt])
    tender.jobs["intent-1"] = ("job-intent-1", False)
    bench.wait(1_000)
    tender.tell()
    tender.list()
    assert tender.orders.stop == [("intent-1", "job-intent-1")]
    assert bench.tasks(number) == "r" and not bench.core.state.bags[number].tasks.deaths[0]


def test_job_that_cannot_be_stopped_does_not_hold_up_other_stops(bench: Bench) -> None:
    site(bench, flight=2)
    number = bag(bench, shape(5))
    tender = Tender(bench)
    tender.work()
    bench.step(e.Cancel(0, number, None))
    bench.wait(1_000)
    first = tender.tell(wait=1_000).stop
    assert len(first) == 2
    orders = tender.tell(unstopped=first, wait=1_000)
    assert not set(orders.stop) & set(first), "others have their turn"
    third = tender.tell(stopped=orders.stop, wait=1_000).stop
    assert third[-1] in first and third[0] not in first


# --- reports that make no sense, or come twice ----------------------------------------------------------------------


def test_stops_and_refusals_reported_twice_in_one_request_count_once(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2))
    tender = Tender(bench)
    tender.tell(accepted=[("intent-1", "7")])
    bench.do(e.Cancel(0, number, None))
    bench.wait(1_000)
    assert states(bench) == "ss"
    tender.tell(stopped=[("intent-1", "7"), ("intent-1", "")], refused=[("intent-2", "no"), ("intent-2", "no")])
    assert states(bench) == ""


def test_refusal_reported_twice_in_one_request_counts_once(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    tender.tell(refused=[("intent-1", "full"), ("intent-1", "full")])
    assert states(bench) == "i"


def test_stop_reported_twice_in_one_request_counts_once(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2))
    tender = Tender(bench)
    tender.work()
    tender.begin("intent-1")
    bench.do(e.Cancel(0, number, None))
    bench.wait(1_000)
    tender.tell(stopped=[("intent-2", "job-intent-2"), ("intent-2", "job-intent-2"), ("intent-2", "")])
    assert states(bench) == "r"


def test_pilot_reported_stopped_twice_in_one_request_is_lost_once(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    bench.do(e.Cancel(0, number, None))
    bench.wait(1_000)
    assert states(bench) == "s"
    tender.begin("intent-1")  # the job started before it could be stopped
    tender.tell(stopped=[("intent-1", "job-intent-1"), ("intent-1", "job-intent-1")])
    assert states(bench) == ""


@pytest.mark.parametrize("running", [(False, False), (True, False), (False, True)])
def test_job_listed_twice_breaks_no_promise(bench: Bench, running: tuple[bool, bool]) -> None:
    site(bench)
    bag(bench, shape(1, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    assert bench.take(pilot)
    bench.wait(1)
    tender.tell()
    bench.wait(1)
    tender.tell(listed=[e.ListedJob("intent-1", "job-intent-1", each) for each in running], began=tender.now)


def test_foreign_jobs_are_left_alone(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    bench.wait(LANDING)
    foreign = [e.ListedJob(f"thesis-{n}", str(n), True) for n in range(3)]
    ours = [e.ListedJob("intent-1", "job-intent-1", False), e.ListedJob("intent-77", "77", True)]
    tender.tell(listed=foreign + ours, began=tender.now)
    assert tender.orders.stop == [("intent-77", "77")]


def test_listing_from_the_future_counts_as_begun_now(bench: Bench) -> None:
    """The core orders no intent again that an earlier tender may have submitted a moment ago."""
    site(bench)
    bag(bench, shape(2))
    Tender(bench)
    tender = Tender(bench, name="t2")
    tender.tell(listed=[], began=1 << 62)
    assert tender.orders.start == []
