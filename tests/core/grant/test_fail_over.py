"""Fail-over: tasks that keep failing go to the fail-over site of their bag (G11) and never wait for it for ever
(P4)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import HOUR, Bench, granted, shape
from tests.core.data_bench import EDGES, DataBench, data
from tests.core.provision.tender import ONE, Tender, states
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.facts import TO_FAIL_OVER
from windfall.core.read.views import site_detail

WAIT = 3_600_000  # ms after which any site will do


def submit(bench: Bench, *targets: f.TargetShape, site: str = "safe", **more: Any) -> Any:
    owner = more.pop("owner", "ann")
    event = e.Submit(0, owner, "bag", "", b"spec", list(targets) or [shape(1)], False, "fcfs", more.pop("open", False),
                     more.pop("edges", b""), more.pop("provision", "swarm"), fail_over=site, **more)
    return bench.do(event)


@pytest.fixture
def number(bench: Bench) -> int:
    """Submit a bag of one task that names a fail-over site."""
    bench.step(e.AddSite(0, "safe", "ann", "local"))
    return int(submit(bench).value)


def is_moved(bench: Bench, bag: int, task: int = 0) -> bool:
    return bool(bench.core.state.bags[bag].tasks.variant[task] & TO_FAIL_OVER)


def fail(bench: Bench, pilot: int, times: int = 1, why: str = "exit") -> int:
    """Let the pilot take and fail a task so many times; return how often it was granted one."""
    given = 0
    for _ in range(times):
        answer = bench.exchange(pilot, want=1)
        held = granted(answer) if answer is not None else []
        given += len(held)
        for attempt, _ in held:
            bench.report(pilot, attempt, "failed", why)
    return given


def fail_over_notes(bench: Bench, site: str = "safe") -> list[str]:
    return [says for _, kind, says in bench.core.state.sites[site].history if kind == "fail-over"]


# --- when -----------------------------------------------------------------------------------------------------------


def test_the_second_failure_moves_a_task(bench: Bench, number: int) -> None:
    here, safe = bench.pilot(), bench.pilot(site="safe")
    assert fail(bench, here) == 1 and not is_moved(bench, number)
    assert fail(bench, here) == 1 and is_moved(bench, number)
    assert fail(bench, here) == 0  # the task has moved, and the pilot's poll waits
    ((attempt, _),) = bench.take(safe)
    bench.report(safe, attempt)
    assert bench.tasks(number) == "s"


def test_single_retry_of_a_task_runs_at_the_fail_over_site(bench: Bench) -> None:
    bench.step(e.AddSite(0, "safe", "ann", "local"))
    number = submit(bench, shape(1, retries=1)).value
    fail(bench, bench.pilot())
    assert is_moved(bench, number) and bench.task(number) == "ready"


def test_task_without_retries_fails_and_does_not_move(bench: Bench) -> None:
    bench.step(e.AddSite(0, "safe", "ann", "local"))
    number = submit(bench, shape(1, retries=0)).value
    fail(bench, bench.pilot())
    assert bench.task(number) == "failed" and not fail_over_notes(bench)


def test_pilot_deaths_count_as_failures_and_exceeded_limits_do_not(bench: Bench) -> None:
    bench.step(e.AddSite(0, "safe", "ann", "local"))
    number = submit(bench, shape(1, limit=1_000, memory=1, memory_retries=3)).value
    fail(bench, bench.pilot(), 2, "time")
    fail(bench, bench.pilot(), 2, "memory")
    assert not is_moved(bench, number)
    for _ in range(2):
        pilot = bench.pilot()
        ((attempt, _),) = bench.take(pilot, want=1)
        bench.exchange(pilot, started=[attempt])
        bench.step(e.Gone(0, pilot, "gone"))
    assert is_moved(bench, number)
    cls = next(cls for cls in bench.core.state.bags[number].classes.values() if cls.ready)
    assert (cls.time_retries, cls.memory_retries, cls.limit) == (2, 2, 9_000)  # the longer limits are kept


def test_bag_without_a_fail_over_site_moves_no_task(bench: Bench) -> None:
    number = bench.submit(shape(1))
    pilot = bench.pilot()
    assert fail(bench, pilot, 3) == 3 and not is_moved(bench, number)


def test_retry_by_the_user_starts_at_any_site_again(bench: Bench, number: int) -> None:
    here = bench.pilot()
    fail(bench, here, 2)
    fail(bench, bench.pilot(site="safe"), 2)
    assert bench.task(number) == "failed"
    bench.step(e.Retry(0, number, None))
    assert not is_moved(bench, number) and fail(bench, here) == 1


def test_tasks_that_succeed_do_not_move(bench: Bench) -> None:
    bench.step(e.AddSite(0, "safe", "ann", "local"))
    number = submit(bench, shape(3, retries=9)).value
    here = bench.pilot()
    for _ in range(2):
        held = bench.take(here, want=3)
        for attempt, task in held:
            bench.report(here, attempt, *(("failed", "exit") if task == 0 else ("succeeded",)))
    assert bench.tasks(number) == "rss" and is_moved(bench, number)


# --- never for ever (P4) --------------------------------------------------------------------------------------------


def waiting_pilot(bench: Bench) -> int:
    """Return a pilot whose poll waits, because the only task has moved to its fail-over site."""
    here = bench.pilot()
    fail(bench, here, 2)
    assert bench.exchange(here, want=1, wait=10 * WAIT) is None
    return here


def count_granted(effects: list[x.Effect], pilot: int) -> int:
    return sum(len(granted(each)) for each in effects if isinstance(each, x.ExchangeReply) and each.pilot == pilot)


def test_moved_task_goes_anywhere_when_its_site_is_drained(bench: Bench, number: int) -> None:
    here = waiting_pilot(bench)
    assert count_granted(bench.step(e.DrainSite(0, "safe", "ann", True)), here) == 1
    assert bench.task(number) == "active"


def test_moved_task_goes_anywhere_when_its_site_is_removed(bench: Bench, number: int) -> None:
    here = waiting_pilot(bench)
    assert count_granted(bench.step(e.RemoveSite(0, "safe", "ann")), here) == 1


def test_moved_task_goes_anywhere_when_its_site_is_no_longer_shared(bench: Bench) -> None:
    bench.step(e.AddSite(0, "safe", "bob", "local", ["ann"]))
    submit(bench)
    here = waiting_pilot(bench)
    assert count_granted(bench.step(e.ShareSite(0, "safe", [], ["ann"], "bob")), here) == 1


def test_moved_task_goes_anywhere_when_its_site_is_suspect(bench: Bench, number: int) -> None:
    here = waiting_pilot(bench)
    bench.core.turn.emit(f.SiteJudged(bench.now, "safe", bench.now, "nobody there says anything"))
    assert count_granted(bench.step(), here) == 1
    bench.journal.clear()  # no journal holds a fact emitted between steps


def test_task_does_not_move_to_a_site_whose_shapes_cannot_hold_it(bench: Bench) -> None:
    bench.step(e.AddSite(0, "safe", "ann", "slurm", limits=f.Limits([ONE])))
    submit(bench, shape(1, cores=2))
    here = bench.pilot(cores=2)
    assert fail(bench, here, 3) == 3


def test_moved_task_goes_anywhere_after_an_hour_without_a_pilot_there(bench: Bench, number: int) -> None:
    fail(bench, bench.pilot(), 2)
    bench.wait(WAIT - 1)
    assert fail(bench, bench.pilot()) == 0
    bench.wait(2)
    assert "without a pilot that could take it" in bench.explain(number)
    assert fail_over_notes(bench)[-1].endswith("they go anywhere")
    assert fail(bench, bench.pilot()) == 1


def test_waiting_pilot_is_granted_a_moved_task_after_an_hour_without_a_pilot_there(bench: Bench, number: int) -> None:
    bench.core.turn.config = type(bench.config)(park=10 * WAIT, idle=10 * WAIT, lease=10 * WAIT)
    here = waiting_pilot(bench)
    assert count_granted(bench.wait(WAIT), here) == 1


def test_moved_task_waits_for_a_busy_pilot_of_its_site(bench: Bench, number: int) -> None:
    """The pilot of the site runs another task for longer than the core waits for an absent one."""
    safe = bench.pilot(site="safe")
    bench.submit(shape(1, priority=9))
    ((attempt, _),) = bench.take(safe, want=1)
    here = bench.pilot()
    fail(bench, here, 2)
    for _ in range(3 * WAIT // 60_000):
        bench.wait(60_000)
        bench.exchange(safe, started=[attempt])
        bench.exchange(here)
    assert fail(bench, here) == 0
    bench.report(safe, attempt)
    assert [task for _, task in bench.take(safe, want=1)] == [0]


def test_moved_task_goes_anywhere_when_the_only_pilot_of_its_site_takes_no_tasks(bench: Bench, number: int) -> None:
    safe, here = bench.pilot(site="safe"), bench.pilot()
    fail(bench, here, 2)
    for _ in range(2 * WAIT // 60_000):
        bench.exchange(safe, trouble="its scratch disk is full")
        bench.wait(60_000)
        bench.exchange(here)
    assert fail(bench, here) == 1


def test_released_task_is_bound_again_once_a_pilot_enrols_there(bench: Bench, number: int) -> None:
    here = bench.pilot()
    fail(bench, here, 2)
    bench.wait(WAIT + 1)
    safe = bench.pilot(site="safe")
    bench.submit(shape(1, priority=9))
    ((attempt, _),) = bench.take(safe, want=1)
    for _ in range(WAIT // 60_000):
        bench.wait(60_000)
        bench.exchange(safe, started=[attempt])
    assert fail(bench, bench.pilot()) == 0


# --- pilots are asked for there, and nowhere else -------------------------------------------------------------------


@pytest.mark.parametrize("provision", ["swarm", "demand", "msr", "broker"])
def test_pilots_are_provisioned_at_the_fail_over_site_only(bench: Bench, provision: str) -> None:
    for name in ("c1", "safe"):
        bench.step(e.AddSite(0, name, "ann", "slurm", limits=f.Limits([ONE])))
    tenders = {name: Tender(bench, name, f"t-{name}") for name in ("c1", "safe")}
    number = submit(bench, shape(1, expect=HOUR), provision=provision).value
    for _ in range(2):
        bench.wait(2_000)
        for tender in tenders.values():
            tender.work()
        intent = next(i for i in bench.core.state.intents.values() if i.state < 2)
        pilot = bench.pilot(nonce=intent.nonce, site=intent.site, left=HOUR)
        ((attempt, _),) = bench.take(pilot, want=1, left=HOUR)
        bench.report(pilot, attempt, "failed", "exit")
        bench.exchange(pilot, bye="stopped")
    assert is_moved(bench, number)
    bench.wait(20_000)
    open_ = {i.site for i in bench.core.state.intents.values() if i.state < 2}
    assert open_ == {"safe"}, states(bench)


# --- what is kept, and said -----------------------------------------------------------------------------------------


def test_moved_task_stays_bound_after_a_restart_and_a_snapshot(bench: Bench, number: int) -> None:
    here = bench.pilot()
    fail(bench, here, 2)
    saved = bench.snapshot()
    bench.restart(saved)
    bench.restart()
    assert is_moved(bench, number) and fail(bench, here) == 0
    assert fail_over_notes(bench) == [f"tasks of bag {number} that keep failing go here now"]
    bench.wait(WAIT + 1)  # a new process waits anew
    assert fail(bench, bench.pilot()) == 1


def test_repeated_grant_of_a_moved_task_is_the_same(bench: Bench, number: int) -> None:
    fail(bench, bench.pilot(), 2)
    safe = bench.pilot(site="safe")
    first = bench.exchange(safe, want=1)
    again = bench.exchange(safe, want=1, ack=0)
    assert first is not None and again is not None and granted(first) == granted(again)
    assert [group.to_fail_over_site for _, groups in again.grants for group in groups] == [True]


def test_explain_names_the_fail_over_site_and_the_failures(bench: Bench, number: int) -> None:
    here = bench.pilot()
    fail(bench, here, 2)
    said = bench.explain(number)
    assert "here: fail-over (it has failed 2 times and goes to safe now)" in said
    assert "safe: pilots (no pilot is running there)" in said
    bench.take(bench.pilot(site="safe"), want=1)
    assert "safe is where it goes now" in bench.explain(number)


def test_explain_says_why_a_moved_task_may_go_anywhere(bench: Bench, number: int) -> None:
    fail(bench, bench.pilot(), 2)
    bench.step(e.DrainSite(0, "safe", "ann", True))
    assert "any site will do, for safe is drained" in bench.explain(number)


def test_site_history_notes_the_tasks_of_a_bag_that_move_there_once(bench: Bench) -> None:
    bench.step(e.AddSite(0, "safe", "ann", "local"))
    number = submit(bench, shape(5)).value
    fail(bench, bench.pilot(), 10)
    assert all(is_moved(bench, number, task) for task in range(5)) and len(fail_over_notes(bench)) == 1
    assert "keep failing" in site_detail(bench.core.state, bench.core.state.sites["safe"])["history"][-1]["says"]


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "hint"), [("sfae", "did you mean 'safe'?"), ("x" * 10_000, "known: here, safe")])
def test_unknown_fail_over_site_is_refused_with_a_hint(bench: Bench, number: int, name: str, hint: str) -> None:
    refused = submit(bench, site=name)
    assert isinstance(refused, x.Refuse) and "you have no site called" in refused.message and refused.hint == hint
    assert len(refused.message) < 200


def test_fail_over_site_of_another_owner_is_refused_until_shared(bench: Bench) -> None:
    bench.step(e.AddSite(0, "safe", "bob", "local"))
    assert isinstance(submit(bench), x.Refuse)
    bench.step(e.ShareSite(0, "safe", ["ann"], [], "bob"))
    assert isinstance(submit(bench), x.Done)


def test_moved_task_is_granted_in_the_end_after_its_lost_input_is_made_again() -> None:
    """The input of the task is lost when it fails for the second time; its new class appears once the input is made
    again."""
    bench = DataBench()
    bench.step(e.AddSite(0, "safe", "ann", "local"))
    number = int(submit(bench, shape(4, expect=3_000), edges=EDGES, data=data()).value)
    a, b = bench.host("a"), bench.host("b")
    assert (bench.run(a), bench.run(b)) == (0, 1)
    ((attempt, task),) = granted(bench.ask(b))
    bench.report(b, attempt, "failed", "exit")
    ((other, third),) = granted(bench.ask(b))
    bench.report(b, other)
    ((attempt, again),) = granted(bench.ask(b))
    assert (task, third, again) == (2, 3, 2)
    bench.do(e.LosePlace(0, "here", "a"))
    bench.report(b, attempt, "failed", "exit")
    assert is_moved(bench, number, 2) and bench.tasks(number)[2] == "w"
    given = []
    for name in "cdefghijkl":
        pilot = bench.host(name)
        for attempt, task in granted(bench.ask(pilot)):
            given.append(task)
            bench.report(pilot, attempt)
        bench.wait(WAIT // 2)
    assert 2 in given
