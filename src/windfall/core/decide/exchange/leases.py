"""Leases: what silence means, and when (rule 8).

A lease limits starting, not running.  When a pilot has been silent for a lease and a margin, it cannot start anything
any more, so what it had not started goes back to the backlog.  What it had started is given up only on the site's
evidence, when its own limit plus a lease has passed, or when the pilot's wall time is over.  A bag with external
effects gives up nothing on silence alone (P1 outranks P4).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from windfall.core.decide.exchange.exchange import answer_parked, end_pilot
from windfall.core.decide.exchange.verdicts import lose, settle
from windfall.core.decide.grant import nearest_data
from windfall.core.decide.provision.site_session import salvaging
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import GONE, GRANTED, STARTED
from windfall.core.state.world import PilotState

if TYPE_CHECKING:
    from windfall.core.step import Core


def lease_due(core: Core, number: int) -> None:
    pilot = core.state.pilots.get(number)
    if pilot is None or pilot.state == GONE:
        return
    patience = core.config.lease + core.config.margin
    if (until := salvaging(core, pilot)) > core.now:
        core.timer(until + 1, "lease", number)  # its results may be found yet
        return
    if core.now < pilot.heard + patience:
        core.watch_lease(pilot)
        return
    pilot.silent = True
    nearest_data.not_expected(core, pilot)
    if pilot.held:
        settle(core, pilot.number, _expired(core, pilot))
    if core.now >= pilot.heard + core.config.silence and not _awaited(core, pilot):
        end_pilot(core, pilot, "silent", clean=False)
    else:
        core.timer(core.now + patience, "lease", number)


def _expired(core: Core, pilot: PilotState) -> Iterator[f.End]:
    attempts = core.state.attempts
    for row in attempts.of_pilot(pilot.number).tolist():
        if core.state.bags[attempts.task[row] >> 32].external:
            continue
        state = attempts.state[row]
        if state == GRANTED:
            yield lose(core, row, "lease", present=False, stays=True)
        elif state == STARTED and _given_up(core, pilot, row):
            yield lose(core, row, "silence", present=False, stays=True)


def _awaited(core: Core, pilot: PilotState) -> bool:
    """Is anything it holds still wanted?"""
    attempts = core.state.attempts
    rows = attempts.of_pilot(pilot.number).tolist() if pilot.held else []
    return any(attempts.state[row] in (GRANTED, STARTED) for row in rows)


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
    if pilot is None or not pilot.alarm or core.now < pilot.alarm:
        return  # an earlier alarm took the place of this one
    pilot.alarm = 0
    if pilot.park is None:
        return
    if pilot.park.until <= core.now:
        answer_parked(core, pilot)
    else:
        pilot.alarm = pilot.park.until
        core.timer(pilot.alarm, "park", number)


def forget_due(core: Core, number: int) -> None:
    """Long gone: forgotten, unless an attempt of its own may still bring a result."""
    pilot = core.state.pilots.get(number)
    if pilot is None:
        return
    if pilot.park is None and not len(core.state.attempts.of_pilot(number)):
        core.emit(f.PilotsForgotten(core.now, [number]))
        nearest_data.not_expected(core, pilot)
    else:
        core.timer(core.now + core.config.forget, "forget", number)
