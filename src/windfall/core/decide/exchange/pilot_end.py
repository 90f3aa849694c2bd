"""The end of a pilot: its goodbye, evidence that it is dead, or silence; and draining, which precedes a goodbye.

Evidence that a pilot is dead is its own goodbye, its user's word, or another pilot's look at its host
(`predecessors.py`).  A batch system only believes: the job of a node that it has lost counts as ended, and so does one
that it has put back into the queue, while the processes may run on.  Its belief frees a slot and the attempts that may
run twice.  Attempts with external effects stay with their pilot, which is in doubt until there is evidence (P1).
"""

from __future__ import annotations

from collections.abc import Iterator

from windfall.core.decide.exchange.predecessors import forget_doubt, note_doubt, proven_dead
from windfall.core.decide.exchange.reply import answer_waiting
from windfall.core.decide.exchange.verdicts import lose, record_ends
from windfall.core.decide.grant import nearest_data
from windfall.core.decide.provision.intents import pilot_left
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import GONE, GRANTED, LIVE, LOST, O_LOST, O_RETURNED, STARTED
from windfall.core.state.chains import chain_key, is_blocked
from windfall.core.state.world import PilotState
from windfall.core.turn import Turn

# Ends of pilots that cast no suspicion on the tasks they ran.
NOT_A_DEATH = ("silent", "requeued", "stopped", "superseded")


def gone(turn: Turn, event: e.Gone) -> None:
    """End a pilot on evidence that its processes are dead."""
    pilot = turn.state.pilots.get(event.pilot)
    if pilot is not None:
        end_pilot(turn, pilot, event.why, proven=event.proven)
    turn.done(event)


def end_predecessors(turn: Turn, pilot: PilotState, event: e.Exchange) -> None:
    """End the pilots in doubt that a later pilot on their host proves dead."""
    if not turn.exchange.in_doubt:
        return
    for older, why in proven_dead(turn, pilot, event.dead, event.held is not None):
        end_pilot(turn, older, why, proven=True)


def drain(turn: Turn, event: e.Drain) -> None:
    """Let a pilot finish what it runs, and take nothing new."""
    pilot = turn.state.pilots.get(event.pilot)
    if pilot is not None:
        send_home(turn, pilot)
    turn.done(event)


def send_home(turn: Turn, pilot: PilotState) -> None:
    """Drain a pilot, and tell it at once."""
    if pilot.state == LIVE:
        nearest_data.drain_pilot(turn, pilot)
        answer_waiting(turn, pilot)


def end_pilot(turn: Turn, pilot: PilotState, why: str, *, proven: bool, clean: bool = False) -> None:
    """End a pilot, and with it the attempts that it holds; a clean end is one that the pilot itself has announced.

    Where its death is not proven, the pilot keeps its attempts with external effects, and with these its record."""
    if pilot.state == GONE:
        return
    record_ends(turn, pilot.number, _left_behind(turn, pilot, why, proven, clean))
    if not proven and holds_attempts(turn, pilot):
        _doubt(turn, pilot, why)
        return
    turn.emit(f.PilotEnded(turn.now, pilot.number, why, clean))
    forget_doubt(turn, pilot, pilot.number)
    pilot_left(turn, pilot, why)
    if not clean:
        nearest_data.forget_arrival(turn, pilot)
    turn.grants.orders.forget(pilot.number)
    turn.exchange.pilots_alive -= 1
    turn.timers.add(turn.now + turn.config.forget, "forget", pilot.number)
    answer_waiting(turn, pilot)


def holds_attempts(turn: Turn, pilot: PilotState) -> bool:
    """Does the pilot hold an attempt that has not been given up?"""
    attempts = turn.state.attempts
    rows = attempts.of_pilot(pilot.number).tolist() if pilot.attempts_held else []
    return any(attempts.state[row] in (GRANTED, STARTED) for row in rows)


def count_external(turn: Turn, pilot: PilotState) -> int:
    """Return how many attempts with external effects the pilot holds."""
    attempts = turn.state.attempts
    rows = attempts.of_pilot(pilot.number).tolist() if pilot.attempts_held else []
    return sum(attempts.state[row] in (GRANTED, STARTED) and turn.state.bag_of(row).external for row in rows)


def _doubt(turn: Turn, pilot: PilotState, why: str) -> None:
    """Wait for evidence: should the pilot turn out to live, it brings its tasks to their ends and leaves."""
    pilot.lease_expired, pilot.doubt = True, why
    note_doubt(turn, pilot)
    nearest_data.forget_arrival(turn, pilot)
    if pilot.state == LIVE:
        nearest_data.drain_pilot(turn, pilot)
    answer_waiting(turn, pilot)


def _left_behind(turn: Turn, pilot: PilotState, why: str, proven: bool, clean: bool) -> Iterator[f.End]:
    """Yield the ends of the attempts that a pilot held, and say which of them may have been running when it died.

    A pilot starts what it is granted in order, so its first attempts may have been running.  How far it had come with
    a batch nobody knows: all tasks of the batch are suspects, and go alone from now on (`state/chains.py`).  Silence
    is no death: neither a laptop that is closed nor a site that takes its hosts back puts a task under suspicion.
    """
    attempts = turn.state.attempts
    outcome = O_RETURNED if clean else O_LOST
    places: dict[tuple[int, int], int] = {}
    for row in attempts.of_pilot(pilot.number).tolist():
        state = attempts.state[row]
        if not proven and state in (GRANTED, STARTED) and turn.state.bag_of(row).external:
            continue
        place = places.setdefault(chain_key(turn.state, row), len(places))
        present = not clean and why not in NOT_A_DEATH and (state == STARTED or place < pilot.cores)
        present = present and not is_blocked(turn.state, row)
        if state in (GRANTED, STARTED):
            yield lose(turn, row, why, died=present, row_kept=not clean, outcome=outcome)
        elif state == LOST and present:
            yield lose(turn, row, why, died=True, row_kept=True)


def forget_due(turn: Turn, number: int) -> None:
    """Forget a pilot that is long gone, unless an attempt of its own may still bring a result."""
    pilot = turn.state.pilots.get(number)
    if pilot is None:
        return
    if pilot.waiting_request is None and not len(turn.state.attempts.of_pilot(number)):
        turn.emit(f.PilotsForgotten(turn.now, [number]))
        nearest_data.forget_arrival(turn, pilot)
    else:
        turn.timers.add(turn.now + turn.config.forget, "forget", number)
