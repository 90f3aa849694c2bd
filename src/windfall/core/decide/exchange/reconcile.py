"""Reconciling: what a pilot says it runs or holds, against what the server believes.

A task that the pilot does not hold any more, a recalled one for example, goes back to the backlog."""

from __future__ import annotations

from collections.abc import Iterator

from windfall.core.decide.exchange.verdicts import lose, record_ends
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import ACTIVE, DROPPED, GONE, GRANTED, LOST, O_RETURNED, READY, STARTED, WAITING
from windfall.core.state.accounts import left_of_group
from windfall.core.state.world import PilotState
from windfall.core.turn import Turn

MAX_ATTEMPTS_IN_PLAY = 200  # of one task; the column holds a byte


def note_started(turn: Turn, pilot: PilotState, numbers: list[int]) -> None:
    """Believe a pilot that says which attempts run, unless the task has ended otherwise."""
    attempts = turn.state.attempts
    running = []
    for number in dict.fromkeys(numbers):
        row = attempts.row(number)
        if row < 0 or attempts.pilot[row] != pilot.number:
            continue
        if attempts.state[row] == GRANTED:
            running.append(number)
        elif attempts.state[row] == LOST and _may_resume(turn, pilot, row):
            turn.emit(f.Started(turn.now, pilot.number, [number]))  # at once: the next one may find no room
    if running:
        turn.emit(f.Started(turn.now, pilot.number, running))


def _may_resume(turn: Turn, pilot: PilotState, row: int) -> bool:
    """May a lost attempt go on?  It may while its task wants a result of that generation."""
    if pilot.state == GONE:
        return False
    attempts = turn.state.attempts
    bag, cls = turn.state.bag_of(row), turn.state.classes[attempts.cls[row]]
    tasks, task = bag.tasks, attempts.task_of(row)
    fits = tasks.live[task] < MAX_ATTEMPTS_IN_PLAY and left_of_group(bag, cls) > 0
    wanted = tasks.generation[task] == attempts.generation[row] and tasks.state[task] in (READY, ACTIVE, WAITING)
    return bool(fits and wanted)


def reconcile(turn: Turn, pilot: PilotState, held: list[int], ack: int) -> None:
    """Take back the attempts that the pilot does not list, and have it drop those that it should not hold."""
    listed = dict.fromkeys(held)
    if pilot.lease_expired:
        turn.provision.changed = True  # its slots take tasks again
    pilot.lease_expired = pilot.census = False
    record_ends(turn, pilot.number, _not_held(turn, pilot, listed, ack))
    _check_held(turn, pilot, list(listed))


def _not_held(turn: Turn, pilot: PilotState, held: dict[int, None], ack: int) -> Iterator[f.End]:
    """Yield the ends of acknowledged attempts that the pilot has not listed.

    A report that travels beside this request may still come, so a row whose task can use a result is kept."""
    attempts = turn.state.attempts
    for row in attempts.of_pilot(pilot.number).tolist():
        state = attempts.state[row]
        if state in (GRANTED, STARTED, DROPPED) and attempts.number[row] not in held and attempts.grant[row] <= ack:
            yield lose(turn, row, "gone", died=False, row_kept=state != DROPPED, outcome=O_RETURNED)


def _check_held(turn: Turn, pilot: PilotState, held: list[int]) -> None:
    """Let lost attempts that run go on while their tasks want them, and cancel the others that were given up."""
    attempts = turn.state.attempts
    for number in held:
        row = attempts.row(number)
        if row < 0 or attempts.pilot[row] != pilot.number:
            pilot.unknown_attempts.append(number)
        elif attempts.state[row] == LOST and attempts.started[row] and _may_resume(turn, pilot, row):
            turn.emit(f.Started(turn.now, pilot.number, [number]))
        elif attempts.state[row] == DROPPED or (attempts.state[row] == LOST and pilot.state != GONE):
            pilot.cancelling.setdefault(number, False)
