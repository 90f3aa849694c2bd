"""Pilots in batch systems: intents, orders and listings, budgets, and what each policy wants."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import GONE_SILENT, Bench, shape
from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import IntentsEnded, Limits, Shape
from windfall.core.messages.lifecycle import INTENT_STATES

HOUR = 3_600_000
ONE = Shape(1, 4 << 30, 0, 1 << 40, HOUR)
LANDING = 30_000
APART = 10_000  # between two listings that lack a job, until that is believed


class Tender:
    """Carries out orders at once, in a batch system that is a dict: nonce → (id, running)."""

    def __init__(self, bench: Bench, site: str = "c1", name: str = "t1") -> None:
        self.bench, self.site, self.name = bench, site, name
        self.jobs: dict[str, tuple[str, bool]] = {}
        self.seen = self.now = 0
        self.orders: Any = None
        self.tell(hello=True)

    def tell(self, **more: Any) -> Any:
        """The answer; None if parked."""
        self.orders = self.bench.do(e.SiteReport(0, self.site, self.name, seen=self.seen, **more))
        if self.orders is not None and not self.orders.over:
            self.seen, self.now = self.orders.number, self.orders.now
        return self.orders

    def work(self, **more: Any) -> None:
        """Ask, do, report, until nothing new comes."""
        orders = self.tell(**more)
        while orders is not None and (orders.start or orders.stop):
            more = {"accepted": [(nonce, self.submit(nonce)) for nonce, _ in orders.start],
                    "stopped": [(nonce, name) for nonce, name in orders.stop]}
            for nonce, _ in orders.stop:
                self.jobs.pop(nonce, None)
            orders = self.tell(wait=1_000, **more)

    def submit(self, nonce: str) -> str:
        assert nonce not in self.jobs
        self.jobs[nonce] = (f"job-{nonce}", False)
        return f"job-{nonce}"

    def list(self, **more: Any) -> Any:
        return self.tell(listed=[e.ListedJob(n, i, r) for n, (i, r) in self.jobs.items()], began=self.now, **more)

    def list_twice(self) -> Any:
        """A while apart: what both lack is gone."""
        self.list()
        self.bench.wait(APART)
        self.tell()
        return self.list()

    def begin(self, nonce: str, left: int = HOUR) -> int:
        """The job starts: its pilot enrols."""
        self.jobs[nonce] = (self.jobs[nonce][0], True)
        return self.bench.pilot(nonce=nonce, site=self.site, left=left)


def site(bench: Bench, name: str = "c1", **limits: Any) -> None:
    limits.setdefault("shapes", [ONE])
    bench.step(e.AddSite(0, name, "ann", "slurm", limits=Limits(**limits)))


def states(bench: Bench, name: str = "c1") -> str:
    """One letter an intent."""
    intents = [i for i in bench.core.state.intents.values() if i.site == name]
    return "".join(INTENT_STATES[i.state][0] for i in intents)


def bag(bench: Bench, *targets: Any, provision: str = "swarm", **options: int) -> int:
    event = e.Submit(0, "ann", "bag", "", b"spec", list(targets), False, "fcfs", False, b"", provision, options)
    number = int(bench.do(event).value)
    bench.wait(1_000)  # sites are provisioned once a second
    return number


# --- swarm -----------------------------------------------------------------------------------------------------------


def test_where_nothing_may_be_started_nothing_is(bench: Bench) -> None:
    bag(bench, shape(5))
    assert not bench.core.state.intents and bench.wait(HOUR) == []


def test_every_site_gets_a_slot_for_every_unstarted_task(bench: Bench) -> None:
    site(bench)
    site(bench, "c2", shapes=[Shape(4, 4 << 30, 0, 1 << 40, HOUR)])
    bag(bench, shape(6, limit=60_000))
    assert states(bench) == "iiiiii" and states(bench, "c2") == "ii"


def test_an_intent_is_committed_before_anything_is_ordered(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    assert [nonce for nonce, _ in tender.orders.start] == ["intent-1", "intent-2"]
    assert tender.orders.start[0][1] == ONE


def test_orders_are_repeated_until_acknowledged_but_wake_nobody(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    first = tender.orders.start
    tender.seen = 0  # the answer was lost
    assert tender.tell(wait=1_000).start == first
    assert tender.tell(wait=1_000) is None  # parked: it is working on them
    tender.tell(accepted=[("intent-1", "7")])
    assert [nonce for nonce, _ in tender.orders.start] == ["intent-2"]
    assert states(bench) == "qi"


def test_a_pilot_that_enrols_makes_its_intent_running_and_takes_a_task(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-2")
    assert states(bench) == "qr"
    assert [task for _, task in bench.take(pilot, left=HOUR)] == [0] and bench.tasks(number) == "ar"


def test_a_pilot_may_be_faster_than_the_word_of_its_submission(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tender.submit("intent-1")
    tender.begin("intent-1")
    assert states(bench) == "r"
    tender.tell(accepted=[("intent-1", "job-intent-1")])
    assert states(bench) == "r" and bench.core.state.intents[1].batch_id == "job-intent-1"


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


def test_when_the_bag_is_done_all_queued_are_stopped_a_few_at_a_time(bench: Bench) -> None:
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


def test_what_nobody_was_told_of_ends_without_a_word(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(4))
    bench.step(e.Cancel(0, number, None))
    bench.wait(1_000)
    assert not bench.core.state.intents


def test_after_a_failure_new_pilots_go_to_all_sites(bench: Bench) -> None:
    site(bench)
    site(bench, "c2")
    bag(bench, shape(1))
    here, there = Tender(bench), Tender(bench, "c2")
    here.work()
    there.work()
    pilot = here.begin("intent-1")
    (attempt, _), = bench.take(pilot, left=HOUR)
    bench.wait(1_000)
    there.work()
    assert (states(bench), states(bench, "c2")) == ("r", "")
    bench.report(pilot, attempt, "failed", "exit")
    bench.wait(1_000)
    assert states(bench) == "ri" and states(bench, "c2") == "i"


def test_after_a_duration_failure_a_shape_that_lasts_is_chosen(bench: Bench) -> None:
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


def test_share_and_delay_of_a_site(bench: Bench) -> None:
    site(bench, share=700)
    site(bench, "slow", delay=5_000)
    bag(bench, shape(10))
    assert states(bench) == "i" * 7 and states(bench, "slow") == ""
    bench.wait(5_000)
    assert states(bench, "slow") == "i" * 10


# --- limits and budget (P6 is checked after every step) --------------------------------------------------------------


def test_limits_on_pilots_and_on_queued_ones(bench: Bench) -> None:
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


def test_the_budget_is_reserved_at_worst_and_what_was_not_used_comes_back(bench: Bench) -> None:
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


def test_a_goodbye_is_not_the_end_of_the_job(bench: Bench) -> None:
    """It counts until a listing begun afterwards does not have it; where room is lacking that is asked for at once."""
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
    assert states(bench) == "l" and not tender.tell().look  # it is about to go
    bench.wait(1_000)
    orders = tender.tell()
    assert orders.look and not orders.start
    tender.tell(listed=[], began=before)  # begun before the goodbye
    assert states(bench) == "l"
    bench.wait(10_000)
    assert tender.tell().look
    tender.list()  # still there
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


def test_a_budget_needs_wall_times(bench: Bench) -> None:
    refused = bench.do(e.AddSite(0, "c1", "ann", "slurm", limits=Limits([Shape(1)], budget=HOUR)))
    assert isinstance(refused, x.Refuse) and refused.error == "bad-input"


def test_lowered_limits_stop_what_is_queued(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(5))
    Tender(bench).work()
    site(bench, pilots=2)
    bench.wait(1_000)
    assert states(bench) == "qqsss"


def test_a_refusal_is_back_pressure(bench: Bench) -> None:
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
    assert states(bench) == ""  # twice as long


def test_other_owners_sites_are_not_used(bench: Bench) -> None:
    bench.step(e.AddSite(0, "theirs", "bob", "slurm", limits=Limits([ONE])))
    bag(bench, shape(2))
    assert not bench.core.state.intents
    bench.step(e.AddSite(0, "theirs", "bob", "slurm", ["ann"]))
    bench.wait(1_000)
    assert states(bench, "theirs") == "ii"


# --- tenders come, go and crash --------------------------------------------------------------------------------------


def test_nothing_that_may_have_been_submitted_is_ordered_again_before_a_listing(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    old = Tender(bench)
    old.submit("intent-1")  # and dies before it says so
    new = Tender(bench, name="t2")
    new.jobs = old.jobs
    assert new.orders.start == [] and not new.orders.look
    new.list()  # too early: a submission may be on its way
    assert new.orders.start == []
    bench.wait(LANDING)
    assert new.tell().look
    new.list()
    assert states(bench) == "qi" and new.orders.start == [] and not new.orders.look  # a listing may be short
    bench.wait(APART)
    assert new.tell().look
    new.list()
    assert [nonce for nonce, _ in new.orders.start] == ["intent-2"]


def test_what_was_made_since_is_ordered_at_once(bench: Bench) -> None:
    site(bench)
    tender = Tender(bench)
    bag(bench, shape(1))
    bench.wait(1_000)
    assert [nonce for nonce, _ in tender.tell().start] == ["intent-1"]


def test_after_a_restart_of_the_server_a_listing_comes_first(bench: Bench) -> None:
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


def test_a_tender_that_was_replaced_is_told_so(bench: Bench) -> None:
    site(bench)
    old = Tender(bench)
    Tender(bench, name="t2")
    assert old.tell().over


def test_of_two_that_come_at_once_only_the_last_is_told_what_to_start(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    first, last = bench.step(e.SiteReport(0, "c1", "t1", hello=True), e.SiteReport(0, "c1", "t2", hello=True))
    assert (first.over, first.start) == (True, [])
    assert not last.over and len(last.start) == 2


def test_jobs_we_do_not_know_or_want_are_stopped(bench: Bench) -> None:
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


def test_missing_from_a_listing_begun_after_it_was_accepted_is_gone(bench: Bench) -> None:
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
    assert states(bench) == "i"  # and it is wanted still


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
def test_one_short_listing_is_not_believed(bench: Bench, runs: bool) -> None:
    """Of a job that waits, one that runs, one that is being stopped: none is forgotten, none is started again."""
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
    tender.tell(listed=[], began=tender.now)  # its batch system answered with nothing
    assert states(bench) == before and bench.core.state.sites["c1"].session.retry_after <= bench.now
    assert tender.tell(wait=20_000) is None
    seen = bench.wait(APART)  # another listing is asked for soon, though the last one has just come
    assert [each.look for each in seen if isinstance(each, x.SiteOrders)] == [True]
    tender.tell()
    tender.list()
    bench.wait(APART)
    tender.tell()
    tender.tell(listed=[], began=tender.now)  # a short one again, long after: that is the first
    assert states(bench) == before and bench.tasks(number).count("a") == runs


def test_one_that_is_being_stopped_counts_until_two_listings_lack_it(bench: Bench) -> None:
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


def test_many_that_are_missing_are_one_fact(bench: Bench) -> None:
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


def test_a_job_that_was_requeued_is_stopped_and_its_tasks_are_not_suspects(bench: Bench) -> None:
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


def test_a_parked_tender_is_woken_by_demand(bench: Bench) -> None:
    site(bench)
    tender = Tender(bench)
    bench.wait(2_000)
    assert tender.tell(wait=20_000) is None
    bench.submit(shape(1))
    woken = [effect for effect in bench.effects if isinstance(effect, x.SiteOrders)]
    assert [nonce for nonce, _ in woken[0].start] == ["intent-1"]


def test_a_dark_site_costs_nothing_but_waiting(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(1))
    Tender(bench).work()
    bench.wait(5 * HOUR)
    assert states(bench) == "q" and bench.tasks(number) == "r"


# --- msr and broker --------------------------------------------------------------------------------------------------


def test_msr_sends_a_pilot_per_task_everywhere_and_stops_the_rest(bench: Bench) -> None:
    site(bench)
    site(bench, "c2")
    number = bag(bench, shape(2, expect=HOUR), provision="msr")
    here, there = Tender(bench), Tender(bench, "c2")
    here.work()
    there.work()
    assert states(bench) == "qq" and states(bench, "c2") == "qq"
    second = next(i for i in bench.core.state.intents.values() if i.site == "c2" and i.task == 1)
    assert [task for _, task in bench.take(there.begin(second.nonce), left=HOUR)] == [1]
    bench.wait(1_000)
    assert states(bench) == "qs" and bench.tasks(number) == "ra"
    late = bench.exchange(here.begin("intent-3"), want=1, left=HOUR)  # it started before it was stopped
    assert late is not None and late.stop == "drain"


def test_msr_on_k_sites(bench: Bench) -> None:
    for name in ("c1", "c2", "c3"):
        site(bench, name)
        Tender(bench, name)
    bench.step(e.SiteReport(0, "c1", "t1", info=e.SiteInfo(0, 9)))
    bag(bench, shape(1), provision="msr", k=2)
    bench.wait(1_000)
    assert [states(bench, name) for name in ("c1", "c2", "c3")] == ["", "i", "i"]


def test_a_named_task_goes_to_its_own_pilots_only(bench: Bench) -> None:
    site(bench)
    named = bag(bench, shape(1, expect=HOUR), provision="msr")
    stranger = bench.pilot(left=HOUR)
    assert bench.take(stranger, left=HOUR) == []
    plain = bench.submit(shape(1, expect=HOUR))
    assert len(bench.take(stranger, left=HOUR)) == 1
    assert bench.tasks(plain) == "a" and bench.tasks(named) == "r"


@pytest.mark.parametrize(("own", "expected"), [(0, ["", "iiii"]), (1, ["i", "iii"])])
def test_the_broker_goes_by_what_the_sites_said(bench: Bench, own: int, expected: list[str]) -> None:
    for name, info in (("c1", e.SiteInfo(2, 0)), ("c2", e.SiteInfo(4, 0))):
        site(bench, name)
        Tender(bench, name).tell(info=info)
    bench.wait(1_000)
    bag(bench, shape(4), provision="broker", own=own)
    bench.wait(1_000)
    assert [states(bench, "c1"), states(bench, "c2")] == expected


def test_the_broker_takes_the_shortest_queue_where_all_have_one(bench: Bench) -> None:
    for name, info in (("c1", e.SiteInfo(9, 5)), ("c2", e.SiteInfo(0, 3))):
        site(bench, name)
        Tender(bench, name).tell(info=info)
    bag(bench, shape(2), provision="broker")
    bench.wait(1_000)
    assert [states(bench, "c1"), states(bench, "c2")] == ["", "ii"]


# --- demand -----------------------------------------------------------------------------------------------------------


def test_demand_sends_one_slot_per_task_within_what_each_site_has_room_for(bench: Bench) -> None:
    site(bench, pilots=3)
    site(bench, "c2", pilots=4)
    bag(bench, shape(5), provision="demand")
    assert len(states(bench)) + len(states(bench, "c2")) == 5


def test_demand_leaves_room_for_those_who_fit_nowhere_else(bench: Bench) -> None:
    site(bench, pilots=4, shapes=[Shape(1, 64 << 30, 0, 1 << 40, HOUR)])
    site(bench, "c2", pilots=4)
    events = [e.Submit(0, "ann", "bag", "", b"spec", [target], False, "fcfs", False, b"", "demand")
             for target in (shape(4), shape(4, memory=32 << 30))]
    bench.step(*events)
    bench.wait(1_000)
    assert states(bench, "c2") == "iiii" and states(bench) == "iiii"


def test_a_higher_priority_is_served_before_all_others(bench: Bench) -> None:
    site(bench, pilots=2, shapes=[Shape(8, 8 << 30, 0, 1 << 40, HOUR)])
    events = [e.Submit(0, "ann", "bag", "", b"spec", [target], False, "fcfs", False, b"", "demand")
              for target in (shape(16), shape(2, cores=8, priority=5))]
    bench.step(*events)
    bench.wait(1_000)
    tender = Tender(bench)
    tender.work()
    granted = [bench.take(tender.begin(nonce), left=HOUR) for nonce in list(tender.jobs)]
    assert len(granted) == 2 and bench.tasks(2) in ("rr", "ar", "aa")


def test_what_is_queued_is_not_moved(bench: Bench) -> None:
    site(bench, "c2")
    bag(bench, shape(3), provision="demand")
    site(bench)
    bench.wait(5_000)
    assert states(bench, "c2") == "iii" and states(bench) == ""


# --- and more ------------------------------------------------------------


def test_a_site_that_lost_its_shapes_is_left(bench: Bench) -> None:
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


def test_a_batch_takes_one_slot(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(10, batch=4))
    assert states(bench) == "iii"


def test_a_site_whose_pilots_never_come_is_tried_less_and_less_often(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tries = 0
    for _ in range(60):
        tender.work()
        bench.wait(30_000)
        tries += len(tender.jobs)
        tender.jobs.clear()  # it started, and died before it could say a word
        tender.tell()
        tender.list()
    assert 4 <= tries <= 8


def test_a_policy_that_does_not_exist_is_refused(bench: Bench) -> None:
    event = e.Submit(0, "ann", "bag", "", b"spec", [shape()], False, "fcfs", False, b"", "magic")
    assert bench.do(event).error == "bad-input"


@pytest.mark.parametrize("provision", ["swarm", "msr"])
def test_pilots_that_come_too_late_for_their_wall_time_are_not_sent_in_a_loop(bench: Bench, provision: str) -> None:
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


def test_what_is_said_twice_in_one_breath_happens_once(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2))
    tender = Tender(bench)
    tender.tell(accepted=[("intent-1", "7")])
    bench.do(e.Cancel(0, number, None))
    bench.wait(1_000)
    assert states(bench) == "ss"
    tender.tell(stopped=[("intent-1", "7"), ("intent-1", "")], refused=[("intent-2", "no"), ("intent-2", "no")])
    assert states(bench) == ""


def test_a_shape_that_the_budget_will_never_pay_for_is_not_waited_for(bench: Bench) -> None:
    big, small = Shape(4, 4 << 30, 0, 1 << 40, HOUR), Shape(1, 4 << 30, 0, 1 << 40, HOUR // 2)
    site(bench, shapes=[big, small], budget=2 * HOUR)
    bag(bench, shape(3))
    assert [i.shape for i in bench.core.state.intents.values()] == [small] * 3


def test_what_cannot_be_stopped_keeps_nothing_else_from_it(bench: Bench) -> None:
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


def test_those_that_left_before_a_restart_make_room_at_once(bench: Bench) -> None:
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


def test_who_asks_twice_in_one_step_is_answered_twice(bench: Bench) -> None:
    site(bench)
    Tender(bench)
    asked = [e.SiteReport(0, "c1", "t1") for _ in range(2)]
    heard = bench.step(*asked)
    assert [effect.key for effect in heard if isinstance(effect, x.SiteOrders)] == [event.key for event in asked]


def test_who_says_that_a_pilot_is_dead_does_not_speak_for_its_batch_system(bench: Bench) -> None:
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


@pytest.mark.parametrize("provision", ["swarm", "msr"])
def test_where_pilots_start_too_slowly_for_a_wall_time_the_next_gets_a_longer_one(bench: Bench, provision: str) -> None:
    short, long = (Shape(1, 4 << 30, 0, 1 << 40, wall) for wall in (120_000, HOUR))
    site(bench, shapes=[short, long], pilots=1)
    bag(bench, shape(1, limit=100_000), provision=provision)
    tender = Tender(bench)
    assert [each for _, each in tender.orders.start] == [short]
    tender.work()
    (nonce,) = tender.jobs
    pilot = tender.begin(nonce, left=90_000)  # half a minute to come up
    assert bench.take(pilot, left=90_000) == []
    bench.exchange(pilot, bye="idle")
    tender.jobs.clear()
    for _ in range(10):
        bench.wait(2_000)
        tender.list()
    assert [each for _, each in tender.orders.start] == [long]


def test_a_site_that_will_do_after_a_while_is_thought_of_though_nothing_happens(bench: Bench) -> None:
    site(bench)
    tender = Tender(bench)
    bench.submit(shape(3), policy={"sites": "Age > 600"})
    for minute in range(14):
        tender.work()
        assert (states(bench) == "qqq") == (minute > 11) or 10 <= minute <= 11
        bench.wait(60_000)
        tender.list()


def test_and_one_that_will_do_no_more_has_its_pilots_withdrawn(bench: Bench) -> None:
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
