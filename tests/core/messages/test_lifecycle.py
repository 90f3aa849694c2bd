"""The lifecycle tables, and that facts which ask for a move that no table has are refused where they are applied.

Every bench and every world also compares the states before and after each fact with the tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.conftest import Bench, shape
from windfall.core.apply.table import apply
from windfall.core.messages import events as e, facts as f, lifecycle as lc
from windfall.core.state.columns import FEW
from windfall.core.state.moves import ATTEMPTS, INTENTS, PILOTS, TASKS, IllegalMove, MoveTable


def test_lifecycle_tables_name_known_states_once() -> None:
    for names, moves in (
        (lc.TASK_STATES, lc.TASK_MOVES), (lc.ATTEMPT_STATES, lc.ATTEMPT_MOVES), (lc.PILOT_STATES, lc.PILOT_MOVES),
        (lc.INTENT_STATES, lc.INTENT_MOVES),
    ):
        pairs = [(a, b) for a, b, _ in moves]
        assert len(pairs) == len(set(pairs)) and all(a < len(names) and b < len(names) and a != b for a, b in pairs)


def test_every_state_but_the_first_can_be_reached() -> None:
    assert {b for _, b, _ in lc.TASK_MOVES} == set(range(len(lc.TASK_STATES)))
    assert {b for _, b, _ in lc.ATTEMPT_MOVES} == set(range(len(lc.ATTEMPT_STATES)))


def test_lifecycle_diagram_has_every_move() -> None:
    text = lc.mermaid(lc.TASK_STATES, lc.TASK_MOVES)
    assert text.count("-->") == len(lc.TASK_MOVES) and "ready --> active: granted to a pilot" in text


@pytest.mark.parametrize(("table", "names", "moves"), [
    (TASKS, lc.TASK_STATES, lc.TASK_MOVES), (ATTEMPTS, lc.ATTEMPT_STATES, lc.ATTEMPT_MOVES),
    (PILOTS, lc.PILOT_STATES, lc.PILOT_MOVES), (INTENTS, lc.INTENT_STATES, lc.INTENT_MOVES),
])  # fmt: skip
def test_checks_allow_exactly_the_moves_of_the_table(table: MoveTable, names: tuple[str, ...], moves: lc.Moves) -> None:
    for old in range(len(names)):
        for new in range(len(names)):
            if old != new:
                fine = (old, new) in lc.allowed(moves)
                tally = [int(state == old) for state in range(len(names))]
                column, numbers = np.array([old], dtype=np.uint8), np.array([7])
                assert fine == _passes(table.check, old, new, 7)
                assert fine == _passes(table.check_many, column, new, numbers)
                assert fine == _passes(table.check_tally, tally, new, 7)


def _passes(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except IllegalMove:
        return False
    return True


def test_refusal_names_the_first_wrong_row_of_a_column() -> None:
    old = np.array([lc.ACTIVE, lc.CANCELLED, lc.SUCCEEDED], dtype=np.uint8)
    with pytest.raises(IllegalMove, match="task 5: no move from cancelled to succeeded is in the table"):
        TASKS.check_many(old, lc.SUCCEEDED, np.array([4, 5, 6]))


# --- facts that ask for a move which no table has ----------------------------------------------------------------

NUMBERS = pytest.mark.parametrize("n", [1, FEW + 1])  # facts about many tasks are applied by columns


def _last(bench: Bench, kind: type[f.Fact]) -> Any:
    return next(fact for fact in bench.facts if isinstance(fact, kind))


@NUMBERS
def test_row_of_an_attempt_in_play_is_never_granted_again(bench: Bench, n: int) -> None:
    bench.submit(shape(n))
    bench.take(bench.pilot(cores=n))
    with pytest.raises(IllegalMove, match="no move from granted to granted"):
        apply(bench.core.state, _last(bench, f.Granted))


@NUMBERS
def test_ended_task_is_never_granted(bench: Bench, n: int) -> None:
    bag = bench.submit(shape(n))
    bench.take(bench.pilot(cores=n))
    grant = _last(bench, f.Granted)
    bench.do(e.Cancel(0, bag, None))
    rows = [number & 0xFFFFFF for number in grant.groups[0].attempts]
    bench.core.state.attempts.np_state[rows] = lc.FREE
    with pytest.raises(IllegalMove, match="task 0: no move from cancelled to active"):
        apply(bench.core.state, grant)


@NUMBERS
def test_success_is_never_counted_twice(bench: Bench, n: int) -> None:
    bench.submit(shape(n))
    pilot = bench.pilot(cores=n)
    bench.exchange(pilot, reports=[e.Report(attempt, "succeeded") for attempt, _ in bench.take(pilot)])
    finished = _last(bench, f.Finished)
    with pytest.raises(IllegalMove, match="no move from free to free"):
        apply(bench.core.state, finished)
    bench.core.state.attempts.np_state[[number & 0xFFFFFF for number in finished.attempts]] = lc.STARTED
    with pytest.raises(IllegalMove, match="no move from succeeded to succeeded"):
        apply(bench.core.state, finished)


def test_attempt_never_ends_twice(bench: Bench) -> None:
    bench.submit()
    pilot = bench.pilot()
    [(attempt, _)] = bench.take(pilot)
    bench.report(pilot, attempt, "failed", "exit", exit=1)
    with pytest.raises(IllegalMove, match="no move from free to free"):
        apply(bench.core.state, _last(bench, f.Ended))


def test_freed_attempt_never_starts(bench: Bench) -> None:
    bench.submit()
    pilot = bench.pilot()
    [(attempt, _)] = bench.take(pilot)
    bench.report(pilot, attempt)
    with pytest.raises(IllegalMove, match="no move from free to started"):
        apply(bench.core.state, f.Started(bench.now, pilot, [attempt]))


def test_succeeded_task_is_never_cancelled(bench: Bench) -> None:
    bag = bench.submit(shape(3))
    pilot = bench.pilot()
    [(attempt, _)] = bench.take(pilot, want=1)
    bench.report(pilot, attempt)
    with pytest.raises(IllegalMove, match="no move from succeeded to cancelled"):
        apply(bench.core.state, f.TasksCancelled(bench.now, bag, [(0, 3)], "user"))


def test_ready_task_gets_no_new_generation(bench: Bench) -> None:
    bag = bench.submit(shape(2))
    with pytest.raises(IllegalMove, match="task 0: no move from ready to ready"):
        apply(bench.core.state, f.TasksRetried(bench.now, bag, [(0, 2)]))


def test_pilot_that_has_left_never_comes_back(bench: Bench) -> None:
    pilot = bench.pilot()
    bench.do(e.Gone(0, pilot, "goodbye"))
    ended = _last(bench, f.PilotEnded)
    with pytest.raises(IllegalMove, match=f"pilot {pilot}: no move from gone to draining"):
        apply(bench.core.state, f.PilotDraining(bench.now, pilot))
    with pytest.raises(IllegalMove, match=f"pilot {pilot}: no move from gone to gone"):
        apply(bench.core.state, ended)


def test_running_pilot_job_is_never_queued_again(bench: Bench) -> None:
    limits = f.Limits([f.Shape(1, 4 << 30, 0, 1 << 40, 3_600_000)], pilots=1)
    bench.step(e.AddSite(0, "c1", "ann", "slurm", limits=limits))
    bench.submit()
    bench.wait(1_000)  # sites are provisioned once a second
    [intent] = bench.core.state.intents.values()
    running = f.IntentsRunning(bench.now, "c1", [intent.number])
    apply(bench.core.state, running)
    with pytest.raises(IllegalMove, match=f"intent {intent.number}: no move from running to running"):
        apply(bench.core.state, running)
