"""Draining, sharing and removing sites: a drained site gets no new task or pilot, and running tasks finish."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import HOUR, Bench, shape
from tests.core.provision.tender import LANDING, ONE, Tender, bag, site, states
from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import Limits, Shape
from windfall.core.messages.lifecycle import DRAINING


def drain(bench: Bench, name: str = "c1", on: bool = True, **more: Any) -> Any:
    return bench.do(e.DrainSite(0, name, "ann", on, **more))


def remove(bench: Bench, name: str = "c1") -> Any:
    return bench.do(e.RemoveSite(0, name, "ann"))


def test_drained_site_gets_no_pilots_and_its_queued_ones_are_withdrawn(bench: Bench) -> None:
    site(bench)
    site(bench, "c2")
    bag(bench, shape(3))
    tender = Tender(bench)
    tender.work()
    assert states(bench) == "qqq"
    drain(bench)
    tender.work()
    assert states(bench) == "" and tender.jobs == {}
    bag(bench, shape(2))
    bench.wait(10_000)
    assert states(bench) == "" and states(bench, "c2") == "iiiii"


@pytest.mark.parametrize("provision", ["demand", "msr", "broker"])
def test_no_policy_sends_anything_to_a_drained_site(bench: Bench, provision: str) -> None:
    site(bench)
    site(bench, "c2")
    drain(bench)
    bag(bench, shape(3, limit=60_000), provision=provision)
    bench.wait(10_000)
    assert states(bench) == "" and len(states(bench, "c2")) == 3


def test_pilots_of_a_drained_site_finish_their_tasks_and_leave(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    ((attempt, task),) = bench.take(pilot, left=HOUR)
    assert drain(bench).value == 1
    assert bench.core.state.pilots[pilot].state == DRAINING
    answer = bench.exchange(pilot, want=5)
    assert answer is not None and answer.stop and not answer.grants
    bench.report(pilot, attempt)
    assert bench.task(number, task) == "succeeded" and bench.task(number, 1 - task) == "ready"


def test_pilot_that_enrols_at_a_drained_site_is_sent_home(bench: Bench) -> None:
    """One pilot was submitted before the site was drained, the other was started by hand."""
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    tender.work()
    drain(bench)
    late, by_hand = tender.begin("intent-2"), bench.pilot(site="c1")
    for pilot in (late, by_hand):
        assert bench.core.state.pilots[pilot].state == DRAINING
        assert not bench.exchange(pilot, want=5).grants  # type: ignore[union-attr]


def test_drain_now_stops_running_pilots(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(1, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    ((attempt, _),) = bench.take(pilot, left=HOUR)
    drain(bench, now=True)
    assert [nonce for nonce, _ in tender.tell().stop] == ["intent-1"]
    bench.report(pilot, attempt, "returned", "stop")
    bench.exchange(pilot, bye="stopped")
    tender.tell(stopped=[("intent-1", "job-intent-1")])
    assert states(bench) == "" and bench.task(number) == "ready"


def test_undrained_site_is_used_again(bench: Bench) -> None:
    site(bench)
    drain(bench)
    bag(bench, shape(2))
    assert states(bench) == ""
    drain(bench, on=False)
    bench.wait(2_000)
    assert states(bench) == "ii"
    drain(bench, on=False)  # no change, and no note in the history
    said = [(kind, says) for _, kind, says in bench.core.state.sites["c1"].history]
    assert said == [("drained", "drained by ann"), ("undrained", "in use again, by ann")]


@pytest.mark.parametrize("snapshot", [True, False])
def test_drained_and_removed_sites_stay_so_after_a_restart(bench: Bench, snapshot: bool) -> None:
    site(bench)
    site(bench, "c2")
    drain(bench)
    remove(bench, "c2")
    bench.restart(bench.snapshot() if snapshot else None)
    bag(bench, shape(2))
    bench.wait(10_000)
    assert not bench.core.state.intents
    drain(bench, on=False)
    bench.wait(2_000)
    assert states(bench) == "ii" and states(bench, "c2") == ""


def test_site_with_pilots_is_not_removed(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    refused = remove(bench)
    assert isinstance(refused, x.Refuse) and refused.error == "conflict" and "1 pilots" in refused.message
    drain(bench)
    tender.work()
    assert isinstance(remove(bench), x.Done)
    assert drain(bench).error == remove(bench).error == "not-found"


def test_a_removed_site_lets_nobody_in_and_comes_back_with_what_it_used(bench: Bench) -> None:
    site(bench, budget=10 * HOUR)
    bag(bench, shape(1, expect=HOUR))
    bench.step(e.IssueToken(0, "t", b"h" * 32, "enrol", "ann", "c1", bench.now + HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    bench.wait(LANDING)
    bench.exchange(pilot, bye="idle")
    drain(bench)
    del tender.jobs["intent-1"]
    tender.tell()
    tender.list()
    used = bench.core.state.sites["c1"].core_ms_used
    assert isinstance(remove(bench), x.Done) and used > 0
    assert "t" not in bench.core.state.token_ids and bench.pilot(site="c1")
    bench.step(e.AddSite(0, "c1", "ann", "slurm", limits=Limits([ONE], budget=10 * HOUR)))
    again = bench.core.state.sites["c1"]
    assert (again.removed, again.drained, again.core_ms_used) == (False, False, used)


def test_limits_sent_late_do_not_bring_a_removed_site_back(bench: Bench) -> None:
    site(bench)
    remove(bench)
    bench.step(e.AddSite(0, "c1", "ann", "slurm", limits=Limits()))
    assert bench.core.state.sites["c1"].removed
    bench.step(e.AddSite(0, "c1", "ann", "slurm"))
    assert not bench.core.state.sites["c1"].removed


def test_site_is_drained_and_removed_by_its_owner_only(bench: Bench) -> None:
    site(bench)
    for event in (e.DrainSite(0, "c1", "bob", True), e.RemoveSite(0, "c1", "bob"), e.DrainSite(0, "c9", "ann", True)):
        assert bench.do(event).error == "not-found"


def test_explain_names_a_drained_site(bench: Bench) -> None:
    from windfall.core.read.explain import explain

    site(bench)
    drain(bench)
    number = bag(bench, shape(1))
    said = {each["site"]: each["clauses"][0] for each in explain(bench.core.state, bench.now, number)["sites"]}
    assert said["c1"]["clause"] == "drained" and "windfall site undrain c1" in said["c1"]["says"]
    drain(bench, on=False)


def test_a_shared_site_takes_the_others_tasks_and_its_history_says_who_did_it(bench: Bench) -> None:
    pilot = bench.pilot()
    bag = bench.submit(owner="bob")
    assert bench.take(pilot) == []
    bench.do(e.ShareSite(0, "here", ["bob", "ann"], [], "root"))
    site = bench.core.state.sites["here"]
    assert site.shared == ["bob"] and [kind for _, kind, _ in site.history] == ["shared"]
    assert "bob" in site.history[0][2] and "root" in site.history[0][2]
    assert len(bench.take(pilot)) == bench.core.state.bags[bag].size
    bench.do(e.ShareSite(0, "here", [], ["bob"], "root"))
    bench.submit(owner="bob")
    assert bench.take(pilot) == [] and len(site.history) == 2
    assert isinstance(bench.do(e.ShareSite(0, "none", ["bob"], [], "root")), x.Refuse)


@pytest.mark.parametrize("limits", [
    {"pilots": -1}, {"queued": -1}, {"flight": 0}, {"flight": -1}, {"share": -1}, {"share": 1001}, {"delay": -1},
    {"budget": -1}, {"pilots": 1 << 63}, {"budget": 1 << 64}, {"shapes": [Shape(0)]}, {"shapes": [Shape(-1)]},
    {"shapes": [Shape(1, -1)]}, {"shapes": [Shape(1, 0, -1)]}, {"shapes": [Shape(1, 0, 0, -1)]},
    {"shapes": [Shape(1, 0, 0, 0, -1)]}, {"shapes": [Shape(1 << 62, 0, 0, 0, 1 << 62)]},
    {"shapes": [Shape(1 << 20, 0, 0, 0, 1 << 31)]}, {"shapes": [Shape(1 << 19, 0, 0, 0, HOUR, 4)]},
    {"shapes": [Shape(1, 0, 0, 0, HOUR + n) for n in range(65)]}, {"shapes": [Shape(1, nodes=0)]},
], ids=str)  # fmt: skip
def test_meaningless_limits_are_refused(bench: Bench, limits: dict[str, Any]) -> None:
    site(bench)
    bag(bench, shape(3))
    limits.setdefault("shapes", [ONE])
    answer = bench.do(e.AddSite(0, "c1", "ann", "slurm", limits=Limits(**limits)))
    assert answer.error == "bad-input" and "c1" in answer.message
    assert states(bench) == "iii"
