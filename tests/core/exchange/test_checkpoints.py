"""Checkpoints: the core keeps the files that a task saved for the next attempt, until the task has ended."""

from __future__ import annotations

import msgspec
import pytest

from tests.core.conftest import Bench, shape
from windfall.core.messages import events as e

GRACE = 1_000
SAVING = 2_000  # the grace, and the least time that is worth a start
FILE = ("state.bin", "ab" * 32, 7, 0o600)
NEWER = ("state.bin", "cd" * 32, 9, 0o600)


def saved(bench: Bench, bag: int, task: int = 0) -> object:
    return bench.core.state.bags[bag].checkpoints.get(task)


def start(bench: Bench, **changes: object) -> tuple[int, int, int]:
    bag = bench.submit(shape(checkpoint=True, **changes))
    pilot = bench.pilot()
    ((attempt, _),) = bench.take(pilot)
    return bag, pilot, attempt


def test_saved_state_is_kept_for_the_next_attempt(bench: Bench) -> None:
    bag, pilot, attempt = start(bench, retries=0)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    assert saved(bench, bag) == [FILE]
    ((again, _),) = bench.take(pilot)
    bench.report(pilot, again, "returned", "stop", saved=[NEWER])
    assert saved(bench, bag) == [NEWER] and bench.task(bag) == "ready"


def test_attempt_that_saves_nothing_keeps_the_state_saved_before(bench: Bench) -> None:
    bag, pilot, attempt = start(bench)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    bench.report(pilot, bench.take(pilot)[0][0], "returned", "stop")
    assert saved(bench, bag) == [FILE]


def test_saved_state_survives_a_restart_from_journal_and_from_snapshot(bench: Bench) -> None:
    bag, pilot, attempt = start(bench)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    bench.restart()
    assert saved(bench, bag) == [FILE]
    snapshot = bench.snapshot()
    bench.restart(snapshot)
    assert saved(bench, bag) == [FILE]


@pytest.mark.parametrize(("outcome", "why"), [("succeeded", ""), ("failed", "exit"), ("cancelled", "cancel")])
def test_saved_state_is_dropped_when_its_task_has_ended(bench: Bench, outcome: str, why: str) -> None:
    bag, pilot, attempt = start(bench, retries=0)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    ((again, _),) = bench.take(pilot)
    if outcome == "cancelled":
        bench.step(e.Cancel(0, bag, None))
    bench.report(pilot, again, outcome, why)
    assert bench.task(bag) == outcome and saved(bench, bag) is None


def test_saved_state_is_dropped_when_many_tasks_end_in_one_report(bench: Bench) -> None:
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


def test_saved_state_that_could_not_be_fetched_is_dropped(bench: Bench) -> None:
    bag, pilot, attempt = start(bench)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    bench.report(pilot, bench.take(pilot)[0][0], "failed", "input")
    assert saved(bench, bag) is None and bench.task(bag) == "ready"


def test_task_without_checkpoint_files_saves_none(bench: Bench) -> None:
    bag, pilot = bench.submit(shape()), bench.pilot()
    bench.report(pilot, bench.take(pilot)[0][0], "returned", "stop", saved=[FILE])
    assert saved(bench, bag) is None


def test_checkpointed_task_needs_only_its_grace_of_the_time_left(bench: Bench) -> None:
    bench.submit(shape(checkpoint=True, limit=3_600_000, grace=GRACE))
    pilot = bench.pilot()
    assert bench.take(pilot, left=SAVING - 1) == []
    assert len(bench.take(pilot, left=SAVING)) == 1


def test_checkpointed_task_may_be_returned_any_number_of_times(bench: Bench) -> None:
    bag, pilot, attempt = start(bench, retries=0)
    for _ in range(20):
        bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
        ((attempt, _),) = bench.take(pilot)
    bench.report(pilot, attempt, wall=5)
    assert bench.task(bag) == "succeeded"


# --- disk -----------------------------------------------------------------------------------------------------------


def test_snapshot_holds_saved_states_that_changed(bench: Bench) -> None:
    bag, pilot, attempt = start(bench)
    bench.report(pilot, attempt, "returned", "stop", saved=[FILE])
    name = f"b{bag}/c0"
    position, meta, chunks = bench.snapshot()
    assert name in chunks
    bench.core.saved()
    assert name not in bench.snapshot()[2], "no saved state has changed"
    bench.restart((position, meta, chunks))
    assert saved(bench, bag) == [FILE] and name not in bench.snapshot()[2]
    bench.step(e.Cancel(0, bag, None))
    assert msgspec.msgpack.decode(bench.snapshot()[2][name]) == []
    bench.step(e.Remove(0, bag))
    assert name in bench.core.snapshot()[2], "the chunk is dropped with its bag"
