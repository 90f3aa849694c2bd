"""Expressions: `requirements`, `rank` and `sites` decide which hosts get a bag's tasks, and in which order."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.decide.grant import order
from windfall.core.decide.grant.host_orders import MINUTE, HostOrders
from windfall.core.decide.grant.order import looked_at
from windfall.core.expressions import attributes, classads
from windfall.core.messages import events as e, facts as f
from windfall.core.read.explain import explain

GB = 1_000_000_000


@pytest.fixture
def b() -> Bench:
    return Bench()


def bag_of(b: Bench, pilot: int, want: int = 1) -> list[int]:
    """Return the bag of each task granted to the pilot; nothing if its request waits."""
    answer = b.exchange(pilot, want=want, wait=1)
    return [] if answer is None else [group.bag for _, groups in answer.grants for group in groups for _ in group.tasks]


def clauses(b: Bench, bag: int) -> dict[str, tuple[bool, str]]:
    found = explain(b.core.state, b.now, bag)["sites"][0]["clauses"]
    return {each["clause"]: (each["holds"], each["says"]) for each in found}


def set_policy(b: Bench, bag: int, **policy: str) -> Any:
    return b.do(e.SetPolicy(0, bag, policy, "ann"))


# --- requirements ---------------------------------------------------------------------------------------------------


def test_tasks_are_granted_to_matching_hosts_only(b: Bench) -> None:
    bag = b.submit(shape(5), policy={"requirements": 'Host.Memory >= 8000 && regexp("^big", Host.Name)'})
    small, large = b.pilot(memory=4 * GB, host="small"), b.pilot(memory=16 * GB, host="big1")
    assert bag_of(b, small) == []
    assert bag_of(b, large) == [bag]
    b.exchange(small, bye="idle")
    assert clauses(b, bag)["requirements"] == (True, "it matches")


@pytest.mark.parametrize(("text", "says"), [
    ("Host.Cores > 1 && Host.Memory > 8000", "Host.Cores > 1 is false: Host.Cores is 1"),
    ("Host.ErrorRate < 0.1", "Host.ErrorRate < 0.1 is undefined: Host.ErrorRate is not known there"),
    ("Host.Memory / 0 > 1", "Host.Memory / 0 > 1 is an error: Host.Memory is 4294"),
    ("Host.Owner != Bag.Owner", 'Host.Owner != Bag.Owner is false: Host.Owner is "ann", Bag.Owner is "ann"'),
    ("(undefined)", "(undefined) is undefined"),
    ("Tail", "Tail is false: Bag.Tail is false"),
])  # fmt: skip
def test_requirements_that_are_not_true_never_match_and_are_explained(b: Bench, text: str, says: str) -> None:
    bag = b.submit(shape(2), policy={"requirements": text})
    assert bag_of(b, b.pilot()) == []
    assert clauses(b, bag)["requirements"] == (False, says)
    assert says in b.explain(bag)


def test_bag_that_no_host_matches_keeps_no_host_from_the_next(b: Bench) -> None:
    b.submit(shape(2), policy={"requirements": "Host.Memory > 1000000"})
    other = b.submit(shape(2))
    assert bag_of(b, b.pilot(cores=4), 4) == [other, other]


def test_learnt_attributes_of_a_host_are_published_once_a_minute(b: Bench) -> None:
    good = "Host.ErrorRate is undefined || Host.ErrorRate < 0.4"
    bag = b.submit(shape(50, retries=10), policy={"requirements": good})
    pilot = b.pilot()
    (attempt, _), = b.take(pilot, 1)
    b.report(pilot, attempt, "failed")
    (attempt, _), = b.take(pilot, 1)
    b.report(pilot, attempt)
    b.now += MINUTE
    assert bag_of(b, pilot) == []  # one of two attempts has failed
    assert "Host.ErrorRate is 0.5" in b.explain(bag)


# --- rank -----------------------------------------------------------------------------------------------------------


def test_highest_rank_goes_first_and_may_depend_on_the_host(b: Bench) -> None:
    plain = b.submit(shape(3))
    mine = b.submit(shape(3), policy={"rank": 'Host.Name == "mine" ? 5 : -1'})
    low = b.submit(shape(3), policy={"rank": "-Task.Cores / 2.0"})
    assert bag_of(b, b.pilot(cores=9, host="mine"), 7) == [mine] * 3 + [plain] * 3 + [low]
    assert bag_of(b, b.pilot(cores=9, host="other"), 7) == [low, low]


def test_rank_takes_the_place_of_priority(b: Bench) -> None:
    first = b.submit(shape(1, priority=3))
    second = b.submit(shape(1, priority=9), policy={"rank": "2"})
    third = b.submit(shape(1, priority=9), policy={"rank": "Task.Priority / 2.0"})
    assert bag_of(b, b.pilot(cores=3), 3) == [third, first, second]


def test_a_rank_that_is_undefined_or_an_error_counts_as_0(b: Bench) -> None:
    ranks = ["1", "Host.ErrorRate", "1 / 0", "-1"]
    bags = [b.submit(shape(1), policy={"rank": rank}) for rank in ranks]
    assert bag_of(b, b.pilot(cores=4), 4) == bags


def test_fifty_bags_start_in_the_order_of_their_rank(b: Bench) -> None:
    bags = [b.submit(shape(4), policy={"rank": f"{n * 7 % 50}"}) for n in range(50)]
    pilots = [b.pilot(host=f"h{n}") for n in range(20)]
    taken = [bag_of(b, pilot)[0] for pilot in pilots]
    by_rank = sorted(range(50), key=lambda n: -(n * 7 % 50))
    assert taken == [bags[n] for n in by_rank for _ in range(4)][:20]


def test_rank_orders_the_bags_of_one_owner_within_his_share(b: Bench) -> None:
    b.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    first, his, second = b.submit(shape(1)), b.submit(shape(1), owner="bob"), b.submit(shape(1), policy={"rank": "9"})
    greedy = b.submit(shape(1), owner="bob", policy={"rank": "1000000"})
    assert bag_of(b, b.pilot(cores=4), 4) == [second, first, greedy, his], "half for each owner, in his order"


# --- sites ----------------------------------------------------------------------------------------------------------


def test_sites_that_do_not_match_get_neither_tasks_nor_pilots(b: Bench) -> None:
    shapes = f.Limits(pilots=5, shapes=[f.Shape(1, GB, wall=3_600_000)])
    b.step(e.AddSite(0, "slow", "ann", "slurm", limits=shapes), e.AddSite(0, "fast", "ann", "slurm", limits=shapes))
    bag = b.submit(shape(3), policy={"sites": 'Site.Name =!= "slow" && Site.Kind == "slurm"'})
    b.wait(5_000)
    sites = b.core.state.sites
    assert (sites["slow"].open, sites["fast"].open) == (0, 3)
    assert bag_of(b, b.pilot(site="slow")) == []
    assert bag_of(b, b.pilot(site="fast")) == [bag]
    said = {each["site"]: each["clauses"] for each in explain(b.core.state, b.now, bag)["sites"]}
    assert [(c["clause"], c["says"]) for c in said["here"]] == [
        ("sites", 'Site.Kind == "slurm" is false: Site.Kind is "local"')]
    set_policy(b, bag, sites="")
    b.wait(5_000)
    assert sites["slow"].open > 0


# --- live changes ---------------------------------------------------------------------------------------------------


def test_changed_policy_is_obeyed_at_once(b: Bench) -> None:
    bag = b.submit(shape(9), policy={"requirements": "Host.Cores > 2"})
    waiting, busy = b.pilot(), b.pilot()
    assert b.exchange(waiting, want=1, wait=20_000) is None
    done = set_policy(b, bag, requirements="Host.Cores < 2")
    assert (done.value, done.extra) == (2, 2)
    assert b.core.state.pilots[waiting].attempts_held == 1  # the pilot waited, and need not ask again
    set_policy(b, bag, requirements="false")
    assert bag_of(b, busy) == []
    set_policy(b, bag, requirements="")
    assert b.core.state.bags[bag].policy == {} and not b.core.state.ready_with_expressions
    assert bag_of(b, busy) == [bag]


def test_changed_rank_orders_the_next_grant(b: Bench) -> None:
    first, second = b.submit(shape(9)), b.submit(shape(9))
    pilots = [b.pilot(host=f"h{n}") for n in range(3)]
    assert bag_of(b, pilots[0]) == [first]
    set_policy(b, second, rank="1")
    assert bag_of(b, pilots[1]) == [second]
    set_policy(b, first, rank="Host.Cores * 2")
    assert bag_of(b, pilots[2]) == [first]


def test_policy_change_tells_how_many_hosts_match(b: Bench) -> None:
    bag = b.submit(shape(9))
    assert set_policy(b, bag, requirements="Host.Gpus > 0").value == 0
    b.pilot(), b.pilot(gpus=1)
    done = set_policy(b, bag, requirements="Host.Gpus > 0")
    assert (done.value, done.extra) == (1, 2)
    done = set_policy(b, bag, requirements="Host.Gpus > 1")
    assert (done.value, done.extra) == (0, 2)
    match, known, why = order.prospects(b.core.state, b.now, b.core.state.bags[bag])
    assert (match, known, why) == (0, 2, "host: Host.Gpus > 1 is false: Host.Gpus is 0")


def test_prospects_name_the_sites_while_no_host_is_known(b: Bench) -> None:
    bag = b.submit(shape(9), policy={"sites": 'Site.Name == "hear"', "requirements": "Host.Cores > 99"})

    def said() -> tuple[int, int, str]:
        return order.prospects(b.core.state, b.now, b.core.state.bags[bag])

    assert said() == (0, 0, 'here: Site.Name == "hear" is false: Site.Name is "here"')
    b.step(e.AddSite(0, "hear", "bob", "local"))
    assert said()[2], "the site is not Ann's"
    b.step(e.AddSite(0, "hear", "bob", "local", ["ann"]))
    assert said() == (0, 0, ""), "the attributes of future hosts are not known"


@pytest.mark.parametrize(("policy", "says"), [
    ({"requirements": "Host.Memry > 1"}, "requirements, column 1: there is no attribute 'Host.Memry'"),
    ({"requirements": "time() > 1"}, "requirements, column 1: there is no function 'time'"),
    ({"rank": "Host.Name"}, "rank, column 1: rank must be a number"),
    ({"sites": "Host.Cores > 1"}, "sites, column 1: sites cannot use Host.Cores"),
    ({"replicate": "twice"}, "replicate, column 1: there is no attribute 'twice'"),
    ({"rank": "1+" * 3_000 + "1"}, "rank, an expression of 6,001 bytes"),
])  # fmt: skip
def test_bad_expression_is_refused_and_changes_nothing(b: Bench, policy: dict[str, str], says: str) -> None:
    bag = b.submit(shape(1))
    refused = b.do(e.SetPolicy(0, bag, policy))
    assert refused.error in ("bad-input", "too-large") and refused.message.startswith(says) and refused.hint
    assert b.core.state.bags[bag].policy == {}
    event = e.Submit(0, "ann", "bag", "", b"spec", [shape(1)], False, "fcfs", False, policy=policy)
    assert b.do(event).message == refused.message
    assert len(b.core.state.bags) == 1


def test_bag_with_expressions_is_refused_where_classad2_is_missing(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "classad2", None)
    event = e.Submit(0, "ann", "bag", "", b"spec", [shape(1)], False, "fcfs", False, policy={"rank": "1"})
    assert "no classad2" in b.do(event).message


@pytest.mark.parametrize("text", ["Host.Fingers > 3", "(" * 99 + "1"])
def test_unreadable_expression_of_an_older_journal_matches_nothing(b: Bench, text: str) -> None:
    bag, other = b.submit(shape(2), policy={"rank": "7"}), b.submit(shape(2))
    b.core.turn.emit(f.PolicySet(b.now, bag, {"requirements": text, "rank": text}))
    assert bag_of(b, b.pilot(cores=4), 4) == [other, other]
    assert "cannot be evaluated here" in clauses(b, bag)["requirements"][1]


def test_server_restarts_where_classad2_is_missing(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bag = b.submit(shape(2), policy={"requirements": "Host.Cores > 0 && 17 > 4"})
    monkeypatch.setitem(sys.modules, "classad2", None)
    monkeypatch.setattr(classads, "_programs", {})
    b.restart()
    assert bag_of(b, b.pilot()) == []
    assert "need HTCondor's classad2, which is not installed here" in b.explain(bag)


# --- tails ----------------------------------------------------------------------------------------------------------


def test_requirements_may_hold_in_the_tail_only(b: Bench) -> None:
    """Policy B5 of the GridBot paper: tasks run anywhere, but in the tail only on safe hosts."""
    bag = b.submit(shape(3, retries=9), policy={"requirements": 'Tail ? Host.Name == "safe" : true'})
    rough, safe = b.pilot(cores=2, host="rough"), b.pilot(cores=2, host="safe")
    held = b.take(rough, 2)
    assert [task for _, task in held] == [0, 1]
    b.report(rough, held[0][0], "failed")
    b.restart()
    assert bag_of(b, rough) == []
    b.restart(b.snapshot())
    assert bag_of(b, safe, 2) == [bag, bag]


# --- what it costs --------------------------------------------------------------------------------------------------


def test_bags_without_expressions_need_no_order_per_host(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("no bag has an expression")

    monkeypatch.setattr(HostOrders, "order", never)
    monkeypatch.setattr(attributes, "host_ad", never)
    b.submit(shape(9))
    pilot = b.pilot()
    held = b.take(pilot)
    b.report(pilot, held[0][0])
    assert bag_of(b, b.pilot(), 5)


def test_pilot_class_that_nothing_fits_is_turned_away_although_bags_have_expressions(b: Bench) -> None:
    b.submit(shape(9, cores=8), policy={"rank": "Host.Cores", "requirements": 'Host.Name != "odd"'})
    plain, odd = b.pilot(host="plain"), b.pilot(host="odd")
    state = b.core.state
    assert bag_of(b, odd) == []
    assert state.pilot_classes[state.pilots[odd].cls].no_match_at_version != state.version  # another host might match
    assert bag_of(b, plain) == []
    assert state.pilot_classes[state.pilots[plain].cls].no_match_at_version == state.version


def test_requirements_on_the_moment_are_evaluated_at_every_request(b: Bench) -> None:
    bag = b.submit(shape(9), policy={"requirements": "Bag.Age >= 60 && Host.Running < 2"})
    pilot = b.pilot(cores=8)
    assert bag_of(b, pilot) == []
    b.now += 60_000
    assert bag_of(b, pilot, 1) == [bag]
    assert bag_of(b, pilot, 1) == [bag]
    assert bag_of(b, pilot, 1) == []


def test_ads_of_gone_pilots_are_forgotten(b: Bench) -> None:
    b.submit(shape(4), policy={"rank": "Host.Cores"})
    pilot = b.pilot()
    held = b.take(pilot)
    assert list(b.core.turn.grants.orders._ads) == [pilot]
    b.exchange(pilot, reports=[e.Report(attempt) for attempt, _ in held], bye="idle")
    assert not b.core.turn.grants.orders._ads


# --- recovery -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_policies_survive_a_restart(b: Bench, with_snapshot: bool) -> None:
    first = b.submit(shape(3), policy={"requirements": "Host.Cores > 1", "rank": "1"})
    second, third = b.submit(shape(3)), b.submit(shape(3), policy={"rank": "3"})
    set_policy(b, second, rank="2")
    set_policy(b, third, rank="")
    snapshot = b.snapshot() if with_snapshot else None
    set_policy(b, first, requirements="Host.Cores > 7")
    b.restart(snapshot)
    policies = {number: bag.policy for number, bag in b.core.state.bags.items()}
    assert policies == {first: {"requirements": "Host.Cores > 7", "rank": "1"}, second: {"rank": "2"}, third: {}}
    assert b.core.state.ready_with_expressions == 2
    assert bag_of(b, b.pilot(cores=6), 4) == [second] * 3 + [third]
    b.do(e.Cancel(0, second, None))
    b.do(e.Cancel(0, first, None))
    b.do(e.Remove(0, first))
    assert b.core.state.ready_with_expressions == 0


@pytest.mark.parametrize(("policy", "says"), [
    ({"replicate": "tail-fast"}, "replicate: tasks with external effects never run twice at a time"),
    ({"replicate": "Task.NumberOfReplicas < 3"}, "replicate: tasks with external"),
    ({"attempt-deadline": "60"}, "attempt-deadline: tasks with external"),
])  # fmt: skip
def test_policy_that_external_effects_forbid_is_refused(b: Bench, policy: dict[str, str], says: str) -> None:
    bag = b.submit(shape(9), external=True)
    refused = b.do(e.SetPolicy(0, bag, policy))
    assert refused.error == "bad-input" and refused.message.startswith(says) and refused.hint
    assert b.core.state.bags[bag].policy == {}
    set_policy(b, bag, replicate="none", rank="1")


def test_unreadable_expression_of_a_snapshot_keeps_no_other_bag_waiting(b: Bench) -> None:
    bad, good = b.submit(shape(2)), b.submit(shape(2))
    b.core.turn.emit(f.PolicySet(b.now, bad, {"requirements": "member(Host.Cores, {1,})", "rank": "08"}, "ann"))
    b.restart(b.snapshot())
    assert bag_of(b, b.pilot(cores=4), 4) == [good, good]
    assert "cannot be evaluated here" in b.explain(bad)


@pytest.mark.parametrize("text", ["15" + " " * 1_000 + "%", "15" + "\u2003" * 70 + "%"], ids=["blanks", "wide ones"])
def test_setting_padded_with_blanks_is_refused_in_a_short_message(b: Bench, text: str) -> None:
    bag = b.submit(shape(9))
    refused = b.do(e.SetPolicy(0, bag, {"replicas-share": text}))
    assert refused.error == "bad-input" and len(refused.message) < 300 and not b.core.state.bags[bag].policy
    set_policy(b, bag, **{"replicas-share": "15 %"})


def test_expressions_are_evaluated_only_for_owners_that_the_host_serves(b: Bench) -> None:
    text = "Host.Cores + Bag.JobsLeft > 1 && Now > 4"
    his = b.submit(shape(2), owner="bob", policy={"requirements": text})
    ours = b.submit(shape(2), policy={"requirements": "Host.Cores > 0"})
    known = classads.program(text).known
    known.clear()
    b.do(e.AddSite(0, "bobs", "bob", "local"))
    assert bag_of(b, b.pilot(cores=4), 4) == [ours, ours] and not known
    assert bag_of(b, b.pilot(cores=4, site="bobs"), 4) == [his, his] and known


def test_per_host_is_refused_for_batches(b: Bench) -> None:
    bag = b.submit(shape(9, batch=3))
    refused = b.do(e.SetPolicy(0, bag, {"per-host": "2"}))
    assert (refused.error, refused.message) == ("bad-input", "per-host and batch exclude each other")


def test_lower_ranked_bag_does_not_overtake_a_wide_task_that_waits_for_room(b: Bench) -> None:
    """The pilot waits although the lower bag stands first on the internal ready list."""
    narrow = b.submit(shape(5, expect=600_000))
    pilot = b.pilot(cores=2)
    ((attempt, _),) = b.take(pilot, 1)
    b.exchange(pilot, started=[attempt])
    wide = b.submit(shape(1, cores=2, expect=600_000), policy={"rank": "5"})
    assert b.exchange(pilot, want=1, wait=20_000) is None
    assert (b.tasks(narrow), b.tasks(wide)) == ("arrrr", "r")
    b.report(pilot, attempt)
    assert b.tasks(wide) == "a"


def test_prospects_look_at_fewer_hosts_for_longer_expressions() -> None:
    b = Bench()
    short = b.submit(shape(1), policy={"requirements": "Host.Cores > 0"})
    long = b.submit(shape(1), policy={"requirements": " + ".join(["Host.Cores"] * 150) + " > 0"})
    assert looked_at(b.core.state.bags[short]) == 1_000 and 25 <= looked_at(b.core.state.bags[long]) < 150
