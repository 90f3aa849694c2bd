"""Feeding: when work appears, who among the waiting gets it; when none is left, who gives some back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.core.granting import grant
from windfall.core.lifecycle import GRANTED, LIVE
from windfall.core.sessions import answer_parked, nudge
from windfall.core.state import PilotClass, PilotState

if TYPE_CHECKING:
    from windfall.core.engine import Core


def feed_parked(core: Core) -> None:
    """Work has come: hand it to those who wait, first come first served within their class."""
    state = core.state
    for pc in state.pilot_classes.values():
        if pc.parked and pc.barren != state.version:
            _feed_class(core, pc)


def _feed_class(core: Core, pc: PilotClass) -> None:
    # While several wait nobody gets more than it can run: a prefetch would starve the next in line.
    ahead = len(pc.parked) == 1
    for number in list(pc.parked):
        if not core.state.ready:
            return
        pilot = core.state.pilots[number]
        park = pilot.park
        if park is not None and grant(core, pilot, park.want, park.left(core.now), ahead):
            answer_parked(core, pilot)
        elif pc.barren == core.state.version:
            return


def recall_for(core: Core, pilot: PilotState) -> None:
    """Nothing is ready, a pilot has slots free: ask those who hold more than they can run to give some back."""
    state = core.state
    if not state.surplus or pilot.state != LIVE or pilot.load >= pilot.cores * 1000:
        return
    pc = state.pilot_classes[pilot.cls]
    for number in list(state.surplus):
        rich = state.pilots[number]
        if rich is not pilot and rich.state == LIVE and not rich.recalling and _recall(core, rich, pc):
            return


def _recall(core: Core, rich: PilotState, pc: PilotClass) -> bool:
    """Ask for half of the surplus, newest first, of classes that the poor one can run."""
    state = core.state
    attempts = state.attempts
    spare = rich.load - rich.cores * 1000
    for row in attempts.of_pilot(rich.number).tolist()[::-1]:
        cls = state.classes[attempts.cls[row]]
        if attempts.state[row] != GRANTED or not state.cost(pc, cls):
            continue
        if spare <= 0:
            break
        rich.recalling[attempts.number[row]] = False
        spare -= 2 * state.cost(state.pilot_classes[rich.cls], cls)
    if rich.recalling:
        nudge(core, rich)
    return bool(rich.recalling)
