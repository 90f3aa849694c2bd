"""Granting: which tasks go to the pilot that asks.

A pipeline of stages: the order in which the pilot sees the classes (`host_orders.py`) → may the pilot have the class
(`eligibility.py`) → how many of it (`amount.py`) → take them.  Work depends on the classes in play, never on the number
of tasks.

Backfilling follows from the order and the clauses: a class that does not fit the time a pilot has left is passed over,
and shorter tasks behind it fill the end of the pilot's wall time.
"""

from __future__ import annotations

from itertools import takewhile

from windfall.core.decide.grant import batches, fair_share, nearest_data
from windfall.core.decide.grant.amount import FULL, lacks_room, room, room_for, spread_tail, units_for, waits_for_else
from windfall.core.decide.grant.draft import GrantDraft, Recipient
from windfall.core.decide.grant.eligibility import fails_whole_class, first_of, is_open, without
from windfall.core.decide.grant.host_orders import Entry
from windfall.core.decide.grant.per_host import NO_LIMIT
from windfall.core.decide.grant.task_pilots import draft_task, is_task_pilot
from windfall.core.decide.hosts import quarantine
from windfall.core.decide.replicas import by_deadline, candidates, tail
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import READY
from windfall.core.state import copies
from windfall.core.state.world import PilotState, TaskClass
from windfall.core.turn import Turn

ASKED_IN_WALK = without("policy", "per-host", "room")  # the order has asked the policy, the amount the host


def grant(turn: Turn, pilot: PilotState, want: int, left: int | None, prefetch_allowed: bool = True) -> bool:
    """Grant up to `want` tasks, with `prefetch_allowed` more than the pilot can run at once; True if any."""
    state = turn.state
    to = Recipient(state, turn.now, turn.grants.orders, pilot, left)
    if want <= 0 or not is_open(to):
        return False
    if pilot.intent and is_task_pilot(state, pilot):
        return _hand_out(turn, pilot, draft_task(turn, to))
    pc = state.pilot_classes[pilot.cls]
    if pc.no_match_at_version == state.version:
        return False
    if pilot.row in state.quarantined:
        want, prefetch_allowed = quarantine.tasks_allowed(state, turn.now, pilot), False
        if not want:
            return False
    draft = GrantDraft(
        recipient=to, want=min(want, state.attempts.rows_left()), load=pilot.load, bytes_left=turn.config.message,
        prefetch_allowed=prefetch_allowed,
    )
    special = state.ready_with_expressions or state.overdue
    order = _order_for(turn, pilot) if special else state.ready
    if len(pc.owners) > 1 and len(by_owner := fair_share.by_owner(state, pilot, order)) > 1:
        if is_kept_empty(to, by_owner):
            return False
        draft.load, draft.any_suitable = _divide_between_owners(turn, draft, by_owner), True
    else:
        _walk(turn, draft, order)
    _add_replicas(turn, draft)
    if not to.groups and not draft.any_suitable and not state.overdue:
        _note_no_match(turn, pilot, order)
    return _hand_out(turn, pilot, to.groups, draft.load)


def _order_for(turn: Turn, pilot: PilotState) -> list[Entry]:
    """Return the classes with something to grant, in the order in which the pilot sees them."""
    state, orders = turn.state, turn.grants.orders
    order = orders.order(state, turn.now, pilot) if state.ready_with_expressions else state.ready
    return _with_overdue(turn, pilot, order) if state.overdue else order


def _with_overdue(turn: Turn, pilot: PilotState, order: list[Entry]) -> list[Entry]:
    """Return the order with the classes of overdue tasks in their places."""
    state, orders = turn.state, turn.grants.orders
    ordered = {number for _, number in order}
    more = [
        (orders.place(state, turn.now, pilot, cls), cls.number) for cls in by_deadline.classes_with_overdue(state)
        if cls.number not in ordered and orders.admits(state, turn.now, pilot, cls)
    ]
    return sorted([*order, *more]) if more else order


def _add_replicas(turn: Turn, draft: GrantDraft) -> None:
    """Add replicas of late tasks where no task waits for this pilot."""
    state, pilot = turn.state, draft.recipient.pilot
    if draft.recipient.groups:
        if turn.replicas.kept_scans or turn.replicas.scans:
            candidates.forget_scans(turn, draft.groups)
    elif state.replicating and candidates.any_late(turn):
        draft.any_suitable = True
        if pilot.load < pilot.cores * 1000:  # a replica is for a pilot that can begin it at once
            candidates.add_replicas(turn, draft, room_for)


def _note_no_match(turn: Turn, pilot: PilotState, order: list[Entry]) -> None:
    """Remember that no task suits pilots like this one, until something changes."""
    state = turn.state
    if len(order) == len(state.ready):
        state.pilot_classes[pilot.cls].no_match_at_version = state.version
    else:
        turn.grants.orders.note_in_vain(state, pilot)


# --- one walk over the classes ----------------------------------------------------------------------------------------


def _walk(turn: Turn, draft: GrantDraft, order: list[Entry]) -> None:
    """Add to the draft from these classes, one after the other."""
    to, state = draft.recipient, turn.state
    pc = state.pilot_classes[to.pilot.cls]
    for _, number in order:
        cls = state.classes[number]
        cost = state.cost_on(pc, cls)
        if not cost:
            continue
        if failing := first_of(to, cls, ASKED_IN_WALK):
            draft.any_suitable = draft.any_suitable or not fails_whole_class(to, cls, failing)
            continue
        draft.any_suitable = True
        if not _add_class(turn, draft, cls, cost):
            return


def _add_class(turn: Turn, draft: GrantDraft, cls: TaskClass, cost: int) -> bool:
    """Add what the pilot may have of one class.  False: nothing may come behind it."""
    units, most_on_host = units_for(turn.config, draft, cls, cost), NO_LIMIT
    if cls.has_per_host:
        most_on_host = draft.recipient.left_on_host(cls)
        if most_on_host <= 0:
            return True
        units = min(units, most_on_host)
    if units == FULL or draft.want <= 0:
        return False
    if not units:
        return True
    if cls.has_per_host:
        draft.prefetch_allowed = False  # for the classes behind it
    is_spread = False
    if cls.bag in turn.state.replicating:
        units, is_spread = spread_tail(turn, draft, cls, units)
    if cls.overdue:
        wanted, units = units, _add_overdue(turn, draft, cls, cost, units)
        if not cls.on_ready_list:
            return units != wanted or not lacks_room(draft, cls, cost)
        if draft.want <= 0 or (units <= 0 and not is_spread):
            return True
    if cls.by_data:
        return _add_nearest(turn, draft, cls, most_on_host)
    taken = _add_ready(turn, draft, cls, cost, units) if units > 0 else 0
    if draft.is_full():
        return False
    if is_spread and (taken or units <= 0):
        turn.grants.recheck_waiting = True  # the rest of a tail is for the pilots that wait, this one included
        return False
    return True


def _add_overdue(turn: Turn, draft: GrantDraft, cls: TaskClass, cost: int, units: int) -> int:
    """Add overdue tasks; return how many of the units are left for tasks that nobody runs."""
    most = min(units, draft.want, room(draft.recipient, draft.load, cls, cost))
    n = by_deadline.add_overdue(turn, draft.recipient, cls, most)
    draft.load, draft.want = draft.load + n * cost, draft.want - n
    # Nothing is prefetched before the class's own ready tasks.
    draft.prefetch_allowed = draft.prefetch_allowed and (n < units or not cls.on_ready_list)
    return units - n


def _add_nearest(turn: Turn, draft: GrantDraft, cls: TaskClass, most_on_host: int) -> bool:
    """Let a bag that selects by where its data lies choose once, among all its classes."""
    if cls.bag not in draft.bags_by_data:
        draft.bags_by_data[cls.bag], draft.prefetch_allowed = None, False
        most = 1 if cls.is_accounted else min(draft.want, most_on_host)
        nearest_data.take(turn, draft, cls.bag, most, room_for)
    return True


def _add_ready(turn: Turn, draft: GrantDraft, cls: TaskClass, cost: int, units: int) -> int:
    """Add ready tasks, or batches, of one class; return how many tasks."""
    groups, taken = draft.recipient.groups, 0
    for group in _take(turn, draft, cls, units):
        n = len(group.tasks)
        groups.append(group)
        draft.load += cost * n if group.chain < 0 else 0 if group.prerequisites else cost
        taken += n
    draft.want -= taken
    draft.bytes_left -= taken * cls.message_bytes
    if draft.prefetch_allowed and taken < cls.ready:
        draft.prefetch_allowed, draft.cut_short = False, True  # nothing is prefetched before the rest of the class
    return taken


def _take(turn: Turn, draft: GrantDraft, cls: TaskClass, units: int) -> list[f.Group]:
    if cls.in_chain:
        return batches.take(turn, draft, cls, units)
    n = min(draft.want, units, cls.ready, max(draft.bytes_left // cls.message_bytes, 1))
    groups = draft.recipient.groups
    tasks = _untaken(cls, n, groups) if groups else cls.backlog.take(n)
    assert len(tasks) == n, "a class counted more ready tasks than its backlog holds"
    return [cls.group(tasks, turn.state.attempts.numbers(n))]


def _untaken(cls: TaskClass, n: int, groups: list[f.Group]) -> list[int]:
    """Return ready tasks that the groups do not hold.

    A task that came back twice may lie in the backlog twice, and is ready until the whole answer is granted: a class
    that is asked again meanwhile would give it again."""
    held = {task for group in groups if group.bag == cls.bag and group.target == cls.target for task in group.tasks}
    if not held:
        return cls.backlog.take(n)
    found: dict[int, None] = {}
    while len(found) < n and (more := cls.backlog.take(n - len(found))):
        found.update((task, None) for task in more if task not in held)
    return list(found)


# --- several owners at one site ---------------------------------------------------------------------------------------


def _divide_between_owners(turn: Turn, draft: GrantDraft, by_owner: dict[str, list[Entry]]) -> int:
    """Grant to each owner a part of the pilot (`fair_share.py`); return the load that the pilot will carry."""
    state, to = turn.state, draft.recipient
    pc = state.pilot_classes[to.pilot.cls]
    taken: dict[int, int] = {}  # class → tasks so far

    def room_left(number: int, load: int) -> int:
        cls = state.classes[number]
        cost = state.cost_on(pc, cls)
        return max(room(to, load, cls, cost) * cost, 0)

    def is_overtaken(number: int, load: int) -> bool:
        """Would a class behind this one get what this one waits for: room, or its turn in the tail?"""
        cls = state.classes[number]
        if room_left(number, load) > 0:
            return cls.bag in state.replicating and tail.grant_size_in_tail(turn, cls, 2) < 2
        return not waits_for_else(to, cls)

    def walk_part(entries: list[Entry], most: int, load: int) -> int:
        part = GrantDraft(
            recipient=to, want=most, load=load, bytes_left=turn.config.message, prefetch_allowed=False)
        _walk(turn, part, entries)
        return part.load

    def walk(entries: list[Entry], most: int, load: int) -> tuple[int, int]:
        """Walk on where the last walk over these entries ended."""
        had = len(to.groups)
        for number in [number for _, number in entries if number in taken]:
            cls = state.classes[number]
            given = _count_tasks(to.groups[had:])
            n = 0 if cls.in_chain or cls.by_data else min(most - given, cls.ready - taken[number])
            before = len(to.groups)
            load = walk_part([(cls.order_key, number)], n, load)
            if n > _count_tasks(to.groups[before:]) and is_overtaken(number, load):
                break
        else:
            others = [entry for entry in entries if entry[1] not in taken]
            load = walk_part(others, most - _count_tasks(to.groups[had:]), load)
        for group in to.groups[had:]:
            bag = state.bags[group.bag]
            number = bag.classes[group.target, group.variant].number
            fresh = sum(bag.tasks.state[task] == READY for task in group.tasks)  # overdue tasks are not ready
            taken[number] = taken.get(number, 0) + fresh
        return _count_tasks(to.groups[had:]), load

    return fair_share.divide(draft, by_owner, room_left, walk)


def is_kept_empty(to: Recipient, by_owner: dict[str, list[Entry]]) -> bool:
    """Has a bag waited so long for room that other owners' tasks take here that the host runs empty for it?"""
    state = to.state
    if not any(state.bags[state.classes[entries[0][1]].bag].aged_since for entries in by_owner.values()):
        return False  # an aged bag comes first among its owner's
    for entries in by_owner.values():
        classes = (state.classes[number] for _, number in entries)
        aged = takewhile(lambda cls: state.bags[cls.bag].aged_since, classes)
        cls = next((cls for cls in aged if room_for(to, cls, 0) > 0), None)  # the first that may go there at all
        if cls is not None and not cls.by_data and room_for(to, cls, to.pilot.load) <= 0:
            return True
    return False


def _count_tasks(groups: list[f.Group]) -> int:
    return sum(len(group.tasks) for group in groups)


def _hand_out(turn: Turn, pilot: PilotState, groups: list[f.Group], load: int = 0) -> bool:
    """Emit the grant.  `load`: what the draft reckoned that the pilot carries then; a task that joins a batch which the
    pilot holds already takes no more room, so the pilot may have room for more."""
    if groups:
        moves = copies.plan_transfers(turn.state, pilot, groups)
        turn.emit(f.Granted(turn.now, pilot.number, pilot.granted + 1, groups, moves))
        turn.grants.grants_this_step[pilot.number] = (pilot.granted, groups)
        if turn.state.deadlines:
            by_deadline.watch_grant(turn, pilot, groups)
        turn.grants.recheck_waiting = turn.grants.recheck_waiting or pilot.load < load
    return bool(groups)
