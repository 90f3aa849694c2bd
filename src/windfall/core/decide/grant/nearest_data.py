"""Data-conscious selection: a ready task goes where its data lies, unless waiting for that costs more (T9).

For a candidate x and the pilot that asks (equations 6.2 to 6.4 of the Trellis thesis, after Nicholas Lamb), with all
times in units of `DataSelection.unit`:

    cost(x, pilot) = arrival(pilot) + penalty · transfer(x, pilot) + runtime(x)
    priority(x)    = min over the next arrivals of cost(x, other) − cost(x, this one) + time in the queue / latency

The run time is taken to be the same everywhere, so it cancels.  The pilot that asks arrives now; the gaps between a
host's past requests tell when it arrives next.

Rules
  * The grant takes the candidate with the highest priority; among equals the first in the queue.
  * If even the highest priority is negative, the bag *withholds* its tasks: they are better off elsewhere.  The pilot
    waits.  The core checks again when another pilot asks or is granted tasks, when a task becomes ready, when a pilot
    is not expected any more, and when time alone could have made a priority positive (it grows by at most one per
    latency): never in a loop, never for ever.
  * A host is expected while its last pilot lives.  A host whose pilot left of itself may come back (T3); it is expected
    for as long as four of its gaps.  A host that has asked only once is expected only while it waits.
  * A request weighs at most `candidates` of a bag's ready tasks, or batches, in the order of the queue, against at most
    `arrivals` other hosts: its cost does not grow with the number of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import NamedTuple

from windfall.core.decide.grant.draft import GrantDraft, Recipient
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import LIVE
from windfall.core.state.bag_data import Input
from windfall.core.state.chains import batch_mates, chain_of
from windfall.core.state.copies import is_at, place_of, site_of, sources, transfer
from windfall.core.state.world import Arrivals, BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn

Room = Callable[[Recipient, TaskClass, int], int]  # (pilot, class, load) → tasks of the class that the pilot can begin
PATIENCE = 4  # gaps after which a host whose pilot has left is not expected any more


class Outlook(NamedTuple):
    """The next arrivals: ms from now, at each place, and the first at each site."""

    places: dict[str, int]
    sites: dict[str, int]
    until: int | None  # when the first host whose pilot has left is not expected any more


class Scored(NamedTuple):
    priority: float
    cls: TaskClass
    tasks: list[int]


# --- arrivals --------------------------------------------------------------------------------------------------------


def note_arrival(turn: Turn, pilot: PilotState) -> None:
    """A pilot asks for work and has room for it."""
    arrivals, key, now = turn.state.arrivals, (pilot.site, pilot.host), turn.now
    seen = arrivals.get(key)
    if seen is None:
        arrivals[key] = Arrivals(pilot.number, now)
    elif now > seen.last or seen.pilot != pilot.number:
        seen.gaps += 1
        seen.mean += (now - seen.last - seen.mean) / seen.gaps
        seen.last, seen.pilot = now, pilot.number
    recheck_withheld(turn)


def forget_arrival(turn: Turn, pilot: PilotState) -> None:
    """The pilot is gone, or silent: no bag waits for its host."""
    seen = turn.state.arrivals.get((pilot.site, pilot.host))
    if seen is not None and seen.pilot == pilot.number:
        del turn.state.arrivals[pilot.site, pilot.host]
        recheck_withheld(turn)


def drain_pilot(turn: Turn, pilot: PilotState) -> None:
    """Let a pilot finish what it runs and take nothing new; bags that withhold tasks for it check them again."""
    turn.emit(f.PilotDraining(turn.now, pilot.number))
    recheck_withheld(turn)


def recheck_withheld(turn: Turn) -> None:
    """Check again what bags withhold because they expect other pilots."""
    if turn.grants.withheld_from:
        turn.grants.withheld_from.clear()
        turn.grants.recheck_waiting = True


def outlook(to: Recipient, bag: BagState) -> Outlook:
    """Return the next arrivals of other pilots that may run the bag's tasks."""
    state, now, asks = to.state, to.now, to.pilot
    assert bag.data_selection is not None
    due: list[tuple[int, str, str]] = []
    until: int | None = None
    for seen in state.arrivals.values():
        pilot = state.pilots.get(seen.pilot)
        if pilot is None or pilot is asks or pilot.row in state.quarantined:
            continue
        if bag.owner not in state.pilot_classes[pilot.cls].owners:
            continue
        at = _due(pilot, seen, now)
        if at is None:
            continue
        if pilot.state != LIVE:
            until = min(until or 1 << 62, _expiry(seen))
        due.append((at, place_of(state, pilot), pilot.site))
    due.sort()
    places: dict[str, int] = {}
    sites: dict[str, int] = {}
    for at, place, site in due[: bag.data_selection.arrivals]:
        places.setdefault(place, max(at - now, 0))
        sites.setdefault(site, max(at - now, 0))
    return Outlook(places, sites, until)


def _due(pilot: PilotState, seen: Arrivals, now: int) -> int | None:
    """Return when the host asks next; None: unknown, or never.  A waiting pilot asks now."""
    if pilot.waiting_request is not None and pilot.waiting_request.want > 0 and pilot.load < pilot.cores * 1000:
        return 0
    if not seen.gaps or pilot.lease_expired or (pilot.state != LIVE and now >= _expiry(seen)):
        return None
    return round(seen.last + seen.mean)


def _expiry(seen: Arrivals) -> int:
    return seen.last + round(PATIENCE * seen.mean)


def wrong_parameter(policy: f.DataSelection) -> str:
    """Say which parameter is out of bounds; "" if none is."""
    for name in ("arrivals", "candidates", "latency", "unit"):
        if not 1 <= getattr(policy, name) < 1 << 40:
            return f"conscious: {name} is {getattr(policy, name)}, and must be 1 or more"
    return "" if 0 <= policy.penalty <= 1e6 else f"conscious: penalty is {policy.penalty}, and must be from 0 to 10⁶"


# --- priorities ------------------------------------------------------------------------------------------------------


class Costs(NamedTuple):
    """Ms to bring the inputs of a task, or a batch, to the pilot that asks, and to the best pilot that is expected."""

    here: float
    best: float  # the wait included
    where: str  # place or site
    wait: int
    queued: int  # ms since it became ready


def priority(to: Recipient, bag: BagState, tasks: list[int], ahead: Outlook) -> float:
    """Return the priority of a task, or a batch, for the pilot that asks."""
    assert bag.data_selection is not None
    costs = weigh(to, bag, tasks, ahead)
    return (costs.best - costs.here) / bag.data_selection.unit + costs.queued / bag.data_selection.latency


def weigh(to: Recipient, bag: BagState, tasks: list[int], ahead: Outlook) -> Costs:
    """Weigh bringing the inputs to the pilot that asks against waiting for the best pilot that is expected."""
    state, pilot, policy, data = to.state, to.pilot, bag.data_selection, bag.data
    assert policy is not None and data is not None
    items = [(item, sources(state, bag, item)) for task in tasks for item in data.inputs(task)]

    def fetch(place: str) -> float:
        return policy.penalty * _fetch_ms(state, bag, items, place)

    sites = ahead.sites or {pilot.site: 0}  # no host is expected: as if a neighbour asked now
    others = [(when + fetch(f"any {site}"), site, when) for site, when in sites.items()]
    holders = {place: None for _, found in items for place in found if place in ahead.places}
    others += [(ahead.places[place] + fetch(place), place, ahead.places[place]) for place in holders]
    best, where, wait = min(others)
    queued = to.now - max(data.columns.since[tasks[0]], data.released.get(bag.target_of(tasks[0]), 0), bag.submitted)
    return Costs(fetch(place_of(state, pilot)), best, where, wait, queued)


def _fetch_ms(state: State, bag: BagState, items: list[tuple[Input, list[str]]], place: str) -> int:
    """Return the ms to bring all of these inputs to a place."""
    total = 0
    for item, found in items:
        if found and not is_at(bag, item, found, place):
            total += min(transfer(state, site_of(each), site_of(place), item.size, item.files) for each in found)
    return total


# --- choosing --------------------------------------------------------------------------------------------------------


def take(turn: Turn, draft: GrantDraft, number: int, most: int, room: Room) -> None:
    """Add up to `most` tasks of a bag to the draft; none if all of them are withheld."""
    to, state = draft.recipient, turn.state
    bag, pc = state.bags[number], state.pilot_classes[to.pilot.cls]
    ahead = outlook(to, bag)
    took = False
    while most > 0 and (best := _choose(to, bag, draft.load, room, ahead)) is not None:
        if _is_withheld(bag, best):
            turn.grants.withheld_from[to.pilot.number] = None
            _check_again(turn, bag, best.priority, ahead.until)
            break
        n, took = len(best.tasks), True
        draft.groups.append(best.cls.group(best.tasks, state.attempts.numbers(n), chain_of(bag, best.tasks[0])))
        draft.load += state.cost_on(pc, best.cls)
        draft.want, most = draft.want - n, most - n
    if took:
        recheck_withheld(turn)


def withholds(to: Recipient, cls: TaskClass, room: Room) -> bool:
    """Is the class's bag unwilling to let this pilot have anything now?"""
    bag = to.state.bags[cls.bag]
    if not cls.by_data:
        return False
    best = _choose(to, bag, to.pilot.load, room, outlook(to, bag))
    return best is not None and _is_withheld(bag, best)


def _choose(to: Recipient, bag: BagState, load: int, room: Room, ahead: Outlook) -> Scored | None:
    """Return the candidate with the highest priority of those that the answer does not hold yet."""
    best: Scored | None = None
    for cls, tasks in _candidates(to, bag, load, room):
        score = priority(to, bag, tasks, ahead)
        if best is None or score > best.priority:
            best = Scored(score, cls, tasks)
    return best


def _is_withheld(bag: BagState, best: Scored) -> bool:
    """Is even the best candidate better off elsewhere?"""
    return bag.data_selection is not None and bag.data_selection.withhold and best.priority < 0


def _candidates(to: Recipient, bag: BagState, load: int, room: Room) -> Iterator[tuple[TaskClass, list[int]]]:
    assert bag.data_selection is not None
    most = bag.data_selection.candidates
    gone = dict.fromkeys(task for group in to.groups if group.bag == bag.number for task in group.tasks)
    for cls in sorted((cls for cls in bag.classes.values() if cls.on_ready_list), key=lambda cls: cls.order_key):
        if most <= 0:
            return
        if room(to, cls, load) <= 0:
            continue
        for tasks in _units(bag, cls, gone, most):
            most -= 1
            yield cls, tasks


def _units(bag: BagState, cls: TaskClass, gone: dict[int, None], most: int) -> Iterator[list[int]]:
    """The first ready tasks of a class; where they go in batches, all of a batch."""
    seen = dict(gone)
    for head in cls.backlog.peek(most * max(cls.batch, 1) + len(gone)):
        tasks = [] if head in seen else batch_mates(bag, cls, head, seen) if cls.batch > 1 else [head]
        if tasks and most > 0:
            most -= 1
            seen.update(dict.fromkeys(tasks))
            yield tasks


def _check_again(turn: Turn, bag: BagState, best: float, until: int | None) -> None:
    """Set a timer for when time alone can have made the best priority positive."""
    assert bag.data_selection is not None
    at = turn.now + max(ceil(-best * bag.data_selection.latency - 1e-6), 1)
    if until is not None:
        at = min(at, max(until, turn.now + 1))
    if at < turn.grants.withheld_timers.get(bag.number, 1 << 62):
        turn.grants.withheld_timers[bag.number] = at
        turn.timers.add(at, "withheld", bag.number)


def withheld_due(turn: Turn, number: int) -> None:
    if turn.grants.withheld_timers.get(number, 1 << 62) <= turn.now:
        del turn.grants.withheld_timers[number]
        recheck_withheld(turn)
