"""Leases: what the core concludes from the silence of a pilot, and when (rule 8)."""

from __future__ import annotations

import pytest

from tests.core.conftest import GONE_SILENT, LEASE, MARGIN, TOGETHER, Bench, answers, granted, shape
from windfall.core.messages import events as e

HOUR = 3_600_000


def test_expired_lease_gives_back_the_attempts_not_started_and_no_other(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2)), bench.pilot()
    (running, _), (queued, _) = bench.take(pilot)
    bench.exchange(pilot, started=[running])
    bench.wait(LEASE + MARGIN - 1)
    assert bench.tasks(bag) == "aa"
    bench.wait(1 + TOGETHER)
    assert bench.tasks(bag) == "ar"
    assert (bench.attempt(running), bench.attempt(queued)) == ("started", "lost")


def started(bench: Bench, left: int | None = None, **changes: object) -> tuple[int, int, int]:
    bag, pilot = bench.submit(shape(**changes)), bench.pilot(left=left)
    (attempt, _), = bench.take(pilot, left=left)
    bench.exchange(pilot, started=[attempt])
    return bag, pilot, attempt


def test_started_attempt_is_lost_after_its_limit_and_a_lease_of_silence(bench: Bench) -> None:
    bag, _, attempt = started(bench, limit=600_000)
    bench.wait(600_000 + LEASE)
    assert bench.task(bag) == "active"
    bench.wait(2 * (LEASE + MARGIN))
    assert bench.task(bag) == "ready" and bench.attempt(attempt) == "lost"


def test_started_attempt_is_lost_when_the_wall_time_of_its_pilot_is_over(bench: Bench) -> None:
    bag, _, _ = started(bench, left=300_000)
    bench.wait(300_000)
    assert bench.task(bag) == "active"
    bench.wait(3 * (LEASE + MARGIN))
    assert bench.task(bag) == "ready"


def test_started_attempt_without_a_limit_is_lost_after_an_hour_of_silence(bench: Bench) -> None:
    bag, pilot, _ = started(bench)
    bench.wait(HOUR - 1_000)
    assert bench.task(bag) == "active"
    bench.wait(3 * (LEASE + MARGIN))
    assert bench.task(bag) == "ready"
    assert bench.core.state.pilots[pilot].why == "silent"


def test_started_attempt_is_lost_when_its_pilot_is_reported_gone(bench: Bench) -> None:
    bag, pilot, _ = started(bench)
    bench.step(e.Gone(0, pilot, "node failed"))
    assert bench.task(bag) == "ready"


def test_a_pilot_that_talks_keeps_what_it_runs(bench: Bench) -> None:
    bag, pilot, _ = started(bench, limit=1_000)
    for _ in range(20):
        bench.wait(LEASE)
        bench.exchange(pilot)
    assert bench.task(bag) == "active"


def test_external_effects_are_never_given_up_on_silence(bench: Bench) -> None:
    bag = bench.submit(shape(limit=1_000), external=True)
    pilot = bench.pilot(left=100_000)
    (attempt, _), = bench.take(pilot, left=100_000)
    bench.wait(10 * HOUR)
    assert bench.task(bag) == "active" and bench.attempt(attempt) == "granted"
    assert "only you can say" in bench.explain(bag)
    bench.step(e.Gone(0, pilot))
    assert bench.task(bag) == "ready"


def test_external_effects_are_not_prefetched(bench: Bench) -> None:
    bench.submit(shape(5), external=True)
    assert len(bench.take(bench.pilot(2))) == 2


def test_silent_pilot_must_list_what_it_holds_before_it_is_granted(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(3)), bench.pilot()
    (a, _), (b, _) = bench.take(pilot)
    bench.wait(GONE_SILENT)
    answer = bench.exchange(pilot, want=5, started=[a])
    assert answer.census and answer.grants == [] and answer.cancel == [b]  # it renews the lease
    assert bench.attempt(a) == "started"
    bench.report(pilot, b, "cancelled", "cancel")
    answer = bench.exchange(pilot, want=5, held=[a])
    assert not answer.census and len(granted(answer)) == 1
    assert bench.tasks(bag).count("a") == 2


def test_lost_attempt_goes_on_when_its_pilot_comes_back(bench: Bench) -> None:
    bag, pilot, attempt = started(bench, limit=1_000)
    bench.wait(1_000 + 3 * (LEASE + MARGIN))
    assert bench.attempt(attempt) == "lost"
    answer = bench.exchange(pilot, held=[attempt])
    assert answer.cancel == [] and bench.attempt(attempt) == "started" and bench.task(bag) == "active"


def test_lost_attempt_of_a_finished_task_is_cancelled_when_its_pilot_comes_back(bench: Bench) -> None:
    bag, pilot, attempt = started(bench, limit=1_000)
    bench.wait(1_000 + 3 * (LEASE + MARGIN))
    other = bench.pilot()
    bench.report(other, bench.take(other)[0][0])
    assert bench.exchange(pilot, held=[attempt]).cancel == [attempt]
    assert bench.task(bag) == "succeeded"


def test_gone_pilot_that_speaks_is_told_to_stop(bench: Bench) -> None:
    bag, pilot, attempt = started(bench)
    bench.step(e.Gone(0, pilot))
    answer = bench.exchange(pilot, started=[attempt], held=[attempt], want=3)
    assert answer.stop == "superseded" and answer.grants == [] and answer.cancel == []
    bench.report(pilot, attempt)
    assert bench.task(bag) == "succeeded"


def test_restarted_core_takes_silence_for_nothing_during_one_lease(bench: Bench) -> None:
    bag, pilot = bench.submit(), bench.pilot()
    bench.take(pilot)
    bench.wait(LEASE)
    bench.restart()
    bench.wait(LEASE + MARGIN - 1)
    assert bench.task(bag) == "active"
    bench.wait(1 + TOGETHER)
    assert bench.task(bag) == "ready"


def test_pending_cancel_survives_a_restart(bench: Bench) -> None:
    bag, pilot, attempt = started(bench)
    bench.step(e.Cancel(0, bag, None))
    bench.restart()
    assert bench.exchange(pilot).cancel == [attempt]


def test_silent_pilot_that_holds_only_cancelled_attempts_is_given_up(bench: Bench) -> None:
    bag, pilot, attempt = started(bench)
    bench.step(e.Cancel(0, bag, None))
    bench.wait(HOUR + 3 * LEASE)
    assert bench.core.state.pilots[pilot].why == "silent" and bench.attempt(attempt) == "free"


def test_gone_pilots_are_forgotten_with_their_tokens() -> None:
    bench = Bench(forget=1_000_000)
    bag, pilot = bench.submit(), bench.pilot(nonce="n")
    bench.take(pilot)
    bench.step(e.Gone(0, pilot))
    bench.wait(3_000_000)
    assert pilot in bench.core.state.pilots  # the pilot's attempt may still bring the result
    other = bench.pilot()
    bench.report(other, bench.take(other)[0][0])
    bench.exchange(other, bye="idle")
    bench.wait(3_000_000)
    state = bench.core.state
    assert (state.pilots, state.tokens, state.token_ids, state.nonces) == ({}, {}, {}, {})
    assert bench.exchange(pilot).error == "unauthorised"
    bench.restart()
    assert bench.pilot(nonce="n") == 3 and bench.task(bag) == "succeeded"


@pytest.mark.parametrize("restart", [False, True])
def test_forgetting_survives_a_restart(restart: bool) -> None:
    bench = Bench(forget=1_000_000)
    bench.exchange(bench.pilot(), bye="idle")
    if restart:
        bench.restart(bench.snapshot())
    bench.wait(1_000_001)
    assert bench.core.state.pilots == {}
    assert answers(bench.effects, 1) == []


def test_silence_charges_no_task_with_a_death(bench: Bench) -> None:
    bag = bench.submit()
    for _ in range(4):
        pilot = bench.pilot()
        [(attempt, _)] = bench.take(pilot)
        bench.exchange(pilot, started=[attempt])
        bench.wait(bench.config.silence + 2 * GONE_SILENT)
    assert bench.task(bag) == "ready"
