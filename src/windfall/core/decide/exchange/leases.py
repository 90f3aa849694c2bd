"""Leases: what silence means, and when (rule 8).

A lease limits starting, not running.  When a pilot has been silent for a lease and a margin, it cannot start anything
any more, so what it had not started goes back to the backlog.  What it had started is given up only on the site's
evidence, when its own limit plus a lease has passed, or when the pilot's wall time is over.  A bag with external
effects gives up nothing on silence alone (P1 outranks P4).
"""

from __future__ import annotations

from collections.abc import Iterator

from windfall.core.decide.exchange.exchange import answer_parked, end_pilot, watch_lease
from windfall.core.decide.exchange.verdicts import lose, settle
from windfall.core.decide.grant import nearest_data
from windfall.core.decide.provision.site_session import salvaging
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import GONE, GRANTED, STARTED
from windfall.core.state.world import PilotState
from windfall.core.turn import Turn


def lease_due(turn: Turn, number: int) -> None:
    pilot = turn.state.pilots.get(number)
    if pilot is None or pilot.state == GONE:
        return
    patience = turn.config.lease + turn.config.margin
    if (until := salvaging(turn, pilot)) > turn.now:
        turn.timers.add(until + 1, "lease", number)  # its results may be found yet
        return
    if turn.now < pilot.heard + patience:
        watch_lease(turn, pilot)
        return
    pilot.lease_expired = True
    nearest_data.not_expected(turn, pilot)
    if pilot.attempts_held:
        settle(turn, pilot.number, _expired(turn, pilot))
    if turn.now >= pilot.heard + turn.config.silence and not _awaited(turn, pilot):
        end_pilot(turn, pilot, "silent", clean=False)
    else:
        turn.timers.add(turn.now + patience, "lease", number)


def _expired(turn: Turn, pilot: PilotState) -> Iterator[f.End]:
    attempts = turn.state.attempts
    for row in attempts.of_pilot(pilot.number).tolist():
        if turn.state.bags[attempts.task[row] >> 32].external:
            continue
        state = attempts.state[row]
        if state == GRANTED:
            yield lose(turn, row, "lease", present=False, stays=True)
        elif state == STARTED and _given_up(turn, pilot, row):
            yield lose(turn, row, "silence", present=False, stays=True)


def _awaited(turn: Turn, pilot: PilotState) -> bool:
    """Is anything it holds still wanted?"""
    attempts = turn.state.attempts
    rows = attempts.of_pilot(pilot.number).tolist() if pilot.attempts_held else []
    return any(attempts.state[row] in (GRANTED, STARTED) for row in rows)


def _given_up(turn: Turn, pilot: PilotState, row: int) -> bool:
    limit = turn.state.classes[turn.state.attempts.cls[row]].limit
    wait = turn.config.lease + turn.config.margin
    if limit and turn.now > turn.state.attempts.started[row] + limit + wait:
        return True
    if pilot.ends and turn.now > pilot.ends + wait:
        return True
    return not limit and not pilot.ends and turn.now > pilot.heard + turn.config.silence


def park_due(turn: Turn, number: int) -> None:
    pilot = turn.state.pilots.get(number)
    if pilot is None or not pilot.request_timer or turn.now < pilot.request_timer:
        return  # an earlier alarm took the place of this one
    pilot.request_timer = 0
    if pilot.waiting_request is None:
        return
    if pilot.waiting_request.until <= turn.now:
        answer_parked(turn, pilot)
    else:
        pilot.request_timer = pilot.waiting_request.until
        turn.timers.add(pilot.request_timer, "park", number)


def forget_due(turn: Turn, number: int) -> None:
    """Long gone: forgotten, unless an attempt of its own may still bring a result."""
    pilot = turn.state.pilots.get(number)
    if pilot is None:
        return
    if pilot.waiting_request is None and not len(turn.state.attempts.of_pilot(number)):
        turn.emit(f.PilotsForgotten(turn.now, [number]))
        nearest_data.not_expected(turn, pilot)
    else:
        turn.timers.add(turn.now + turn.config.forget, "forget", number)
