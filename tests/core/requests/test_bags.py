"""Requests of users: bags, targets, graphs, pausing, cancelling, owners, tokens, policies."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.core.conftest import Bench, answers, shape
from windfall.core.apply import bags
from windfall.core.decide.requests import request, sites, tokens
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.facts import DataSelection, DataShape
from windfall.core.messages.runs import runs_where
from windfall.core.read.explain import explain
from windfall.core.state.columns import ROW_MASK
from windfall.errors import BadInput
from windfall.model.checks.bag import setting
from windfall.store import codec


def edges(*pairs: tuple[int, int]) -> bytes:
    return np.array(pairs, dtype="<i4").tobytes()


def run(bench: Bench, pilot: int, *failing: int) -> list[int]:
    """Run ready tasks one at a time until there are none; return them in order.  Tasks in `failing` fail."""
    seen = []
    while work := bench.take(pilot, want=1):
        (attempt, task), = work
        seen.append(task)
        bench.report(pilot, attempt, *(("failed", "exit") if task in failing else ()))
    return seen


# --- submission and open bags ---------------------------------------------------------------------------------------


def test_same_key_submits_one_bag(bench: Bench) -> None:
    assert bench.submit(shape(2), key="k") == bench.submit(shape(2), key="k") == 1
    assert bench.submit(shape(2), key="k", owner="bob") == 2
    assert bench.facts[0].bag == 2


def test_open_bag_takes_tasks_until_it_is_closed(bench: Bench) -> None:
    bag = bench.submit(shape(1), open=True)
    pilot = bench.pilot()
    assert run(bench, pilot) == [0] and not bench.core.state.bags[bag].ended
    done = bench.append(bag, 2, key="a")
    assert (done.value, done.extra) == (1, 2)
    assert (bench.append(bag, 2, key="a").value, bench.facts) == (1, [])
    bench.step(e.Close(0, bag))
    assert bench.append(bag, 1).error == "conflict"
    assert run(bench, pilot) == [1, 2] and bench.core.state.bags[bag].ended


def test_appended_tasks_are_located_in_their_targets(bench: Bench) -> None:
    bag = bench.submit(shape(0, name="a"), shape(0, name="b"), open=True)
    for n in range(6):
        bench.append(bag, 2, target=n % 2)
    assert [bench.core.state.bags[bag].locate(task) for task in (0, 2, 5, 11)] == [(0, 0), (1, 0), (0, 3), (1, 5)]
    assert sorted(run(bench, bench.pilot())) == list(range(12))


def test_append_to_an_unknown_or_finished_target_is_refused(bench: Bench) -> None:
    bag = bench.submit(shape(1, name="a"), shape(1, name="b", after=[0]), open=True)
    assert bench.append(bag, 1, target=2).error == "bad-input"
    assert bench.append(bag, 0).error == "bad-input"
    assert bench.append(99, 1).error == "not-found"
    run(bench, bench.pilot())
    assert bench.append(bag, 1, target=0).error == "conflict"  # b has run, so a cannot grow any more
    assert bench.append(bag, 1, target=1).value == 2


def test_plain_tasks_may_be_appended_to_a_bag_with_edges(bench: Bench) -> None:
    bag = bench.submit(shape(2), edges=edges((0, 1)), open=True)
    bench.append(bag, 2)
    assert run(bench, bench.pilot()) == [0, 1, 2, 3]
    bench.step(e.Cancel(0, bag, None))
    bench.restart()


def test_an_open_bag_without_tasks_ends_when_closed(bench: Bench) -> None:
    bag = bench.submit(shape(0), open=True)
    bench.step(e.Close(0, bag))
    assert bench.core.state.bags[bag].ended


# --- targets and graphs ---------------------------------------------------------------------------------------------


def test_targets_run_in_the_order_of_their_prerequisites(bench: Bench) -> None:
    bag = bench.submit(shape(2, name="a"), shape(1, name="b", after=[0]), shape(1, name="c", after=[0, 1]))
    assert "a" in bench.explain(bag, 2)
    assert run(bench, bench.pilot()) == [0, 1, 2, 3]
    assert bench.tasks(bag) == "ssss"


def test_an_empty_target_is_done_when_it_could_start(bench: Bench) -> None:
    """An empty target was once done from the start, and again when it could start: its dependants started early, or
    never."""
    bag = bench.submit(shape(1, name="a"), shape(0, name="b", after=[0]), shape(1, name="c", after=[1]))
    assert len(bench.take(bench.pilot(4), want=9)) == 1
    bench.step(e.Cancel(0, bag, None))
    bench.step(e.Retry(0, bag, None))
    assert run(bench, bench.pilot()) == [0, 1]


def test_an_empty_target_of_an_open_bag_is_done_when_it_is_closed(bench: Bench) -> None:
    bag = bench.submit(shape(1, name="a"), shape(0, name="b", after=[0]), shape(1, name="c", after=[1]), open=True)
    pilot = bench.pilot()
    assert run(bench, pilot) == [0]
    bench.step(e.Close(0, bag))
    assert run(bench, pilot) == [1]


def test_failed_target_cancels_a_chain_of_hundreds(bench: Bench) -> None:
    targets = [shape(0 if n % 2 else 1, name=str(n), after=[n - 1] if n else [], retries=0) for n in range(400)]
    bag = bench.submit(*targets)
    pilot = bench.pilot()
    bench.report(pilot, bench.take(pilot, want=1)[0][0])
    bench.report(pilot, bench.take(pilot, want=1)[0][0], "failed", "exit")
    assert bench.tasks(bag)[:3] == "sfc" and bench.core.state.bags[bag].ended


def test_failed_target_cancels_its_dependants(bench: Bench) -> None:
    bag = bench.submit(
        shape(2, name="a", retries=0), shape(2, name="b", after=[0]), shape(1, name="c", after=[1]), shape(1, name="d")
    )
    assert run(bench, bench.pilot(), 0) == [0, 1, 5]
    assert bench.tasks(bag) == "fscccs" and bench.core.state.bags[bag].ended


def test_failed_target_cancels_its_dependants_when_many_successes_follow(bench: Bench) -> None:
    bag = bench.submit(shape(30, name="a", retries=0), shape(1, name="b", after=[0]))
    pilot = bench.pilot(30)
    work = bench.take(pilot)
    bench.report(pilot, work[0][0], "failed", "exit")
    bench.exchange(pilot, reports=[e.Report(attempt) for attempt, _ in work[1:]])
    assert bench.task(bag, 30) == "cancelled"


def test_quarantined_target_cancels_its_dependants(bench: Bench) -> None:
    bag = bench.submit(shape(1, name="a"), shape(1, name="b", after=[0]))
    for _ in range(3):
        pilot = bench.pilot()
        bench.take(pilot)
        bench.step(e.Gone(0, pilot))
    assert bench.tasks(bag) == "qc"


def test_retry_revives_the_dependants_of_a_failed_target(bench: Bench) -> None:
    bag = bench.submit(shape(1, name="a", retries=0), shape(1, name="b", after=[0]))
    pilot = bench.pilot()
    run(bench, pilot, 0)
    assert bench.tasks(bag) == "fc"
    bench.step(e.Retry(0, bag, [1]))
    assert bench.tasks(bag) == "fc"  # its prerequisite is still failed
    bench.step(e.Retry(0, bag, None))
    assert run(bench, pilot) == [0, 1] and bench.tasks(bag) == "ss"


def test_tasks_run_in_the_order_of_their_edges(bench: Bench) -> None:
    bag = bench.submit(shape(4), edges=edges((3, 0), (3, 1), (0, 2), (1, 2)))
    assert bench.tasks(bag) == "wwwr"
    assert "waits for 1 other" in bench.explain(bag, 0)
    assert run(bench, bench.pilot()) == [3, 0, 1, 2]


def test_retry_of_a_task_that_a_silent_pilot_holds_starts_that_task_alone_again(bench: Bench) -> None:
    bag = bench.submit(shape(4), edges=edges((1, 3)), external=True)
    pilot = bench.pilot(2)
    first, second = bench.take(pilot)
    bench.exchange(pilot, started=[first[0], second[0]])
    assert bench.do(e.Retry(0, bag, [1])).value == 0, "its pilot is not silent"
    bench.wait(70_000)
    assert f"windfall retry {bag} 1 starts it again, windfall cancel {bag} 1 gives it up" in bench.explain(bag, 1)
    assert bench.do(e.Retry(0, bag, None)).value == bench.do(e.Retry(0, bag, [0, 1])).value == 0, "named alone"
    assert bench.do(e.Retry(0, bag, [1])).value == 1 == bench.do(e.Retry(0, bag, [7])).value + 1
    assert bench.tasks(bag) == "arrw"
    bench.report(pilot, second[0])
    assert bench.tasks(bag) == "arrw", "the old attempt's result is of an older generation"
    bench.restart()
    assert bench.tasks(bag) == "arrw"


def test_cancellation_of_a_task_that_a_silent_pilot_holds_gives_up_that_task_alone(bench: Bench) -> None:
    bag = bench.submit(shape(3), external=True)
    pilot = bench.pilot(2)
    bench.take(pilot)
    bench.wait(70_000)
    assert bench.do(e.Cancel(0, bag, [1])).value == 1 and bench.tasks(bag) == "acr"


def test_a_failure_cancels_all_that_comes_after_it_and_a_retry_revives(bench: Bench) -> None:
    bag = bench.submit(shape(5, retries=0), edges=edges((0, 1), (1, 2), (2, 3)))
    pilot = bench.pilot()
    assert run(bench, pilot, 0) == [0, 4]
    assert bench.tasks(bag) == "fcccs"
    bench.step(e.Retry(0, bag, None))
    assert bench.tasks(bag) == "rwwws"
    assert run(bench, pilot) == [0, 1, 2, 3]


def test_a_deep_chain_of_tasks_fails_at_once(bench: Bench) -> None:
    n = 5_000
    bag = bench.submit(shape(n, retries=0), edges=edges(*((i, i + 1) for i in range(n - 1))))
    run(bench, bench.pilot(), 0)
    assert bench.core.state.bags[bag].ended and len(bench.journal) < 20


# --- pause, cancel, remove ------------------------------------------------------------------------------------------


def test_pause_recalls_attempts_that_have_not_started(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(3)), bench.pilot()
    (a, _), (b, _) = bench.take(pilot)
    bench.exchange(pilot, started=[a])
    bench.step(e.Pause(0, bag, True))
    assert bench.exchange(pilot, want=5).recall == [b]
    bench.report(pilot, b, "returned", "recall")
    assert bench.take(pilot, held=[a]) == [] and bench.tasks(bag) == "arr" and "unpause" in bench.explain(bag, 1)
    bench.step(e.Pause(0, bag, False))
    assert len(bench.take(pilot)) == 1


def test_cancel_stops_running_attempts(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(3)), bench.pilot()
    (a, _), (b, _) = bench.take(pilot)
    bench.exchange(pilot, wait=9_000)
    assert bench.do(e.Cancel(0, bag, None)).value == 3
    (told,) = answers(bench.effects, pilot)
    assert told.cancel == [a, b] and bench.tasks(bag) == "ccc"
    bench.report(pilot, a)
    assert bench.tasks(bag) == "ccc" and bench.core.state.pilots[pilot].attempts_held == 1


def test_cancel_takes_the_listed_tasks_of_many(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1_000, expect=1)), bench.pilot(2)
    bench.take(pilot, want=500)
    bench.step(e.Cancel(0, bag, [*range(0, 1_000, 3), 5_000, -1]))
    assert bench.tasks(bag)[:6] == "caacaa" and bench.tasks(bag)[600:603] == "crr"
    assert len(bench.exchange(pilot).cancel) == 167


def test_cancelling_closes_an_open_bag(bench: Bench) -> None:
    bag = bench.submit(shape(1), open=True)
    bench.step(e.Cancel(0, bag, None))
    assert bench.core.state.bags[bag].ended and bench.append(bag, 1).error == "conflict"


def test_bag_is_removed_only_after_it_has_ended(bench: Bench) -> None:
    bag, pilot = bench.submit(key="k"), bench.pilot()
    (a, _), = bench.take(pilot)
    assert bench.do(e.Remove(0, bag)).error == "conflict"
    bench.step(e.Cancel(0, bag, None), e.Remove(0, bag))
    assert bench.core.state.bags == {} and bench.core.state.classes == {}
    assert bench.exchange(pilot).cancel == [a]  # the attempt still runs there
    bench.report(pilot, a)
    assert bench.do(e.Remove(0, bag)).error == "not-found"
    assert bench.submit(key="k") == 2


# --- owners, sites, tokens ------------------------------------------------------------------------------------------


def test_a_pilot_runs_only_its_owners_tasks(bench: Bench) -> None:
    mine, theirs = bench.submit(), bench.submit(owner="bob")
    pilot = bench.pilot(4)
    bench.take(pilot)
    assert (bench.task(mine), bench.task(theirs)) == ("active", "ready")
    assert "no site is known" in bench.explain(theirs), "nothing is said of sites of others"


def test_shared_site_serves_others_at_once_and_until_it_is_not_shared(bench: Bench) -> None:
    theirs = bench.submit(shape(3), owner="bob")
    pilot = bench.pilot(1)
    bench.exchange(pilot, want=1, wait=9_000)
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    assert len(answers(bench.effects, pilot)) == 1 and bench.tasks(theirs) == "arr"
    bench.restart(bench.snapshot())
    bench.step(e.AddSite(0, "here", "ann", "local", []))
    assert bench.take(pilot) == []
    bench.restart()


def test_a_sites_name_belongs_to_its_owner(bench: Bench) -> None:
    assert bench.do(e.AddSite(0, "here", "bob", "local")).error == "conflict"


def test_revoked_token_is_forgotten(bench: Bench) -> None:
    bench.step(e.IssueToken(0, "t1", b"hash", "user", "ann", "", 0))
    assert bench.core.state.tokens[b"hash"].owner == "ann"
    bench.step(e.RevokeToken(0, "t1"))
    assert bench.core.state.tokens == {}
    assert bench.do(e.RevokeToken(0, "t1")).error == "not-found"


def test_tokens_of_a_user_are_bounded_and_expired_ones_make_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)

    def issue(name: str, owner: str = "ann", expires: int = 0, by: str = "ann") -> str:
        return _refusal(bench.do(e.IssueToken(0, name, name.encode(), "user", owner, "", expires, by)))

    bench.pilot()  # the pilot's token does not count
    assert issue("t1", expires=bench.now + 1_000) == issue("t2") == ""
    assert "windfall token rm" in issue("t3")
    assert issue("b1", "bob") == issue("own", by="") == "", "others, and the server, are none of it"
    bench.step(e.RevokeToken(0, "own"))
    bench.wait(2_000)
    assert issue("t3") == "" and "t1" not in bench.core.state.token_ids
    bench.restart(bench.snapshot())
    assert issue("t4")


def test_sites_of_a_user_are_bounded_and_a_name_can_be_used_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "MAX_SITES", 2)

    def add(name: str, owner: str = "ann") -> str:
        return _refusal(bench.do(e.AddSite(0, name, owner, "slurm")))

    assert add("two") == add("three", "bob") == ""  # beside the site of the bench
    assert "removed" in add("four")
    bench.step(e.RemoveSite(0, "two", "ann"))
    assert add("four"), "its record stays"
    assert add("two") == ""


def _refusal(effect: Any) -> str:
    """Return the hint of a refusal; nothing if the request was done."""
    assert type(effect) is x.Done or effect.error == "conflict"
    return "" if type(effect) is x.Done else str(effect.hint)


@pytest.mark.parametrize("restart", [False, True])
def test_a_pilots_token_can_be_revoked(bench: Bench, restart: bool) -> None:
    pilot = bench.pilot()
    if restart:
        bench.restart(bench.snapshot())
    bench.step(e.RevokeToken(0, f"pilot-{pilot}"))
    assert bench.core.state.tokens == {}


def test_key_of_an_append_belongs_to_one_bag_and_one_request(bench: Bench) -> None:
    first, second = bench.submit(shape(0), open=True), bench.submit(shape(0), open=True)
    assert bench.append(first, 5, key="part-1").extra == 5
    assert bench.append(second, 7, key="part-1").extra == 7
    assert bench.append(first, 5, key="part-1").value == 0  # the same request again
    assert bench.submit(shape(3), key="part-1") not in (first, second)
    other = bench.do(e.Append(0, "ann", first, 0, 5, "part-1", b"something else"))
    assert (other.error, bench.core.state.bags[first].size, bench.core.state.bags[second].size) == ("conflict", 5, 7)


def test_latest_keys_of_appends_are_kept_up_to_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bags, "RECENT_KEYS", 10)
    bag = bench.submit(shape(0), open=True)
    for i in range(30):
        bench.append(bag, 1, key=f"k{i}")
    assert len(bench.core.state.keys) == 10
    bench.restart(bench.snapshot())
    assert bench.append(bag, 1, key="k29").value == 29


def test_a_bag_that_has_ended_is_extended(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2)), bench.pilot(4)
    for attempt, _ in bench.take(pilot):
        bench.report(pilot, attempt)
    assert bench.core.state.bags[bag].ended
    more = e.Append(0, "ann", bag, 0, 3, "k", b"source", extends=True)
    assert bench.do(more).value == 2
    again = bench.do(e.Append(0, "ann", bag, 0, 3, "k", b"source", extends=True))
    assert (again.value, bench.tasks(bag)) == (2, "ssrrr"), "the same key once"
    assert not bench.core.state.bags[bag].ended
    bench.restart()
    assert [task for _, task in bench.take(pilot)] == [2, 3, 4]


def test_target_that_others_have_waited_for_is_not_extended(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1), shape(1, name="after", after=[0])), bench.pilot(4)
    extend = lambda target: bench.do(e.Append(0, "ann", bag, target, 1, "", b"source", extends=True))
    assert isinstance(extend(0), x.Done)
    for attempt, _ in bench.take(pilot):
        bench.report(pilot, attempt)
    assert isinstance(extend(0), x.Refuse)
    assert isinstance(extend(1), x.Done)
    assert bench.core.state.bags[bag].open is False


def test_target_that_gathers_files_waits_until_they_are_gathered(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1), shape(1, name="after", after=[0], gathers=True)), bench.pilot(4)
    bench.report(pilot, bench.take(pilot)[0][0])
    assert bench.take(pilot) == [] and "gathered" in bench.explain(bag, 1)
    bench.restart()
    assert bench.take(pilot) == []
    parked = bench.exchange(pilot, want=1, wait=10_000)
    assert parked is None
    bench.step(e.InputsGathered(0, bag, 1))
    assert [task for answer in answers(bench.effects, pilot) for _, g in answer.grants for task in g[0].tasks] == [1]
    bench.restart()
    assert not bench.core.state.bags[bag].targets[1].inputs_pending, "it was gathered, and that is known"


def test_target_whose_files_cannot_be_gathered_is_cancelled_with_a_reason(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1), shape(3, name="after", after=[0], gathers=True)), bench.pilot(4)
    bench.step(e.InputsGathered(0, bag, 1, refused="too early"))
    assert bench.tasks(bag) == "rrrr", "what it takes is not there yet"
    bench.report(pilot, bench.take(pilot)[0][0])
    bench.step(e.InputsGathered(0, bag, 1, refused="too many files"))
    assert bench.tasks(bag) == "sccc"
    (fact,) = [fact for body in bench.journal for fact in codec.decode(body) if isinstance(fact, f.TasksCancelled)]
    assert (fact.runs, fact.why, fact.note) == ([(1, 3)], "gather", "too many files")


def test_a_bag_does_not_grow_beyond_the_most_tasks_there_may_be(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "MAX_TASKS", 50)
    bag = bench.submit(shape(45), open=True)
    assert isinstance(bench.append(bag, 5, key="k"), x.Done)
    refused = bench.append(bag, 1)
    assert (refused.error, bench.core.state.bags[bag].size) == ("too-large", 50)
    assert isinstance(bench.append(bag, 5, key="k"), x.Done), "the same request has the same answer"
    extend = e.Append(0, "ann", bag, 0, 50, "", b"source", extends=True)
    assert bench.do(extend).error == "too-large"


def test_tasks_of_all_bags_of_an_owner_are_bounded() -> None:
    bench = Bench(owned=10)
    first, second = bench.submit(shape(4)), bench.submit(shape(4), open=True)
    assert bench.append(second, 3).error == "conflict"
    assert isinstance(bench.append(second, 2), x.Done)
    submit = lambda owner: bench.do(e.Submit(0, owner, "bag", "", b"spec", [shape(1)], False, "fcfs", False))
    refused = submit("ann")
    assert (refused.error, "10 tasks" in refused.message, "rm" in refused.hint) == ("conflict", True, True)
    assert isinstance(submit("bob"), x.Done), "others have their own"
    bench.restart(bench.snapshot())
    assert submit("ann").error == "conflict"
    bench.step(e.Cancel(0, first, None))
    assert submit("ann").error == "conflict", "ended tasks take room as well"
    bench.step(e.Remove(0, first))
    assert isinstance(submit("ann"), x.Done)


def test_calls_are_granted_to_pilots_of_their_owner_only(bench: Bench) -> None:
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]), e.AddSite(0, "bobs", "bob", "local"))
    anns, bobs = bench.pilot(), bench.pilot(site="bobs")
    calls, plain = bench.submit(shape(1, call=True), owner="bob"), bench.submit(shape(1), owner="bob")
    assert "calls go to pilots of your own" in str(explain(bench.core.state, bench.now, calls))
    assert [bench.core.state.attempts.task[a & ROW_MASK] >> 32 for a, _ in bench.take(anns)] == [plain]
    assert [bench.core.state.attempts.task[a & ROW_MASK] >> 32 for a, _ in bench.take(bobs)] == [calls]
    assert len(bench.take(anns)) == 0
    mine = bench.submit(shape(1, call=True))
    bench.restart()
    assert [bench.core.state.attempts.task[a & ROW_MASK] >> 32 for a, _ in bench.take(anns)] == [mine]


def test_runs_where_lists_the_stretches_of_a_mask() -> None:
    runs = lambda text: runs_where(np.array([c == "x" for c in text], dtype=bool))
    assert runs("") == runs("..") == []
    assert runs("xxx") == [(0, 3)] and runs("x.x") == [(0, 1), (2, 1)] and runs(".xx.") == [(1, 2)]


def test_cancelled_bag_keeps_the_tasks_that_have_ended(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(6)), bench.pilot(6)
    work = bench.take(pilot, want=4)
    bench.report(pilot, work[1][0])
    done = bench.do(e.Cancel(0, bag, None, waiting=True))
    assert (done.value, bench.tasks(bag)) == (2, "asaacc")
    assert (bench.do(e.Cancel(0, bag, None)).value, bench.tasks(bag)) == (3, "cscccc")
    assert bench.facts[0].runs == [(0, 1), (2, 2)]
    assert (bench.do(e.Retry(0, bag, None)).value, bench.tasks(bag)) == (5, "rsrrrr")


# --- policies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [" " * 400 + "1" * 800 + "!", "1" * 4_095 + "!", "1 a" * 1_300 + "!"])
def test_text_that_is_no_number_is_refused_within_two_seconds(text: str) -> None:
    for key in ("per-host", "attempt-deadline"):
        began = time.process_time()
        with pytest.raises(BadInput):
            setting(text, key)
        assert time.process_time() - began < 2, "it took minutes"


def test_long_expression_of_tasks_is_refused_for_a_bag_of_many_targets() -> None:
    from windfall.core.messages import effects as x, events as e

    b = Bench()
    targets = [shape(1, name=f"t{number}") for number in range(1_000)]
    long = " + ".join(["Task.Cores"] * 150) + " > 0"
    for text, taken in (("Task.Cores > 0", True), (long, False), (long.replace("Task", "Host"), True)):
        event = e.Submit(0, "ann", "bag", "", b"spec", targets, False, "fcfs", False, policy={"requirements": text})
        made = b.do(event)
        assert isinstance(made, x.Done) is taken
        if not taken:
            assert "1,000 targets" in made.message and "1,000,000" in made.hint
    bag = max(b.core.state.bags)
    assert "targets" in b.do(e.SetPolicy(0, bag, {"requirements": long}, "ann")).message


@pytest.mark.parametrize("wrong", [
    DataSelection(latency=0), DataSelection(unit=0), DataSelection(penalty=float("nan")),
    DataSelection(penalty=float("inf")), DataSelection(penalty=-1.0), DataSelection(arrivals=0),
    DataSelection(candidates=0),
], ids=str)  # fmt: skip
def test_meaningless_parameters_of_data_selection_are_refused(bench: Bench, wrong: DataSelection) -> None:
    event = e.Submit(0, "ann", "bag", "", b"spec", [shape(2)], False, "data-conscious", False, data=DataShape(),
                     data_selection=wrong)
    assert bench.do(event).error == "bad-input"
