"""Granting: which tasks go to the pilot that asks, and how many.

A short pipeline: walk the ready list (classes in the order of their bags' selection) → does the class fit such a
pilot at all (cached) → does it fit the time the pilot has left → how many → take them.  Work depends on the classes in
play, never on the number of tasks.

How many: what the pilot can run at once, plus a prefetch worth `prefetch` milliseconds of work per slot, so that
short tasks amortise the exchange and long ones do not pile up behind a slow host.  Where a target asks for batches,
they are what is counted (`batching.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile

from windfall.core.decide.grant import batches, fair_share, nearest_data, per_host
from windfall.core.decide.grant.host_orders import Entry
from windfall.core.decide.hosts import quarantine
from windfall.core.decide.replicas import by_deadline, candidates, tail
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import LIVE, READY
from windfall.core.state import chains, copies
from windfall.core.state.accounts import Affordable, unaffordable
from windfall.core.state.capacity import must_go_elsewhere
from windfall.core.state.world import BagState, PilotState, TaskClass
from windfall.core.turn import Turn

AMPLE = 16  # times what a pilot holds ahead must be left of a budget
MOST_GROUPS = 64  # in one answer


@dataclass(slots=True)
class Answer:
    """What a pilot is to be given, so far; and what may still be added."""

    groups: list[f.Group]
    want: int  # tasks
    load: int  # what it will carry, thousandths of a core
    budget: int  # bytes
    ahead: bool  # may it hold more than it can run at once?
    behind: bool = False  # not any more: there is more of a class than it was given
    fitting: bool = False  # was there anything that such a pilot could run?
    looked: dict[int, None] = field(default_factory=dict)  # bags that have chosen for themselves
    held: per_host.Held | None = None  # what its host has, once somebody has asked


def grant(turn: Turn, pilot: PilotState, want: int, left: int | None, ahead: bool = True) -> bool:
    """Grant up to `want` tasks, with `ahead` more than it can run at once; True if any."""
    if want <= 0 or pilot.state != LIVE or pilot.lease_expired or turn.state.disk_low:
        return False
    state = turn.state
    if pilot.intent and state.intents[pilot.intent].task >= 0:
        return _grant_named(turn, pilot, left)
    pc = state.pilot_classes[pilot.cls]
    if pc.no_match_at_version == state.version:
        return False
    if state.quarantined and pilot.row in state.quarantined:
        want, ahead = quarantine.tasks_allowed(state, turn.now, pilot), False
        if not want:
            return False
    want = min(want, state.attempts.rows_left())
    ready = turn.grants.orders.order(turn.state, turn.now, pilot) if state.ready_with_expressions else state.ready
    if state.overdue:
        overdue = by_deadline.classes_with_overdue(state)
        ready = turn.grants.orders.with_others(turn.state, turn.now, pilot, ready, overdue)
    groups: list[f.Group] = []
    if len(pc.owners) > 1 and len(of := fair_share.by_owner(state, pilot, ready)) > 1:
        if _runs_empty(turn, pilot, of, left):
            return False
        load, fitting = _dealt(turn, pilot, of, want, left, groups), True
    else:
        answer = Answer(groups, want, pilot.load, turn.config.message, ahead)
        _walk(turn, pilot, ready, left, answer)
        load, fitting = answer.load, answer.fitting
    if groups and (turn.replicas.kept_scans or turn.replicas.scans):
        candidates.forget_scans(turn, groups)
    elif not groups and state.replicating and candidates.any_late(turn):
        fitting = True
        if pilot.load < pilot.cores * 1000:  # a replica is for who can begin it at once
            candidates.add_replicas(turn, pilot, want, _room_of(turn, pilot, left, groups), groups)
    if not groups and not fitting and not state.overdue:
        if len(ready) == len(state.ready):
            pc.no_match_at_version = state.version
        else:
            turn.grants.orders.note_in_vain(state, pilot)
    return _hand_out(turn, pilot, groups, load)


def _walk(turn: Turn, pilot: PilotState, ready: list[Entry], left: int | None, answer: Answer) -> None:
    """Add to the answer from these classes, one after the other."""
    state, pc = turn.state, turn.state.pilot_classes[pilot.cls]
    for _, number in ready:
        cls = state.classes[number]
        cost = state.cost_on(pc, cls)
        if (
            not cost
            or cls.bag in state.bags_with_task_pilots
            or (cls.to_fail_over_site and must_go_elsewhere(state, pilot.site, cls))
        ):
            continue
        paid = cls.has_budget or cls.disk > 0 or cls.has_allowance or cls.at_once > 0
        if paid and unaffordable(state, pilot, cls, turn.now):
            continue
        answer.fitting = True
        refused = state.guests_refused and quarantine.refuses_guest(state, turn.now, pilot, cls)
        if refused or not fits(pilot, cls, left):
            continue
        if not _add(turn, pilot, cls, cost, paid, left, answer):
            return


def _add(
    turn: Turn, pilot: PilotState, cls: TaskClass, cost: int, paid: bool, left: int | None, answer: Answer
) -> bool:
    """What the pilot may have of one class.  False: nothing may come behind it."""
    few = _few_left(turn, pilot, cls, answer) if cls.has_per_host else per_host.NO_LIMIT
    if few <= 0:
        return True
    units = min(_how_many(turn, pilot, cls, cost, paid, answer), few)
    if units < 0 or answer.want <= 0:
        return False  # full: what comes later in the order must not overtake
    if not units:
        return True
    answer.ahead, shrunk = answer.ahead and not cls.has_per_host, False  # for what comes behind it
    if turn.state.replicating and cls.bag in turn.state.replicating:
        units, shrunk = _in_tail(turn, pilot, cls, units, answer.want)
    if cls.overdue:
        wanted, units = units, _add_overdue(turn, pilot, cls, cost, units, answer)
        if not cls.on_ready_list and units == wanted:
            return not _lacks_room(turn, pilot, cls, cost, answer)
        if not cls.on_ready_list or answer.want <= 0 or (units <= 0 and not shrunk):
            return True
    if cls.by_data:
        if cls.bag not in answer.looked:
            _add_chosen(turn, pilot, cls, 1 if paid else min(answer.want, few), left, answer)
        return True
    some = _add_ready(turn, pilot, cls, cost, units, left, answer) if units > 0 else True
    if answer.want <= 0 or answer.budget <= 0 or len(answer.groups) >= MOST_GROUPS:
        return False
    if shrunk and some:
        turn.grants.recheck_waiting = True  # the rest of a tail is for those who wait, this one included
        return False
    return True


def _few_left(turn: Turn, pilot: PilotState, cls: TaskClass, answer: Answer) -> int:
    answer.held = answer.held or per_host.Held(turn.state, pilot.row)
    return per_host.left(turn, pilot, cls, answer.groups, answer.held)


def _add_overdue(turn: Turn, pilot: PilotState, cls: TaskClass, cost: int, units: int, answer: Answer) -> int:
    """How many of so many are left then for what nobody runs."""
    most = min(units, answer.want, room(turn, pilot, answer.load, cls, cost, False))
    n = by_deadline.add_overdue(turn, pilot, cls, most, answer.groups)
    answer.load, answer.want = answer.load + n * cost, answer.want - n
    answer.ahead = answer.ahead and (n < units or not cls.on_ready_list)  # nothing is held before what is ready of it
    return units - n


def _lacks_room(turn: Turn, pilot: PilotState, cls: TaskClass, cost: int, answer: Answer) -> bool:
    """Is it for want of room alone that it is given none of what is overdue?  That must not be overtaken."""
    return room(turn, pilot, answer.load, cls, cost, False) <= 0 and by_deadline.has_overdue_for(turn.state, pilot, cls)


def _add_chosen(turn: Turn, pilot: PilotState, cls: TaskClass, most: int, left: int | None, answer: Answer) -> None:
    """What its bag chooses for itself, of all its classes."""
    answer.looked[cls.bag], answer.ahead = None, False
    pc, room_of = turn.state.pilot_classes[pilot.cls], _room_of(turn, pilot, left, answer.groups)
    found = nearest_data.take(turn, pilot, cls.bag, answer.load, most, room_of, answer.groups)
    answer.groups += [group for _, group in found]
    answer.load += sum(turn.state.cost_on(pc, each) for each, _ in found)
    answer.want -= sum(len(group.tasks) for _, group in found)


def _add_ready(
    turn: Turn, pilot: PilotState, cls: TaskClass, cost: int, units: int, left: int | None, answer: Answer
) -> bool:
    """So many of its tasks, or batches; were there any?"""
    taken = 0
    for group in _take(turn, pilot, cls, units, left, answer):
        n = len(group.tasks)
        answer.groups.append(group)
        answer.load += cost * n if group.chain < 0 else 0 if group.prerequisites else cost
        answer.want -= n
        answer.budget -= n * cls.message_bytes
        taken += n
    if answer.ahead and taken < cls.ready:
        answer.ahead, answer.behind = False, True  # nothing is held before the rest of it
    return taken > 0


def _in_tail(turn: Turn, pilot: PilotState, cls: TaskClass, units: int, want: int) -> tuple[int, bool]:
    """How many of so many in one answer; and does the rest stay for others?"""
    most = min(units, want, cls.ready + by_deadline.count_overdue_for(turn.state, pilot, cls, units))
    fewer = tail.grant_size_in_tail(turn, cls, units)
    return fewer, fewer < most


def _how_many(turn: Turn, pilot: PilotState, cls: TaskClass, cost: int, paid: bool, answer: Answer) -> int:
    """0: it waits for something else than room; less than that: the pilot is full.  What a task weighs is rounded up,
    so where nothing is held ahead any more one may fit all the same."""
    units = room(turn, pilot, answer.load, cls, cost, answer.ahead)
    if units <= 0 and answer.behind and not paid and answer.load < pilot.cores * 1000:
        return 1
    if units <= 0:
        return 0 if _waits_otherwise(turn, pilot, cls, paid, answer.groups) else -1
    return max(_affordable(turn, pilot, answer.load, cls, answer.groups, units), 0) if paid else units


def _waits_otherwise(turn: Turn, pilot: PilotState, cls: TaskClass, paid: bool, groups: list[f.Group]) -> bool:
    """Is it not for want of room that it is not given to this pilot: for want of means, or because its host runs it?"""
    if paid and Affordable(turn.state, pilot, turn.now, groups).most(cls) <= 0:
        return True
    return bool(cls.overdue) and not cls.on_ready_list and not by_deadline.has_overdue_for(turn.state, pilot, cls)


def _dealt(
    turn: Turn, pilot: PilotState, of: dict[str, list[Entry]], want: int, left: int | None, groups: list[f.Group]
) -> int:
    """The same where several owners have something for the pilot.  What it will carry then."""
    state, pc = turn.state, turn.state.pilot_classes[pilot.cls]

    def spare(number: int, load: int) -> int:
        cls = state.classes[number]
        return max(room(turn, pilot, load, cls, state.cost_on(pc, cls), ahead=False) * state.cost_on(pc, cls), 0)

    def overtaken(number: int, load: int) -> bool:
        """Would what comes behind it have what it waits for: room, or its turn in the tail?"""
        cls = state.classes[number]
        if spare(number, load) > 0:
            return cls.bag in state.replicating and tail.grant_size_in_tail(turn, cls, 2) < 2
        return not _waits_otherwise(turn, pilot, cls, True, groups)

    taken: dict[int, int] = {}  # class → tasks so far

    def part(entries: list[Entry], most: int, load: int) -> int:
        answer = Answer(groups, most, load, turn.config.message, ahead=False)
        _walk(turn, pilot, entries, left, answer)
        return answer.load

    def walk(entries: list[Entry], most: int, load: int) -> tuple[int, int]:
        had = len(groups)
        for number in [number for _, number in entries if number in taken]:
            cls = state.classes[number]
            n = 0 if cls.in_chain or cls.by_data else min(most - _tasks(groups[had:]), cls.ready - taken[number])
            before = len(groups)
            load = part([(cls.order_key, number)], n, load)
            if n > _tasks(groups[before:]) and overtaken(number, load):
                break
        else:
            others = [entry for entry in entries if entry[1] not in taken]
            load = part(others, most - _tasks(groups[had:]), load)
        for group in groups[had:]:
            number = state.bags[group.bag].classes[group.target, group.variant].number
            states = state.bags[group.bag].tasks.state  # what is overdue is not ready
            taken[number] = taken.get(number, 0) + sum(states[task] == READY for task in group.tasks)
        return _tasks(groups[had:]), load

    return fair_share.deal(turn, pilot, of, want, spare, walk)


def _runs_empty(turn: Turn, pilot: PilotState, of: dict[str, list[Entry]], left: int | None) -> bool:
    """Has a bag waited so long for the room that others' tasks take here that there will be nothing before it?"""
    state = turn.state
    if not any(state.bags[state.classes[entries[0][1]].bag].aged_since for entries in of.values()):
        return False  # what is lifted comes first
    room_of = _room_of(turn, pilot, left, [])
    for entries in of.values():
        lifted = takewhile(lambda cls: state.bags[cls.bag].aged_since, (state.classes[number] for _, number in entries))
        cls = next((cls for cls in lifted if room_of(cls, 0) > 0), None)  # the first that may go there at all
        if cls is not None and not cls.by_data and room_of(cls, pilot.load) <= 0:
            return True
    return False


def _tasks(groups: list[f.Group]) -> int:
    return sum(len(group.tasks) for group in groups)


def _hand_out(turn: Turn, pilot: PilotState, groups: list[f.Group], load: int = 0) -> bool:
    """`load`: what it was thought to carry then.  What joins a batch that is there takes no more room than that."""
    if groups:
        moves = copies.plan_transfers(turn.state, pilot, groups)
        turn.emit(f.Granted(turn.now, pilot.number, pilot.granted + 1, groups, moves))
        turn.grants.grants_this_step[pilot.number] = (pilot.granted, groups)
        if turn.state.deadlines:
            by_deadline.watch_grant(turn, pilot, groups)
        turn.grants.recheck_waiting = turn.grants.recheck_waiting or pilot.load < load
    return bool(groups)


def _affordable(turn: Turn, pilot: PilotState, load: int, cls: TaskClass, groups: list[f.Group], units: int) -> int:
    """Of so many units.  What is held ahead pledges what another pilot could use now: only while there is plenty."""
    most = Affordable(turn.state, pilot, turn.now, groups).most(cls)
    at_once = room(turn, pilot, load, cls, turn.state.cost_on(turn.state.pilot_classes[pilot.cls], cls), ahead=False)
    return min(units, most, max(at_once, most // AMPLE))


def _grant_named(turn: Turn, pilot: PilotState, left: int | None) -> bool:
    """It was started for one task: that, or nothing any more."""
    state = turn.state
    if pilot.row in state.quarantined and not quarantine.tasks_allowed(state, turn.now, pilot):
        return False
    intent = state.intents[pilot.intent]
    bag = state.bags.get(intent.bag)
    if bag is not None and bag.tasks.state[intent.task] == READY:
        cls = bag.classes[bag.target_of(intent.task), bag.tasks.variant[intent.task]]
        able = state.cost_on(state.pilot_classes[pilot.cls], cls) and fits(pilot, cls, left)
        able = (
            able
            and turn.grants.orders.admits(state, turn.now, pilot, cls)
            and not must_go_elsewhere(state, pilot.site, cls)
        )
        able = able and (
            not cls.has_per_host or per_host.left(turn, pilot, cls, [], per_host.Held(state, pilot.row)) > 0
        )
        if cls.on_ready_list and able and Affordable(state, pilot, turn.now).most(cls) > 0:
            number = state.attempts.numbers(1)
            chain = chains.chain_of(bag, intent.task)
            one = [intent.task]
            group = f.Group(
                bag.number,
                cls.target,
                cls.time_retries,
                cls.memory_retries,
                one,
                number,
                chain,
                to_fail_over_site=cls.to_fail_over_site,
            )
            return _hand_out(turn, pilot, [group])
    if not pilot.attempts_held:
        turn.emit(f.PilotDraining(turn.now, pilot.number))
    return False


def fits(pilot: PilotState, cls: TaskClass, left: int | None) -> bool:
    """What the class of the pilot cannot say: this one's own memory and disk, and the time it has left."""
    if cls.memory > pilot.memory or cls.disk > pilot.disk:
        return False
    return left is None or (cls.least_time_left or 1) <= left


def _room_of(turn: Turn, pilot: PilotState, left: int | None, groups: list[f.Group]) -> nearest_data.Room:
    """How many tasks of a class such a pilot could begin, holding so much."""
    pc = turn.state.pilot_classes[pilot.cls]
    purse = Affordable(turn.state, pilot, turn.now, groups)
    held = per_host.Held(turn.state, pilot.row)

    def room_of(cls: TaskClass, load: int) -> int:
        cost = turn.state.cost_on(pc, cls)
        if not cost or not fits(pilot, cls, left) or not purse.most(cls):
            return 0
        if not turn.grants.orders.admits(turn.state, turn.now, pilot, cls):
            return 0
        if must_go_elsewhere(turn.state, pilot.site, cls) or quarantine.refuses_guest(turn.state, turn.now, pilot, cls):
            return 0
        most = per_host.left(turn, pilot, cls, groups, held) if cls.has_per_host else per_host.NO_LIMIT
        return min(room(turn, pilot, load, cls, cost, ahead=False), most)

    return room_of


def withheld(turn: Turn, pilot: PilotState, cls: TaskClass, left: int | None) -> bool:
    """Is its bag unwilling to let this pilot have anything now?"""
    bag = turn.state.bags[cls.bag]
    if not cls.by_data:
        return False
    ahead = nearest_data.outlook(turn.state, turn.now, bag, pilot)
    best = nearest_data.choose(turn, pilot, bag, pilot.load, {}, _room_of(turn, pilot, left, []), ahead)
    return best is not None and nearest_data.is_withheld(bag, best)


def _take(
    turn: Turn, pilot: PilotState, cls: TaskClass, units: int, left: int | None, answer: Answer
) -> list[f.Group]:
    if cls.in_chain:
        def fits_too(other: TaskClass) -> bool:
            return fits(pilot, other, left) and turn.grants.orders.admits(turn.state, turn.now, pilot, other)

        return batches.take(turn, pilot, cls, units, answer.want, answer.budget, fits_too)
    n = min(answer.want, units, cls.ready, max(answer.budget // cls.message_bytes, 1))
    tasks = _others(cls, n, answer.groups)
    assert len(tasks) == n, "a class counted more ready tasks than its backlog holds"
    numbers = turn.state.attempts.numbers(n)
    return [
        f.Group(
            cls.bag,
            cls.target,
            cls.time_retries,
            cls.memory_retries,
            tasks,
            numbers,
            to_fail_over_site=cls.to_fail_over_site,
        )
    ]


def _others(cls: TaskClass, n: int, groups: list[f.Group]) -> list[int]:
    """Tasks that these groups do not hold.  What came back twice may lie in the backlog twice, and is ready until the
    whole answer is granted: a class that is asked again meanwhile would give it again."""
    held = {task for group in groups if group.bag == cls.bag and group.target == cls.target for task in group.tasks}
    if not held:
        return cls.backlog.take(n)
    found: dict[int, None] = {}
    while len(found) < n and (more := cls.backlog.take(n - len(found))):
        found.update((task, None) for task in more if task not in held)
    return list(found)


def room(turn: Turn, pilot: PilotState, load: int, cls: TaskClass, cost: int, ahead: bool) -> int:
    """How many more tasks of a class, or batches of them, the pilot should hold."""
    capacity = pilot.cores * 1000
    slots = capacity // cost
    if cls.memory:  # its class may be said to have a little more than it has
        slots = min(slots, pilot.memory // cls.memory)
    if cls.disk:
        slots = min(slots, pilot.disk // cls.disk)
    bag = turn.state.bags[cls.bag]
    # A pilot starts what it holds as cores fall free; of disk it keeps no account, so it holds no more than fits.
    more = prefetch(turn, bag, cls) if ahead and not bag.external and not cls.disk else 0
    return ((1 + more) * slots * cost - load) // cost


def prefetch(turn: Turn, bag: BagState, cls: TaskClass) -> int:
    """Tasks, or batches, per slot to hold beyond those that run."""
    mean = (cls.mean or float(bag.targets[cls.target].shape.expect)) * max(cls.batch, 1)
    if not mean:
        return int(not cls.in_chain)
    return min(int(turn.config.prefetch / mean), turn.config.prefetch_most)
