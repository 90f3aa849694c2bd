"""Leases: what silence means, and when a pilot or its attempts are lost (rule 8 of testing-under-faults.md).

Leases are the failure detector; each request of a pilot is its heartbeat.

A lease limits starting, not running.  When a pilot has been silent for a lease and a margin, it cannot start anything
any more, so what it had not started goes back to the backlog.  What it had started is given up only when its site says
that the pilot's job is gone, when its own limit plus a lease has passed, or when the pilot's wall time is over.  A bag
with external effects gives up nothing on silence, nor on what a batch system believes (P1 outranks P4).
"""

from __future__ import annotations

from collections.abc import Iterator

from windfall.core.decide.exchange.pilot_end import end_pilot, holds_attempts
from windfall.core.decide.exchange.predecessors import note_doubt
from windfall.core.decide.exchange.verdicts import lose, record_ends
from windfall.core.decide.grant import nearest_data
from windfall.core.decide.provision.intents import salvaging_until
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import GONE, GRANTED, STARTED
from windfall.core.state.world import PilotState
from windfall.core.turn import Turn

LATE = 256  # part of its time by which a lease may be found expired late


def watch_lease(turn: Turn, pilot: PilotState) -> None:
    """Set the timer of a pilot's lease; round it up to 1/256 of a lease, so that one step handles many."""
    patience = turn.config.lease + turn.config.margin
    at = pilot.heard + patience
    turn.timers.add(at + -at % (patience // LATE or 1), "lease", pilot.number)


def lease_due(turn: Turn, number: int) -> None:
    """Give up the attempts that a silent pilot may no longer start, and started ones that can no longer be running.

    After `Config.silence`, end a pilot that holds none."""
    pilot = turn.state.pilots.get(number)
    if pilot is None or pilot.state == GONE:
        return
    patience = turn.config.lease + turn.config.margin
    if (until := salvaging_until(turn, pilot)) > turn.now:
        turn.timers.add(until + 1, "lease", number)  # its results may be found yet
        return
    if turn.now < pilot.heard + patience:
        watch_lease(turn, pilot)
        return
    _note_silence(turn, pilot)
    if pilot.attempts_held:
        record_ends(turn, pilot.number, _expired(turn, pilot))
    if (pilot.doubt or turn.now >= pilot.heard + turn.config.silence) and not holds_attempts(turn, pilot):
        end_pilot(turn, pilot, pilot.doubt or "silent", proven=False)
    else:
        if pilot.attempts_held:
            note_doubt(turn, pilot)
        turn.timers.add(turn.now + patience, "lease", number)


def _note_silence(turn: Turn, pilot: PilotState) -> None:
    """End the pilot's lease; its slots take no other tasks from now on."""
    if not pilot.lease_expired:
        pilot.lease_expired = turn.provision.changed = True
    nearest_data.forget_arrival(turn, pilot)


def _expired(turn: Turn, pilot: PilotState) -> Iterator[f.End]:
    """Yield the ends of the attempts that are given up now."""
    attempts = turn.state.attempts
    for row in attempts.of_pilot(pilot.number).tolist():
        if turn.state.bag_of(row).external:
            continue
        state = attempts.state[row]
        if state == GRANTED:
            yield lose(turn, row, "lease", died=False, row_kept=True)
        elif state == STARTED and _given_up(turn, pilot, row):
            yield lose(turn, row, "silence", died=False, row_kept=True)


def _given_up(turn: Turn, pilot: PilotState, row: int) -> bool:
    """Is the time over in which a started attempt of a silent pilot could still be running?"""
    limit = turn.state.classes[turn.state.attempts.cls[row]].limit
    wait = turn.config.lease + turn.config.margin
    if limit and turn.now > turn.state.attempts.started[row] + limit + wait:
        return True
    if pilot.ends and turn.now > pilot.ends + wait:
        return True
    return not limit and not pilot.ends and turn.now > pilot.heard + turn.config.silence
