"""Amount: how many tasks of a class one answer brings to a pilot.

A pilot gets what it can run at once, plus a prefetch worth `Config.prefetch` milliseconds of work per slot, so that
short tasks amortise the exchange and long ones do not pile up behind a slow host.  Where a target asks for batches,
the batches are counted.
"""

from __future__ import annotations

from windfall.core.config import Config
from windfall.core.decide.grant.draft import GrantDraft, Recipient
from windfall.core.decide.grant.eligibility import first_failing
from windfall.core.decide.replicas import by_deadline, tail
from windfall.core.state.world import State, TaskClass
from windfall.core.turn import Turn

AMPLE = 16  # times what a pilot prefetches must be left of a budget
FULL, NONE = -1, 0


def room(to: Recipient, load: int, cls: TaskClass, cost: int, prefetched: int = 0) -> int:
    """Count the tasks of a class, or batches, that a pilot with this load can take, `prefetched` per slot included."""
    pilot = to.pilot
    slots = pilot.cores * 1000 // cost
    if cls.memory:  # its class may be said to have a little more than it has
        slots = min(slots, pilot.memory // cls.memory)
    if cls.disk:
        slots = min(slots, pilot.disk // cls.disk)
    return ((1 + prefetched) * slots * cost - load) // cost


def prefetch(config: Config, state: State, cls: TaskClass) -> int:
    """Count the tasks, or batches, per slot that a pilot may hold beyond those that run.

    A pilot starts what it holds as cores fall free.  It keeps no account of disk, so it prefetches nothing that needs
    disk; a task with external effects is never sent before its slot is free."""
    bag = state.bags[cls.bag]
    if bag.external or cls.disk:
        return 0
    mean = cls.mean or float(bag.targets[cls.target].shape.expect)
    if not mean:
        return int(not cls.in_chain)
    tasks = int(config.prefetch / (mean * cls.batch if cls.batch > 1 else mean))
    return tasks if tasks < config.prefetch_most else config.prefetch_most


def room_for(to: Recipient, cls: TaskClass, load: int) -> int:
    """Count the tasks of a class that a pilot with this load can begin at once; 0 where any clause fails."""
    if first_failing(to, cls):
        return 0
    cost = to.state.cost_on(to.state.pilot_classes[to.pilot.cls], cls)
    return min(room(to, load, cls, cost), to.left_on_host(cls))


def units_for(config: Config, draft: GrantDraft, cls: TaskClass, cost: int) -> int:
    """Count the tasks, or batches, of a class for the draft.  NONE: the class waits for something else than room.
    FULL: the pilot is full, and nothing that comes later in the order may overtake the class."""
    to = draft.recipient
    prefetched = prefetch(config, to.state, cls) if draft.prefetch_allowed else 0
    units = room(to, draft.load, cls, cost, prefetched)
    if units <= 0:
        if draft.cut_short and not cls.is_accounted and draft.load < to.pilot.cores * 1000:
            return 1  # what a task weighs is rounded up: where prefetching has stopped, one may fit all the same
        return NONE if waits_for_else(to, cls) else FULL
    return max(_affordable(to, draft.load, cls, cost, units), 0) if cls.is_accounted else units


def _affordable(to: Recipient, load: int, cls: TaskClass, cost: int, units: int) -> int:
    """A prefetched task pledges means that another pilot could use now, so it is sent only while means are ample."""
    most = to.affordable(cls)
    return min(units, most, max(room(to, load, cls, cost), most // AMPLE))


def waits_for_else(to: Recipient, cls: TaskClass) -> bool:
    """Do the bag's accounts keep the class from this pilot, or does its host run all overdue tasks of the class?

    Then the class does not wait for room."""
    if cls.is_accounted and to.affordable(cls) <= 0:
        return True
    return bool(cls.overdue) and not cls.on_ready_list and not by_deadline.has_overdue_for(to.state, to.pilot, cls)


def lacks_room(draft: GrantDraft, cls: TaskClass, cost: int) -> bool:
    """Does only room keep the pilot from an overdue task?  Then nothing may overtake it."""
    to = draft.recipient
    return room(to, draft.load, cls, cost) <= 0 and by_deadline.has_overdue_for(to.state, to.pilot, cls)


def spread_tail(turn: Turn, draft: GrantDraft, cls: TaskClass, units: int) -> tuple[int, bool]:
    """Return how many of so many units one answer brings in the bag's tail; and does the rest stay for others?"""
    overdue = by_deadline.count_overdue_for(turn.state, draft.recipient.pilot, cls, units)
    most = min(units, draft.want, cls.ready + overdue)
    fewer = tail.grant_size_in_tail(turn, cls, units)
    return fewer, fewer < most
