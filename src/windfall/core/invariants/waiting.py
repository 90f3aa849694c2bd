"""P4: no pilot waits while a task is ready that it could run now.

This module reads eligibility by itself, plainly, to check `decide/grant/eligibility.py`: it must not ask there.
"""

from __future__ import annotations

from enum import Enum

from windfall.core.decide.grant.amount import room, room_for
from windfall.core.decide.grant.draft import Recipient, recipient_of
from windfall.core.decide.grant.host_orders import Entry, HostOrders
from windfall.core.decide.grant.nearest_data import withholds
from windfall.core.decide.grant.order import is_lasting
from windfall.core.decide.hosts.quarantine import refuses_guest, tasks_allowed
from windfall.core.messages.lifecycle import LIVE
from windfall.core.state import accounts
from windfall.core.state.capacity import must_go_elsewhere
from windfall.core.state.world import PilotState, TaskClass, WaitingRequest
from windfall.core.turn import Turn


class Reading(Enum):
    """The plain reading of one class of ready tasks, for one waiting pilot."""

    NOT_FOR_IT = 0  # the pilot may not have it; look at the next class
    FIRST_WITHOUT_ROOM = 1  # it may come before the classes behind it; look no further
    WITHHELD = 2  # its bag holds it back for a pilot nearer to its data
    IN_VAIN = 3  # the pilot could run it now


def p4_nobody_waits_in_vain(turn: Turn) -> list[str]:
    """Check P4 with fresh orders of hosts: the published ads of hosts must not become newer by this look."""
    match, turn.grants.orders = turn.grants.orders, HostOrders()
    try:
        return _waiting_in_vain(turn)
    finally:
        turn.grants.orders = match


def _waiting_in_vain(turn: Turn) -> list[str]:
    broken = []
    for pilot in turn.state.pilots.values():
        request = pilot.waiting_request
        if request is not None and _may_be_granted(turn, pilot, request):
            broken += _ready_for(turn, pilot, request)
    return broken


def _may_be_granted(turn: Turn, pilot: PilotState, request: WaitingRequest) -> bool:
    """May a waiting pilot be granted anything at all?"""
    state = turn.state
    if request.want <= 0 or pilot.state != LIVE or pilot.lease_expired or pilot.trouble or state.disk_low:
        return False
    if pilot.intent and state.intents[pilot.intent].task >= 0:
        return False  # it serves one task only
    return pilot.row not in state.quarantined or tasks_allowed(state, turn.now, pilot) > 0


def _ready_for(turn: Turn, pilot: PilotState, request: WaitingRequest) -> list[str]:
    """Name the first class that a waiting pilot could run, and the bags that hold tasks back without looking again."""
    broken = []
    to = recipient_of(turn, pilot, request.time_left(turn.now))
    for _, number in _seen_by(turn, pilot):
        cls = turn.state.classes[number]
        reading = _read(turn, to, cls, request)
        if reading is Reading.WITHHELD and turn.grants.withheld_timers.get(cls.bag, 0) <= turn.now:
            broken.append(f"P4: nobody looks at bag {cls.bag} again")
        elif reading is Reading.IN_VAIN:
            broken.append(f"P4: pilot {pilot.number} waits while class {number} has {cls.ready} ready")
        if reading in (Reading.IN_VAIN, Reading.FIRST_WITHOUT_ROOM):
            break
    return broken


def _read(turn: Turn, to: Recipient, cls: TaskClass, request: WaitingRequest) -> Reading:
    """Read every clause of eligibility plainly.  What time alone changes may differ since the pilot asked: its next
    poll evaluates that afresh."""
    state, pilot = turn.state, to.pilot
    cost = state.cost_on(state.pilot_classes[pilot.cls], cls)
    if not cost or cls.bag in state.bags_with_task_pilots:
        return Reading.NOT_FOR_IT
    if not _fits(pilot, cls, to.left):
        at_arrival = request.time_left(request.arrived)
        return Reading.FIRST_WITHOUT_ROOM if _fits(pilot, cls, at_arrival) else Reading.NOT_FOR_IT
    if cls.has_per_host:  # the tasks on its host change without the pilot
        return Reading.NOT_FOR_IT if room(to, pilot.load, cls, cost) > 0 else Reading.FIRST_WITHOUT_ROOM
    if not _may_go_there(turn, pilot, cls):
        return Reading.NOT_FOR_IT
    if withholds(to, cls, room_for):
        return Reading.WITHHELD
    # a task without a limit may take all that its pilot has left, which becomes less
    if accounts.Affordable(state, pilot, request.arrived).most(cls) <= 0:
        return Reading.NOT_FOR_IT
    return Reading.IN_VAIN if room(to, pilot.load, cls, cost) > 0 else Reading.FIRST_WITHOUT_ROOM


def _may_go_there(turn: Turn, pilot: PilotState, cls: TaskClass) -> bool:
    """Do the fail-over site, the host's standing and the bag's lasting expressions let the class go to the pilot?"""
    state = turn.state
    if must_go_elsewhere(state, pilot.site, cls) or refuses_guest(state, turn.now, pilot, cls):
        return False
    if cls.has_expressions and not is_lasting(state.bags[cls.bag]):
        return False  # an attribute may have changed since the pilot asked
    return turn.grants.orders.admits(state, turn.now, pilot, cls)


def _fits(pilot: PilotState, cls: TaskClass, left: int | None) -> bool:
    """Read the limits of this very pilot plainly: its memory, its disk, the time that it has left."""
    if cls.memory > pilot.memory or cls.disk > pilot.disk:
        return False
    return left is None or (cls.least_time_left or 1) <= left


def _seen_by(turn: Turn, pilot: PilotState) -> list[Entry]:
    """The ready list as such a pilot sees it; nothing where a class that it has no room for may have come first."""
    state, to = turn.state, recipient_of(turn, pilot, None)
    pc = state.pilot_classes[pilot.cls]
    passing = _overdue_for(turn, pilot)
    if not state.ready_with_expressions and not passing:
        return state.ready
    ready = [state.classes[number] for _, number in state.ready]
    passing += [cls for cls in ready
                if cls.has_expressions and not is_lasting(state.bags[cls.bag]) and state.cost_on(pc, cls)]
    if any(room(to, pilot.load, cls, state.cost_on(pc, cls)) <= 0 for cls in passing):
        return []
    return turn.grants.orders.order(state, turn.now, pilot) if state.ready_with_expressions else state.ready


def _overdue_for(turn: Turn, pilot: PilotState) -> list[TaskClass]:
    """Return the classes with overdue tasks that the pilot could run; they may be on no list."""
    state = turn.state
    pc = state.pilot_classes[pilot.cls]
    found = [state.classes[number] for number in state.overdue if number in state.classes]
    return [cls for cls in found if cls.overdue and state.cost_on(pc, cls)]
