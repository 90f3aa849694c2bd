"""Verdicts: what state a report gives to a task."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.conftest import GONE_SILENT, Bench, shape
from windfall.core.decide.requests.intake import submission
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import CANCELLED
from windfall.core.state.world import TaskClass
from windfall.model.spec import Bag, Target


def class_of(bench: Bench, attempt: int) -> TaskClass:
    attempts = bench.core.state.attempts
    return bench.core.state.classes[attempts.cls[attempts.row(attempt)]]


def test_bag_ends_when_all_its_tasks_have_succeeded(bench: Bench) -> None:
    bag = bench.submit(shape(2))
    pilot = bench.pilot(2)
    (a, _), (b, _) = bench.take(pilot)
    assert bench.tasks(bag) == "aa"
    bench.report(pilot, a, wall=10)
    bench.report(pilot, b, wall=10)
    assert bench.tasks(bag) == "ss" and bench.core.state.bags[bag].ended == bench.now


def test_many_successes_are_one_fact(bench: Bench) -> None:
    bag = bench.submit(shape(100))
    pilot = bench.pilot(100)
    reports = [e.Report(a, wall=5) for a, _ in bench.take(pilot)]
    bench.exchange(pilot, reports=reports)
    assert [type(fact) for fact in bench.facts] == [f.Finished]
    assert bench.core.state.bags[bag].counts[4] == 100


def test_failures_cost_retries_and_then_the_task(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(retries=2)), bench.pilot()
    for _ in range(2):
        bench.report(pilot, bench.take(pilot)[0][0], "failed", "exit", exit=1)
        assert bench.task(bag) == "ready"
    bench.report(pilot, bench.take(pilot)[0][0], "failed", "output")
    assert bench.task(bag) == "failed" and bench.take(pilot) == []


def test_task_may_have_more_retries_than_a_byte_holds(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(retries=300)), bench.pilot()
    for _ in range(301):
        assert bench.task(bag) == "ready"
        bench.report(pilot, bench.take(pilot)[0][0], "failed", "exit")
    assert bench.task(bag) == "failed"


def test_a_hopeless_exit_costs_all_retries(bench: Bench) -> None:
    """Only `exit` failures count by their code; another failure that carries the code costs one retry."""
    bag, pilot = bench.submit(shape(retries=5, exits_not_retried=[3, 7])), bench.pilot()
    for why, code in (("exit", 1), ("output", 7), ("signal", 0)):
        bench.report(pilot, bench.take(pilot)[0][0], "failed", why, exit=code)
        assert bench.task(bag) == "ready"
    bench.report(pilot, bench.take(pilot)[0][0], "failed", "exit", exit=7)
    assert bench.task(bag) == "failed" and bench.take(pilot) == []
    bench.do(e.Retry(0, bag, None, "ann"))
    assert bench.task(bag) == "ready" and bench.core.state.bags[bag].tasks.failures[0] == 0


def test_missing_program_is_not_retried_and_no_host_is_at_fault(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(retries=5)), bench.pilot()
    bench.report(pilot, bench.take(pilot)[0][0], "failed", "program")
    assert bench.task(bag) == "failed" and bench.take(pilot) == []
    state = bench.core.state
    assert state.hosts.streak[state.pilots[pilot].row] == 0


@pytest.mark.parametrize("outcome", ["returned", "cancelled", "lost"])
def test_attempt_that_did_not_fail_costs_no_retry(bench: Bench, outcome: str) -> None:
    bag, pilot = bench.submit(shape(retries=0)), bench.pilot()
    for _ in range(5):
        bench.report(pilot, bench.take(pilot)[0][0], outcome, "stop")
        assert bench.task(bag) == "ready" and bench.core.state.bags[bag].tasks.failures[0] == 0


def test_a_duration_failure_triples_the_limit_three_times(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(limit=1_000, retries=0)), bench.pilot()
    limits = []
    for _ in range(4):
        assert bench.task(bag) == "ready"
        attempt = bench.take(pilot)[0][0]
        limits.append(class_of(bench, attempt).limit)
        bench.report(pilot, attempt, "failed", "time")
    assert limits == [1_000, 3_000, 9_000, 27_000]
    assert bench.task(bag) == "failed"


@pytest.mark.parametrize("again", [0, 1])
def test_duration_failures_are_retried_as_often_as_the_bag_says(bench: Bench, again: int) -> None:
    bag, pilot = bench.submit(shape(limit=1_000, retries=3, time_retries=again)), bench.pilot()
    for _ in range(again + 1):
        assert bench.task(bag) == "ready"
        bench.report(pilot, bench.take(pilot)[0][0], "failed", "time")
    assert bench.task(bag) == "failed" and bench.take(pilot) == []


@pytest.mark.parametrize(("retries", "given", "wanted"), [(3, None, 3), (0, None, 0), (0, 2, 2), (5, 0, 0)])
def test_tasks_without_retries_get_no_longer_limit_unless_the_bag_says_so(
        retries: int, given: int | None, wanted: int) -> None:
    target = Target(command="true", retries=retries, time_retries=given)
    (read,) = submission(1, "ann", Bag(name="b", targets=[target])).targets
    assert read.time_retries == wanted


def test_out_of_memory_tries_again_with_twice_as_much(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(memory=1 << 30, memory_retries=2, retries=0)), bench.pilot(memory=8 << 30)
    sizes = []
    for _ in range(3):
        (attempt, _), = bench.take(pilot)
        sizes.append(class_of(bench, attempt).memory >> 30)
        bench.report(pilot, attempt, "failed", "memory")
    assert sizes == [1, 2, 4] and bench.task(bag) == "failed"


def test_duplicate_report_counts_once(bench: Bench) -> None:
    """A duplicate in the same request, too: it once took the count of the task's attempts below zero."""
    bag, pilot = bench.submit(shape(2)), bench.pilot(2)
    (a, _), (b, _) = bench.take(pilot)
    bench.exchange(pilot, reports=[e.Report(a, "failed", "exit"), e.Report(a, "failed", "exit"), e.Report(b)])
    assert bench.core.state.bags[bag].tasks.failures[0] == 1 and bench.tasks(bag) == "rs"
    bench.exchange(pilot, reports=[e.Report(a), e.Report(b)])
    assert bench.facts == []


def test_reports_of_strangers_are_ignored(bench: Bench) -> None:
    bag, holder, other = bench.submit(), bench.pilot(), bench.pilot()
    (attempt, _), = bench.take(holder)
    bench.report(other, attempt)
    bench.exchange(other, started=[attempt], held=[attempt, 7, 1 << 60])
    assert bench.task(bag) == "active" and bench.attempt(attempt) == "granted"


def test_a_late_success_of_a_lost_attempt_counts(bench: Bench) -> None:
    bag, slow, other = bench.submit(shape(retries=0)), bench.pilot(), bench.pilot()
    (late, _), = bench.take(slow)
    bench.wait(GONE_SILENT)
    assert bench.task(bag) == "ready" and bench.attempt(late) == "lost"
    bench.exchange(other, held=[])
    (second, _), = bench.take(other)
    bench.report(other, second, "failed", "exit")
    assert bench.task(bag) == "failed"
    bench.report(slow, late)
    assert bench.task(bag) == "succeeded" and bench.attempt(late) == "free"


def test_two_attempts_the_first_success_wins_and_the_other_is_stopped(bench: Bench) -> None:
    bag, first, second = bench.submit(), bench.pilot(), bench.pilot()
    (a, _), = bench.take(first)
    bench.wait(GONE_SILENT)
    bench.exchange(second, held=[])
    (b, _), = bench.take(second)
    bench.exchange(first, started=[a], held=[a])
    assert bench.core.state.bags[bag].tasks.live[0] == 2
    bench.report(first, a)
    assert bench.task(bag) == "succeeded" and bench.attempt(b) == "dropped"
    assert bench.exchange(second).cancel == [b]
    bench.report(second, b)
    assert bench.attempt(b) == "free" and not bench.facts[0].ends[0].decides


def test_two_attempts_on_one_pilot_end_together(bench: Bench) -> None:
    """Judged together, each of the two would leave the task to the other for ever."""
    bag, pilot = bench.submit(), bench.pilot()
    (a, _), = bench.take(pilot)
    bench.wait(GONE_SILENT)
    bench.exchange(pilot, held=[])
    (b, _), = bench.take(pilot)
    bench.exchange(pilot, started=[a])
    bench.step(e.Gone(0, pilot))
    assert bench.task(bag) == "ready"
    assert bench.attempt(a) == bench.attempt(b) == "lost"


def test_a_retry_starts_a_new_generation(bench: Bench) -> None:
    bag, slow, other = bench.submit(shape(retries=0)), bench.pilot(), bench.pilot()
    (old, _), = bench.take(slow)
    bench.exchange(slow, started=[old])
    bench.step(e.Cancel(0, bag, None))
    bench.step(e.Retry(0, bag, None))
    assert bench.task(bag) == "ready" and bench.core.state.bags[bag].tasks.generation[0] == 1
    (new, _), = bench.take(other)
    bench.report(slow, old)
    assert bench.task(bag) == "active"
    bench.report(other, new)
    assert bench.task(bag) == "succeeded"


def test_a_retry_drops_lost_attempts_of_the_generation_before(bench: Bench) -> None:
    bag, slow, other = bench.submit(shape(retries=0)), bench.pilot(), bench.pilot()
    (old, _), = bench.take(slow)
    bench.wait(GONE_SILENT)
    bench.exchange(other, held=[])
    bench.report(other, bench.take(other)[0][0], "failed", "exit")
    bench.step(e.Retry(0, bag, None))
    assert bench.attempt(old) == "dropped"
    bench.report(slow, old)
    assert bench.task(bag) == "ready"


def test_three_deaths_of_pilots_quarantine_a_task(bench: Bench) -> None:
    """Deaths count, too, if the pilot died before it reported the task as started."""
    bag = bench.submit()
    for n in range(3):
        pilot = bench.pilot()
        (attempt, _), = bench.take(pilot)
        if n == 1:
            bench.exchange(pilot, started=[attempt])
        assert bench.task(bag) == "active"
        bench.step(e.Gone(0, pilot))
    assert bench.task(bag) == "quarantined"
    bench.step(e.Retry(0, bag, None))
    assert bench.task(bag) == "ready"


def test_pilot_death_counts_once_it_is_reported_after_silence(bench: Bench) -> None:
    bag = bench.submit()
    for _ in range(3):
        pilot = bench.pilot()
        assert len(bench.take(pilot)) == 1
        bench.wait(GONE_SILENT)
        assert bench.task(bag) == "ready"
        bench.step(e.Gone(0, pilot))
    assert bench.task(bag) == "quarantined"


def test_prefetched_task_is_charged_with_no_pilot_death(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2)), bench.pilot()
    assert len(bench.take(pilot)) == 2
    bench.step(e.Gone(0, pilot))
    assert list(bench.core.state.bags[bag].tasks.deaths[:2]) == [1, 0]


def test_a_clean_goodbye_is_no_death(bench: Bench) -> None:
    bag, pilot = bench.submit(), bench.pilot()
    (attempt, _), = bench.take(pilot)
    bench.exchange(pilot, started=[attempt], bye="walltime")
    assert bench.task(bag) == "ready" and bench.core.state.bags[bag].tasks.deaths[0] == 0
    assert bench.attempt(attempt) == "free"


def test_a_task_that_kills_what_runs_it_is_quarantined(bench: Bench) -> None:
    bag = bench.submit(shape(retries=0))
    pilot = bench.pilot()
    for _ in range(3):
        [(attempt, _)] = bench.take(pilot)
        bench.report(pilot, attempt, "returned", "gone")
    assert bench.task(bag) == "quarantined"


@pytest.mark.parametrize("n", [1, 20])
def test_impossible_times_of_a_report_are_brought_into_range(bench: Bench, n: int) -> None:
    bench.submit(shape(n))
    pilot = bench.pilot(n)
    granted_at, work = bench.now, bench.take(pilot)
    bench.wait(5_000)
    far = 1 << 53
    bench.exchange(pilot, reports=[e.Report(a, t0=far if a % 2 else 1, wall=far) for a, _ in work])
    told = bench.facts[0]
    ends = told.ends if isinstance(told, f.Ended) else []
    walls = [end.wall for end in ends] or told.walls
    starts = [end.start for end in ends] or told.starts
    assert len(walls) == n and set(walls) == {5_000 + bench.config.lease}
    assert set(starts) <= {granted_at, bench.now}


def test_failure_is_followed_to_its_own_dependants_only(bench: Bench) -> None:
    """Otherwise each of a hundred thousand failures would cost more than the one before it."""
    pairs = np.array([(task, 90 + task) for task in range(90)], "<i4").tobytes()
    bag, pilot = bench.submit(shape(90, retries=0), shape(90), edges=pairs), bench.pilot(cores=90)
    held, calls = bench.take(pilot, want=90), []
    bench.counting = True
    for attempt, task in held:
        bench.exchange(pilot, reports=[e.Report(attempt, "failed", "exit")])
        assert bench.task(bag, task) == "failed" and bench.task(bag, 90 + task) == "cancelled"
        calls.append(bench.calls)
    assert bench.core.state.bags[bag].counts[CANCELLED] == 90
    assert calls[80] < calls[10] + 30, "as many calls as after ten failures"
