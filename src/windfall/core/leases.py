"""Leases: what silence means, and when (rule 8).

A lease limits starting, not running.  When a pilot has been silent for a lease and a margin, it cannot start anything
any more, so what it had not started goes back to the backlog.  What it had started is given up only on the site's
evidence, when its own limit plus a lease has passed, or when the pilot's wall time is over.  A bag with external
effects gives up nothing on silence alone (P1 outranks P4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.core import facts as f
from windfall.core.endings import lose
from windfall.core.lifecycle import GONE, GRANTED, STARTED
from windfall.core.sessions import answer_parked, end_pilot
from windfall.core.state import PilotState

if TYPE_CHECKING:
    from windfall.core.engine import Core


def lease_due(core: Core, number: int) -> None:
    pilot = core.state.pilots.get(number)
    if pilot is None or pilot.state == GONE:
        return
    patience = core.config.lease + core.config.margin
    if core.now < pilot.heard + patience:
        core.timer(pilot.heard + patience, "lease", number)
        return
    pilot.silent = True
    _expire(core, pilot)
    if pilot.held == 0 and core.now >= pilot.heard + core.config.silence:
        end_pilot(core, pilot, "silent", clean=False)
    else:
        core.timer(core.now + patience, "lease", number)


def _expire(core: Core, pilot: PilotState) -> None:
    attempts = core.state.attempts
    ends = []
    for row in attempts.of_pilot(pilot.number).tolist():
        if core.state.bags[attempts.task[row] >> 32].external:
            continue
        state = attempts.state[row]
        if state == GRANTED:
            ends.append(lose(core, row, "lease", present=False, stays=True))
        elif state == STARTED and _given_up(core, pilot, row):
            ends.append(lose(core, row, "silence", present=False, stays=True))
    if ends:
        core.emit(f.Ended(core.now, pilot.number, ends))


def _given_up(core: Core, pilot: PilotState, row: int) -> bool:
    limit = core.state.classes[core.state.attempts.cls[row]].limit
    wait = core.config.lease + core.config.margin
    if limit and core.now > core.state.attempts.started[row] + limit + wait:
        return True
    if pilot.ends and core.now > pilot.ends + wait:
        return True
    return not limit and not pilot.ends and core.now > pilot.heard + core.config.silence


def park_due(core: Core, number: int) -> None:
    pilot = core.state.pilots.get(number)
    if pilot is None or pilot.park is None:
        return
    if pilot.park.until <= core.now:
        answer_parked(core, pilot)
