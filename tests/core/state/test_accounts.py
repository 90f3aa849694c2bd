"""Accounts: budgets of bags and sites, allowances of owners, disks, balances, and other jobs of the user."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import GONE_SILENT, HOUR, Bench, shape
from tests.core.provision.tender import ONE, Tender, site, states
from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import COUNTS, COUNTS_NOT, Limits, Shape
from windfall.core.read.explain import explain
from windfall.core.state.accounts import month, next_month

MINUTE = 60_000
GRACE = 1_000  # of `shape`
DAY = 86_400_000


def submit(bench: Bench, *targets: Any, budget: int = 0, owner: str = "ann", **more: Any) -> Any:
    event = e.Submit(0, owner, "bag", "", b"spec", list(targets), False, "fcfs", False, budget=budget, **more)
    return bench.do(event)


def why(bench: Bench, bag: int) -> Any:
    """Return what `explain` says of the last task of the bag."""
    return explain(bench.core.state, bench.now, bag, bench.core.state.bags[bag].size - 1)


# --- the budget of a bag --------------------------------------------------------------------------------------------


def test_a_budget_pays_for_worst_cases_and_takes_back_what_was_not_used(bench: Bench) -> None:
    bag = int(submit(bench, shape(10, limit=MINUTE, cores=2), budget=4 * (MINUTE + GRACE)).value)
    pilot = bench.pilot(cores=16)
    held = bench.take(pilot)
    assert len(held) == 2, "two cores each, for a minute and its grace"
    assert bench.core.state.bags[bag].pledged == 4 * (MINUTE + GRACE)
    assert bench.exchange(pilot, want=10) is not None  # an answer without tasks
    bench.report(pilot, held[0][0], wall=1_000)
    state = bench.core.state.bags[bag]
    assert (state.spent, state.pledged) == (2_000, 2 * (MINUTE + GRACE))
    assert bench.take(pilot) == [], "what came back does not pay for another one"
    says = why(bench, bag)["summary"]
    assert "the budget of bag 1 is used up" in says and "reserved by 1 attempt" in says


def test_returned_pledge_wakes_a_waiting_pilot(bench: Bench) -> None:
    bag = int(submit(bench, shape(3, limit=MINUTE), budget=2 * (MINUTE + GRACE)).value)
    first, second = bench.pilot(), bench.pilot(cores=2)
    (attempt, _), = bench.take(first, want=1)
    assert len(bench.take(second)) == 1
    assert bench.exchange(second, want=5, wait=20_000) is None, "parked"
    bench.report(first, attempt, wall=0)
    assert bench.tasks(bag).count("a") == 2


def test_an_attempt_that_may_still_run_keeps_its_pledge_until_its_site_says_it_is_dead(bench: Bench) -> None:
    bag = int(submit(bench, shape(2, limit=MINUTE), budget=MINUTE + GRACE + 5_000).value)
    pilot = bench.pilot()
    (attempt, _), = bench.take(pilot, want=1)
    bench.exchange(pilot, started=[attempt])
    bench.wait(3 * GONE_SILENT)
    assert bench.attempt(attempt) == "lost" and bench.take(bench.pilot()) == []
    bench.step(e.Gone(0, pilot))
    state = bench.core.state.bags[bag]
    assert state.pledged == MINUTE + GRACE, "it had all its time"


def test_early_death_of_a_pilot_returns_the_unused_pledge(bench: Bench) -> None:
    submit(bench, shape(1, limit=MINUTE), budget=MINUTE + GRACE + 5_000)
    pilot = bench.pilot()
    bench.take(pilot, want=1)
    bench.now += 4_000
    bench.step(e.Gone(0, pilot))
    assert len(bench.take(bench.pilot())) == 1


def test_a_budget_needs_limits_and_is_raised_but_not_below_what_is_used(bench: Bench) -> None:
    refused = submit(bench, shape(1), budget=HOUR)
    assert isinstance(refused, x.Refuse) and "time limit" in refused.message
    bag = int(submit(bench, shape(3, limit=MINUTE), budget=MINUTE + GRACE).value)
    pilot = bench.pilot(cores=4)
    assert len(bench.take(pilot)) == 1
    assert isinstance(bench.do(e.SetBudget(0, bag, MINUTE)), x.Refuse)
    bench.do(e.SetBudget(0, bag, HOUR, "ann"))
    assert len(bench.take(pilot)) == 2
    bench.restart()
    assert bench.core.state.bags[bag].budget == HOUR


def test_bag_gets_no_more_pilots_than_its_budget_pays_for(bench: Bench) -> None:
    site(bench)
    submit(bench, shape(10, limit=MINUTE), budget=3 * (MINUTE + GRACE))
    bench.wait(1_000)
    assert states(bench) == "iii"


# --- the budget of a site, its account, other jobs ------------------------------------------------------------------


def test_a_site_whose_budget_is_used_up_says_so(bench: Bench) -> None:
    site(bench, budget=2 * HOUR)
    bag = int(submit(bench, shape(5, limit=MINUTE)).value)
    bench.wait(1_000)
    assert states(bench) == "ii", "queued pilots reserve the worst case"
    said = why(bench, bag)["sites"][1]["clauses"][0]["says"]
    assert said == "the budget of c1 is used up: 0 of 2 core-hours used, 2 reserved by 2 queued pilots"


def test_jobs_of_the_user_leave_less_room_for_pilots(bench: Bench) -> None:
    site(bench, jobs=5)
    bag = int(submit(bench, shape(9, limit=MINUTE)).value)
    bench.wait(1_000)
    assert states(bench) == "", "nobody has said yet what else is there"
    tender = Tender(bench)
    tender.tell(info=e.SiteInfo(-1, -1, others=3))
    bench.wait(1_000)
    assert states(bench) == "ii"
    assert "3 other jobs there beside 2 pilots" in why(bench, bag)["summary"]
    tender.tell(info=e.SiteInfo(-1, -1, others=0))
    bench.wait(1_000)
    assert states(bench) == "iiiii"


def test_unknown_balance_of_an_account_is_not_unlimited(bench: Bench) -> None:
    site(bench, account=True)
    submit(bench, shape(9, limit=MINUTE))
    tender = Tender(bench)
    tender.tell(info=e.SiteInfo(-1, -1, others=0, balance=e.NOT_SAID))
    bench.wait(1_000)
    assert states(bench) == "", "nothing was ever known"
    tender.tell(info=e.SiteInfo(-1, -1, others=0, balance=3 * HOUR))
    bench.wait(1_000)
    assert states(bench) == "iii"
    tender.tell(info=e.SiteInfo(-1, -1, others=0, balance=e.NOT_SAID))
    bench.wait(1_000)
    assert states(bench) == "iii", "what was known stands"


def test_budget_or_account_of_a_site_needs_wall_times(bench: Bench) -> None:
    for more in ({"budget": HOUR}, {"account": True}):
        limits = Limits([Shape(1)], **more)
        assert bench.do(e.AddSite(0, "c1", "ann", "slurm", limits=limits)).error == "bad-input"


def test_explain_does_not_take_an_unknown_balance_for_zero(bench: Bench) -> None:
    site(bench, account=True)
    bag = bench.submit(shape(2, limit=HOUR))
    assert "is not known" in why(bench, bag)["summary"]
    tender = Tender(bench)
    tender.tell(info=e.SiteInfo(-1, -1, others=0, balance=e.NOT_SAID))
    assert "is not known" in why(bench, bag)["summary"] and "0 core-hours" not in why(bench, bag)["summary"]
    tender.tell()
    tender.tell(info=e.SiteInfo(-1, -1, others=0, balance=0))
    assert "the account there has 0 core-hours left" in why(bench, bag)["summary"]
    tender.tell(info=e.SiteInfo(-1, -1, others=0, balance=e.NO_END))
    assert "account" not in why(bench, bag)["summary"]


def test_reservations_never_exceed_the_account(bench: Bench) -> None:
    site(bench, account=True)
    bag = int(submit(bench, shape(9, limit=MINUTE)).value)
    tender = Tender(bench)
    tender.tell(info=e.SiteInfo(-1, -1, others=0, balance=3 * HOUR + MINUTE))
    bench.wait(1_000)
    assert states(bench) == "iii"
    assert "the account there has 3.017 core-hours left" in why(bench, bag)["summary"]
    tender.tell(info=e.SiteInfo(-1, -1, others=0, balance=-1))
    bench.wait(1_000)
    assert states(bench) == "i" * 9, "where nobody tells, nothing is known to be at an end"


# --- allowances -----------------------------------------------------------------------------------------------------


def shared(bench: Bench, name: str = "portal", **limits: Any) -> None:
    bench.step(e.AddSite(0, name, "ann", "local", ["bob"], Limits(**limits)))


def test_owner_without_allowance_left_uses_only_sites_that_do_not_count(bench: Bench) -> None:
    shared(bench)
    shared(bench, "free", counts=COUNTS_NOT)
    bench.do(e.SetAllowance(0, "bob", MINUTE + GRACE))
    bag = int(submit(bench, shape(4, limit=MINUTE), owner="bob").value)
    there, free = bench.pilot(cores=4, site="portal"), bench.pilot(cores=2, site="free")
    (attempt, _), = bench.take(there)
    assert bench.take(there) == []
    assert len(bench.take(free, want=2)) == 2
    bench.report(there, attempt, wall=MINUTE)
    assert bench.core.state.usage == {("bob", month(bench.now)): MINUTE}
    clauses = [c for s in why(bench, bag)["sites"] for c in s["clauses"] if c["clause"] == "allowance"]
    assert "this month's allowance is used up" in clauses[0]["says"]
    bench.restart()
    assert bench.core.state.usage == {("bob", month(bench.now)): MINUTE}


def test_ones_own_sites_are_free_unless_they_say_otherwise(bench: Bench) -> None:
    bench.do(e.SetAllowance(0, "*", 0))
    submit(bench, shape(2, limit=MINUTE))
    assert len(bench.take(bench.pilot(), want=1)) == 1
    shared(bench, "dear", counts=COUNTS)
    assert bench.take(bench.pilot(site="dear"), want=1) == []


def test_a_new_month_brings_a_new_allowance(bench: Bench) -> None:
    shared(bench)
    bench.do(e.SetAllowance(0, "bob", MINUTE + GRACE))
    submit(bench, shape(2, limit=MINUTE, retries=0), owner="bob")
    pilot = bench.pilot(site="portal")
    (attempt, _), = bench.take(pilot, want=1)
    bench.report(pilot, attempt, wall=MINUTE)
    assert bench.take(pilot, want=1) == []
    bench.wait(next_month(bench.now) - bench.now + 1)
    pilot = bench.pilot(site="portal")
    assert len(bench.take(pilot, want=1)) == 1


def test_task_without_a_limit_is_paid_for_only_on_a_pilot_with_a_wall_time(bench: Bench) -> None:
    shared(bench)
    bench.do(e.SetAllowance(0, "bob", 100 * HOUR))
    submit(bench, shape(2), owner="bob")
    assert bench.take(bench.pilot(site="portal")) == []
    assert len(bench.take(bench.pilot(site="portal", left=HOUR), left=HOUR, want=1)) == 1


def test_usage_months_follow_the_calendar() -> None:
    assert month(0) == 0 and next_month(0) == 31 * DAY
    assert month(next_month(0) - 1) == 0 and month(next_month(0)) == 1
    assert next_month(59 * DAY) == (59 + 31) * DAY  # March 1970


# --- disk -----------------------------------------------------------------------------------------------------------


def test_a_disk_is_shared_by_all_pilots_of_a_site(bench: Bench) -> None:
    site(bench, disk=3 << 30)
    bag = int(submit(bench, shape(9, limit=MINUTE, disk=1 << 30)).value)
    bench.wait(1_000)
    assert states(bench) == "iii", "no more than could run there"
    tender = Tender(bench)
    tender.work()
    pilots = [tender.begin(f"intent-{n}") for n in (1, 2, 3)]
    held = [bench.take(pilot, left=HOUR) for pilot in pilots]
    assert [len(each) for each in held] == [1, 1, 1] and bench.core.state.sites["c1"].disk_reserved == 3 << 30
    other = bench.pilot(site="c1")
    assert bench.take(other) == []
    assert "its disk is taken" in str(why(bench, bag)["sites"])
    bench.report(pilots[0], held[0][0][0], wall=5)
    assert len(bench.take(other)) == 1, "what falls free is used at once"


# --- nodes and wall times -------------------------------------------------------------------------------------------


def test_a_task_of_several_nodes_queues_at_every_site_and_runs_once(bench: Bench) -> None:
    pair = Shape(4, 4 << 30, 0, 1 << 40, HOUR, 2)
    site(bench, shapes=[ONE, pair])
    site(bench, "c2", shapes=[Shape(4, 4 << 30, 0, 1 << 40, HOUR, 3)])
    bag = int(submit(bench, shape(1, limit=MINUTE, nodes=2, cores=2)).value)
    bench.wait(1_000)
    assert [i.shape.nodes for i in bench.core.state.intents.values()] == [2, 3]
    assert bench.core.state.sites["c1"].core_ms_reserved == 8 * HOUR
    here, there = Tender(bench, "c1"), Tender(bench, "c2")
    here.work()
    there.work()
    there.jobs["intent-2"] = ("job-intent-2", True)
    pilot = bench.pilot(nonce="intent-2", site="c2", cores=4, left=HOUR, nodes=3)
    assert len(bench.take(pilot, left=HOUR)) == 1 and bench.tasks(bag) == "a"
    bench.wait(1_000)
    here.work()
    assert states(bench) == "" and here.jobs == {}, "the other one is stopped"


def test_pilots_of_several_nodes_are_for_nothing_else(bench: Bench) -> None:
    submit(bench, shape(1, limit=MINUTE), shape(1, limit=MINUTE, nodes=2, name="wide"))
    assert [task for _, task in bench.take(bench.pilot(cores=4, nodes=2))] == [1]
    assert [task for _, task in bench.take(bench.pilot(cores=4))] == [0]


@pytest.mark.parametrize(
    ("limit", "wall"), [(MINUTE, 30), (31 * MINUTE, 90), (5 * HOUR, 810), (20 * HOUR, 1440), (0, 1440)])
def test_a_wall_time_follows_what_tasks_need(bench: Bench, limit: int, wall: int) -> None:
    site(bench, shapes=[Shape(1, 4 << 30, 0, 1 << 40, 24 * HOUR, least=HOUR // 2)])
    submit(bench, shape(2, limit=limit))
    bench.wait(1_000)
    assert [i.shape.wall for i in bench.core.state.intents.values()] == [wall * MINUTE] * 2


def test_checkpointed_task_longer_than_any_wall_time_gets_the_longest(bench: Bench) -> None:
    shapes = [Shape(1, 4 << 30, 0, 1 << 40, wall * HOUR, spare=MINUTE) for wall in (1, 4)]
    site(bench, shapes=shapes)
    submit(bench, shape(1, limit=9 * HOUR, checkpoint=True), shape(1, limit=9 * HOUR, name="never"))
    bench.wait(1_000)
    assert [i.shape for i in bench.core.state.intents.values()] == shapes[1:]


def test_pilots_that_wait_for_an_allowance_are_asked_through_one_of_them(bench: Bench) -> None:
    bench.step(e.AddSite(0, "c1", "ann", "slurm", limits=Limits(counts=COUNTS)))
    bench.do(e.SetAllowance(0, "ann", 2 * (MINUTE + GRACE)))
    submit(bench, shape(9, limit=MINUTE))
    pilots = [bench.pilot(nonce=f"n-{n}", site="c1", left=HOUR) for n in range(5)]
    for pilot in pilots:
        bench.exchange(pilot, want=1, wait=20_000, left=HOUR)
    state = bench.core.state
    line = state.pilot_classes[state.pilots[pilots[0]].cls]
    assert sum(state.pilots[pilot].attempts_held for pilot in pilots) == 2 and list(line.waiting) == pilots[2:]
    assert line.no_match_at_version == state.version, "one was asked for all"
    bench.do(e.SetAllowance(0, "ann", 4 * (MINUTE + GRACE)))
    assert list(line.waiting) == pilots[4:], "there is something to be had again"


def test_allowance_of_one_owner_does_not_concern_others(bench: Bench) -> None:
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    bags = [bench.submit(shape(3, limit=MINUTE), owner=owner) for owner in ("ann", "bob")]
    bench.do(e.SetAllowance(0, "bob", HOUR))
    stinted = [[cls.has_allowance for cls in bench.core.state.bags[number].classes.values()] for number in bags]
    assert stinted == [[False], [True]]
    bench.take(bench.pilot(6))
    assert list(bench.core.state.pledged) == ["bob"]
    bench.restart(bench.snapshot())
    bench.do(e.SetAllowance(0, "*", HOUR))
    assert all(cls.has_allowance for cls in bench.core.state.classes.values())
    bench.do(e.SetAllowance(0, "*", -1))
    bench.do(e.SetAllowance(0, "bob", -1))
    assert not any(cls.has_allowance for cls in bench.core.state.classes.values())
