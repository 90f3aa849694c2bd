"""Tasks that save their state, tasks that take a pilot whole, and disk as a resource."""

from __future__ import annotations

import msgspec
import pytest

from tests.core.conftest import Bench, shape
from windfall.core.messages import events as e

GRACE = 1_000
SAVING = 2_000  # grace and what it takes to be worth starting
FILE = ("state.bin", "ab" * 32, 7, 0o600)
NEWER = ("state.bin", "cd" * 32, 9, 0o600)


def saved(bench: Bench, bag: int, task: int = 0) -> object:
    return bench.core.state.bags[bag].checkpoints.get(task)


def start(bench: Bench, **changes: object) -> tuple[int, int, int]:
    bag = bench.submit(shape(checkpoint=True, **changes))
    pilot = bench.pilot()
    ((attempt, _),) = bench.take(pilot)
    return bag, pilot, attempt


def test_what_was_saved_is_there_for_the_next_attempt(bench: Bench) -> None:
    bag, pilot, attempt = start(bench, retries=0)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    assert saved(bench, bag) == [FILE]
    ((again, _),) = bench.take(pilot)
    bench.report(pilot, again, "returned", "stop", saved=[NEWER])
    assert saved(bench, bag) == [NEWER] and bench.task(bag) == "ready"


def test_an_attempt_that_saves_nothing_keeps_what_there_was(bench: Bench) -> None:
    bag, pilot, attempt = start(bench)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    bench.report(pilot, bench.take(pilot)[0][0], "returned", "stop")
    assert saved(bench, bag) == [FILE]


def test_it_survives_a_restart_from_journal_and_from_snapshot(bench: Bench) -> None:
    bag, pilot, attempt = start(bench)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    bench.restart()
    assert saved(bench, bag) == [FILE]
    snapshot = bench.snapshot()
    bench.restart(snapshot)
    assert saved(bench, bag) == [FILE]


@pytest.mark.parametrize(("outcome", "why"), [("succeeded", ""), ("failed", "exit"), ("cancelled", "cancel")])
def test_it_is_dropped_when_the_task_has_ended(bench: Bench, outcome: str, why: str) -> None:
    bag, pilot, attempt = start(bench, retries=0)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    ((again, _),) = bench.take(pilot)
    if outcome == "cancelled":
        bench.step(e.Cancel(0, bag, None))
    bench.report(pilot, again, outcome, why)
    assert bench.task(bag) == outcome and saved(bench, bag) is None


def test_it_is_dropped_in_bulk(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(40, checkpoint=True)), bench.pilot(40)
    attempts = [attempt for attempt, _ in bench.take(pilot)]
    bench.report(pilot, attempts[0], "returned", "stop", saved=[FILE])
    attempts[0] = bench.take(pilot)[0][0]
    bench.exchange(pilot, reports=[e.Report(a, wall=5) for a in attempts])
    assert bench.core.state.bags[bag].checkpoints == {}


def test_a_bad_exit_saves_nothing_but_the_time_limit_does(bench: Bench) -> None:
    bag, pilot, attempt = start(bench, limit=10_000)
    bench.report(pilot, attempt, "failed", "exit", exit=1, saved=[FILE])
    assert saved(bench, bag) is None
    bench.report(pilot, bench.take(pilot)[0][0], "failed", "time", saved=[FILE])
    assert saved(bench, bag) == [FILE]


def test_files_that_could_not_be_had_are_forgotten(bench: Bench) -> None:
    bag, pilot, attempt = start(bench)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    bench.report(pilot, bench.take(pilot)[0][0], "failed", "input")
    assert saved(bench, bag) is None and bench.task(bag) == "ready"


def test_who_names_no_checkpoint_files_saves_none(bench: Bench) -> None:
    bag, pilot = bench.submit(shape()), bench.pilot()
    bench.report(pilot, bench.take(pilot)[0][0], "returned", "stop", saved=[FILE])
    assert saved(bench, bag) is None


def test_it_needs_only_its_grace_of_the_time_left(bench: Bench) -> None:
    bench.submit(shape(checkpoint=True, limit=3_600_000, grace=GRACE))
    pilot = bench.pilot()
    assert bench.take(pilot, left=SAVING - 1) == []
    assert len(bench.take(pilot, left=SAVING)) == 1


def test_being_returned_costs_nothing_however_often(bench: Bench) -> None:
    bag, pilot, attempt = start(bench, retries=0)
    for _ in range(20):
        bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
        ((attempt, _),) = bench.take(pilot)
    bench.report(pilot, attempt, wall=5)
    assert bench.task(bag) == "succeeded"


# --- whole pilots --------------------------------------------------------------------------------------------------


def test_a_whole_task_takes_the_pilot_for_itself(bench: Bench) -> None:
    bench.submit(shape(3, whole=True, cores=2), external=True)  # no prefetch
    assert bench.take(bench.pilot(1)) == []
    pilot = bench.pilot(8)
    ((attempt, _),) = bench.take(pilot)
    bench.submit(shape(3), external=True)
    assert bench.take(pilot) == [], "nothing runs beside it"
    bench.report(pilot, attempt)
    assert len(bench.take(pilot)) == 1


def test_a_whole_task_waits_for_what_runs(bench: Bench) -> None:
    bench.submit(shape(1), external=True)
    pilot = bench.pilot(4)
    ((attempt, _),) = bench.take(pilot)
    whole = bench.submit(shape(1, whole=True), external=True)
    assert bench.take(pilot) == []
    assert "busy" in bench.explain(whole)
    bench.report(pilot, attempt)
    assert len(bench.take(pilot)) == 1


# --- disk ------------------------------------------------------------------------------------------------------------


def test_a_site_short_of_disk_runs_few_at_a_time(bench: Bench) -> None:
    bench.submit(shape(8, disk=10 << 30, expect=1))  # short: others would be held ahead
    pilot = bench.pilot(8, disk=32 << 30)
    held = bench.take(pilot)
    assert len(held) == 3
    assert bench.take(pilot) == []
    bench.report(pilot, held[0][0])
    assert len(bench.take(pilot)) == 1, "the next one fills in as space frees"


def test_a_snapshot_holds_what_changed(bench: Bench) -> None:
    bag, pilot, attempt = start(bench)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    name = f"b{bag}/c0"
    position, meta, chunks = bench.snapshot()
    assert name in chunks
    bench.core.saved()
    assert name not in bench.snapshot()[2], "nothing of it changed"
    bench.restart((position, meta, chunks))
    assert saved(bench, bag) == [FILE] and name not in bench.snapshot()[2]
    bench.step(e.Cancel(0, bag, None))
    assert msgspec.msgpack.decode(bench.snapshot()[2][name]) == []
    bench.step(e.Remove(0, bag))
    assert name in bench.core.snapshot()[2], "it is dropped with its bag"
