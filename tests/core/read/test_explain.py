"""`explain`: why a task does not run, and what to do about it."""

from __future__ import annotations

from typing import Any

from tests.core.conftest import GONE_SILENT, Bench, shape
from windfall.core.decide.grant.order import prospects
from windfall.core.messages import events as e
from windfall.core.read.explain import explain
from windfall.core.read.host_views import hosts


def test_explain_names_a_site_without_pilots(bench: Bench) -> None:
    assert "no pilot is running there" in bench.explain(bench.submit())


def test_explain_names_each_clause_that_fails(bench: Bench) -> None:
    needs = shape(1, cores=9, memory=64 << 30, gpus=2, disk=1 << 60, limit=10_000_000, call=True)
    bag = bench.submit(needs, owner="bob")
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    bench.pilot(4, left=1_000)
    told = explain(bench.core.state, bench.now, bag)["sites"][0]["clauses"]
    assert [c["clause"] for c in told if not c["holds"]] == ["owner", "cores", "gpus", "memory", "disk", "time"]


def test_explain_says_that_all_pilots_are_busy(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(4, expect=100_000)), bench.pilot()
    bench.take(pilot)
    assert "busy" in bench.explain(bag, 3)


def test_explain_writes_sizes_and_times_for_people(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1, limit=7_200_000, memory=1 << 30)), bench.pilot(left=3_600_000)
    bench.wait(1_000)
    told = {c["clause"]: c["says"] for c in explain(bench.core.state, bench.now, bag)["sites"][0]["clauses"]}
    assert told["time"] == "needs 2 h, 59 min left", told
    assert told["disk"] == "no disk requested; the pilot has 1.1 TB", told
    assert told["memory"] == "needs 1.07 GB, has 4.29 GB" and pilot


def test_explain_says_that_the_next_pilot_can_take_a_ready_task(bench: Bench) -> None:
    bench.pilot()
    assert "next pilot" in bench.explain(bench.submit())


def test_task_ready_for_one_site_is_ready_whatever_other_sites_are(bench: Bench) -> None:
    bench.do(e.AddSite(0, "far", "ann", "local"))
    bag = bench.submit(shape(2), policy={"requirements": 'Host.Name == "near"'})
    bench.pilot(host="near")
    bench.pilot(host="other", site="far")
    assert bench.explain(bag) == "it is ready; the next pilot that asks can take it"


def test_explain_says_where_a_task_is(bench: Bench) -> None:
    bag, pilot = bench.submit(), bench.pilot()
    (attempt, _), = bench.take(pilot)
    assert "not known to have started" in bench.explain(bag)
    bench.exchange(pilot, started=[attempt])
    assert bench.explain(bag) == "running on host (here)"
    bench.wait(GONE_SILENT)
    assert "silent for 65 s" in bench.explain(bag)


def test_explain_says_how_tasks_have_ended(bench: Bench) -> None:
    bag = bench.submit(shape(2))
    bench.step(e.Cancel(0, bag, [0]))
    assert bench.explain(bag, 0) == "it has ended: cancelled"
    bench.step(e.Cancel(0, bag, None))
    assert bench.explain(bag) == f"all tasks have ended: 2 cancelled; windfall results {bag} --state cancelled has them"


def test_explain_names_the_command_that_retries_failed_tasks(bench: Bench) -> None:
    good, bad, pilot = bench.submit(), bench.submit(shape(1, retries=0)), bench.pilot(2)
    (first, _), (second, _) = bench.take(pilot)
    bench.report(pilot, first)
    bench.report(pilot, second, "failed", "exit")
    assert bench.explain(good) == "all tasks have ended"
    assert bench.explain(bad) == (f"all tasks have ended: 1 failed; windfall results {bad} --state failed has them; "
                                  f"windfall retry {bad} runs them again")


def test_explain_names_the_policy_that_replicates_a_late_task(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1, expect=10_000)), bench.pilot()
    [(attempt, _)] = bench.take(pilot)
    bench.exchange(pilot, started=[attempt])
    assert "replicate" not in bench.explain(bag)
    bench.wait(20_000)
    assert f"replicate = none no other host tries it: windfall policy {bag} replicate=tail-safe" in bench.explain(bag)
    assert "replicate" not in bench.explain(late_bag(bench, external=True))
    assert "replicate" not in bench.explain(late_bag(bench, replicate="tail-safe"))


def test_explain_names_the_evidence_that_a_task_with_external_effects_waits_for(bench: Bench) -> None:
    bag, pilot = bench.submit(external=True), bench.pilot(host="node7")
    bench.take(pilot)
    bench.wait(70_000)
    said = bench.explain(bag, 0)
    assert "starts again only on evidence that this attempt is dead" in said and "another pilot on node7" in said
    assert "queue" not in said
    bench.step(e.Gone(0, pilot, "requeued", proven=False))
    assert "here has put its job back into the queue, which does not prove" in bench.explain(bag, 0)


def late_bag(bench: Bench, **how: Any) -> int:
    bag, pilot = bench.submit(shape(1, expect=10_000), **how), bench.pilot()
    [(attempt, _)] = bench.take(pilot)
    bench.exchange(pilot, started=[attempt])
    bench.wait(20_000)
    return bag


def test_explain_counts_one_task_in_the_singular(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2, expect=100_000)), bench.pilot(1)
    bench.take(pilot, want=1)
    told = explain(bench.core.state, bench.now, bag, 1)
    says = {c["clause"]: c["says"] for c in told["sites"][0]["clauses"]}
    assert says["free"] == "it holds 1 task, all its slots are taken" and told["summary"].endswith("beside it: 1 task")


def test_explain_counts_the_pilot_deaths_of_a_quarantined_task(bench: Bench) -> None:
    bag = bench.submit()
    for _ in range(3):
        pilot = bench.pilot()
        bench.take(pilot)
        bench.step(e.Gone(0, pilot))
    assert "3 deaths of pilots" in bench.explain(bag, 0)


def test_explain_hides_the_sites_of_other_owners(bench: Bench) -> None:
    bag = bench.submit(shape(1), owner="bob")
    bench.pilot(4)
    told = explain(bench.core.state, bench.now, bag)
    assert told["sites"] == [] and "ann" not in str(told) and "here" not in str(told)
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob", "carla"]))
    assert "next pilot" in bench.explain(bag) and "carla" not in str(explain(bench.core.state, bench.now, bag))


def test_explain_counts_the_tasks_that_go_before_by_rank(bench: Bench) -> None:
    low = bench.submit(shape(10), policy={"rank": "1"})
    bench.take(bench.pilot(cores=2), 2)
    high = bench.submit(shape(10), policy={"rank": "10"})
    said = [explain(bench.core.state, bench.now, bag)["summary"] for bag in (low, high)]
    busy = "all suitable pilots are busy; the next one that asks can hold it ahead"
    assert said == [f"{busy}; before or beside it: {n} tasks" for n in (18, 10)]


def test_explain_names_a_per_host_limit_that_admits_nothing(bench: Bench) -> None:
    bag = bench.submit(shape(4), policy={"per-host": "Host.Cores - 5"})
    bench.pilot(cores=2, host="h")
    why = "Host.Cores - 5 is below 1: Host.Cores is 2"
    assert explain(bench.core.state, bench.now, bag)["summary"] == f"no pilot can run it: here: per-host ({why})"
    match, known, said = prospects(bench.core.state, bench.now, bench.core.state.bags[bag])
    assert (match, known, said) == (0, 1, f"h: {why}")


def test_prospects_give_no_reason_when_no_task_is_left_to_grant(bench: Bench) -> None:
    bag = bench.submit(shape(2), policy={"requirements": "!Tail"})
    bench.take(bench.pilot(cores=2, host="h"), 2)
    match, known, why = prospects(bench.core.state, bench.now, bench.core.state.bags[bag])
    assert (match, known, why) == (0, 1, "")


# --- expressions that come to nothing -------------------------------------------------------------------------------


def clause(bench: Bench, bag: int, name: str) -> str:
    (site,) = explain(bench.core.state, bench.now, bag)["sites"]
    return {c["clause"]: c["says"] for c in site["clauses"]}[name]


def test_explain_shows_a_rank_or_why_it_counts_as_0(bench: Bench) -> None:
    bench.pilot(4)
    assert clause(bench, bench.submit(policy={"rank": "Host.Cores / 2.0"}), "rank") == "it is 2 there"
    told = clause(bench, bench.submit(policy={"rank": "1 / (Host.Cores - 4)"}), "rank")
    assert told == "it counts as 0, for 1 / (Host.Cores - 4) is an error: Host.Cores is 4"


def test_explain_says_why_a_per_host_expression_sets_no_limit(bench: Bench) -> None:
    bench.pilot(4)
    told = clause(bench, bench.submit(policy={"per-host": "10 * Host.ErrorRate"}), "room")
    assert told == "no limit there, for 10 * Host.ErrorRate is undefined: Host.ErrorRate is not known there"


def test_explain_says_why_a_deadline_or_replica_expression_asks_for_nothing(bench: Bench) -> None:
    policy = {"attempt-deadline": "PerHost * 60", "replicate": "Task.Replica1.Host.ErrorRate > 0.1"}
    bag, pilot = bench.submit(shape(1, expect=1_000), policy=policy), bench.pilot()
    ((attempt, _),) = bench.take(pilot)
    bench.exchange(pilot, started=[attempt])
    told = bench.explain(bag)
    assert "attempt-deadline sets none on host: PerHost * 60 is undefined: PerHost is not known there" in told
    assert "replicate asks for no replica: Task.Replica1.Host.ErrorRate > 0.1 is undefined" in told
    bench.do(e.SetPolicy(0, bag, {"attempt-deadline": "60", "replicate": "NumberOfReplicas < 2"}, "ann"))
    assert "undefined" not in bench.explain(bag)


def test_explain_says_that_no_other_host_may_have_a_late_task(bench: Bench) -> None:
    bag = late_bag(bench, replicate="tail-safe", policy={"requirements": 'Host.Name == "host"'})
    assert bench.explain(bag).endswith("; no other host serves you now")
    bench.pilot(host="other")
    assert bench.explain(bag).endswith(
        'of the other hosts that serve you (1) none matches: other: Host.Name == "host" is false: Host.Name is "other"')
    assert prospects(bench.core.state, bench.now, bench.core.state.bags[bag])[2], "it may yet have a replica"


def test_hosts_are_shown_to_a_bag_that_has_no_task_yet(bench: Bench) -> None:
    bag, _ = bench.submit(shape(1), open=True, policy={"rank": "Host.Cores"}), bench.pilot()
    bench.core.state.bags[bag].classes.clear()
    (found,) = hosts(bench.core.state, bench.now, "ann", bench.core.state.bags[bag], -1, 10)
    assert (found["match"], found["why"], found["rank"], found["per_host"]) == (True, "", None, None)
