"""Deadlines of attempts: a task whose attempt has not reported in time is granted to another host, too (the first half
of GridBot's algorithm 2).

Rules
  * A deadline counts from the grant.  The bag's `attempt-deadline` sets it, in seconds; the preset `deadline` alone
    sets a few times the usual time of such tasks.  An undefined value, or an error, sets none.
  * A task is *overdue* when each of its attempts in play is past its deadline.  An overdue task then stands in its
    class's place in the order, before the tasks that nobody runs, for it came earlier; pilots are started for it.
  * The old attempt goes on, and its result is as good as any: the first one wins (`exchange/verdicts.py`).
  * No host runs a task twice at a time; another site comes before the same site; a task has at most a few attempts.
  * Tasks with external effects, in batches or pipelines, or with pilots of their own have no deadlines.
  * After a restart no task is overdue before one lease has passed: silence until then means nothing.

Overdue tasks are volatile: they follow from when attempts were granted.  A check costs one pass over the attempts in
play, when the first of them falls due and at most once a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from windfall.core.decide.grant import per_host
from windfall.core.decide.grant.draft import Recipient
from windfall.core.decide.replicas.caps import cap, usual_time
from windfall.core.expressions import attributes
from windfall.core.expressions.classads import Value, program_of, why_no_value
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import ACTIVE
from windfall.core.state.columns import TASK_MASK
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn
from windfall.model.policies.replica_caps import PER_TASK

EVERY = 1_000  # ms between two checks of one bag
TIMES_USUAL = 3  # the preset's deadline, in usual times of such tasks,
SHORTEST = 60_000  # and no less than so many ms
NEVER = 1 << 61
MOST_PER_TASK = 4  # attempts of one task at a time, unless the bag's user says otherwise
MOST_SEEN = 64  # overdue tasks of a class that one request goes through


# --- deadlines --------------------------------------------------------------------------------------------------------


def deadline_span(turn: Turn, cls: TaskClass, pilot: PilotState) -> int:
    """Return the ms from its grant that an attempt of the class on the pilot may take; NEVER: it has no deadline."""
    bag = turn.state.bags[cls.bag]
    if "attempt-deadline" not in bag.policy:
        usual = usual_time(turn.state, cls)
        return max(round(TIMES_USUAL * usual), SHORTEST) if usual else NEVER
    expression = program_of(bag, "attempt-deadline")
    values = _values(turn.state, turn.now, cls, pilot, turn.grants.orders.published(turn.state, turn.now, pilot))
    found = expression.result(tuple(values.values()))
    return NEVER if isinstance(found, str) or not 0 < found < 1 << 40 else round(found * 1000)


def _values(
    state: State, now: int, cls: TaskClass, pilot: PilotState, published: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the attributes that the bag's `attempt-deadline` uses, in its order, with their values."""
    bag = state.bags[cls.bag]
    uses = program_of(bag, "attempt-deadline").uses
    subject = attributes.Subject(state, now, bag, state.sites[pilot.site], cls=cls, pilot=pilot)
    if "PerHost" in uses:
        most = per_host.limit(state, now, pilot, cls, published)
        published = {**published, "PerHost": most if most < per_host.NO_LIMIT else None}
    return {path: attributes.value_from_ad(subject, path, published) for path in uses}


def why_no_deadline(state: State, now: int, cls: TaskClass, pilot: PilotState) -> str:
    """Say why the bag's `attempt-deadline` sets none for an attempt on the pilot; "" if it sets one or is not given."""
    text = state.bags[cls.bag].policy.get("attempt-deadline")
    if text is None:
        return ""
    return why_no_value(text, _values(state, now, cls, pilot, attributes.host_ad(state, pilot, now)))


# --- watching ---------------------------------------------------------------------------------------------------------


def watch_grant(turn: Turn, pilot: PilotState, groups: list[f.Group]) -> None:
    """Set a timer for the first deadline of what has just been granted."""
    for number in {group.bag: None for group in groups if group.bag in turn.state.deadlines}:
        first = min(deadline_span(turn, _class(turn.state, group), pilot) for group in groups if group.bag == number)
        _check_at(turn, number, turn.now + min(first, SHORTEST))


def _class(state: State, group: f.Group) -> TaskClass:
    return state.bags[group.bag].classes[group.target, group.variant]


def _check_at(turn: Turn, bag: int, at: int) -> None:
    if at < turn.replicas.overdue_timers.get(bag, NEVER):
        turn.replicas.overdue_timers[bag] = at
        turn.timers.add(at, "expiry", bag)


def expiry_due(turn: Turn, number: int) -> None:
    if turn.replicas.overdue_timers.get(number, NEVER) <= turn.now:
        del turn.replicas.overdue_timers[number]
        find_overdue(turn, number)


def resume(turn: Turn) -> None:
    for number in turn.state.deadlines:
        _check_at(turn, number, turn.grace_ends())


def find_overdue(turn: Turn, number: int) -> None:
    """List the bag's overdue tasks anew, and set the timer for the next check."""
    bag = turn.state.bags.get(number)
    if bag is None or number not in turn.state.deadlines:
        return
    due, check_soon = _due_times(turn, bag)
    before = _overdue_tasks(bag)
    for cls in bag.classes.values():
        cls.overdue.clear()
    overdue = [ref for ref, at in due.items() if at <= turn.now]
    for ref, hosts in _hosts_of(turn.state, bag, overdue).items():
        _list_overdue(turn.state, bag, ref & TASK_MASK, tuple(hosts))
    if _overdue_tasks(bag) != before:
        turn.state.version += 1
        turn.provision.changed = True
    first = min([at for at in due.values() if turn.now < at < NEVER], default=NEVER)
    first = min(first, turn.now + SHORTEST) if check_soon else first
    if first < NEVER:
        _check_at(turn, number, max(first, turn.now + EVERY))


def _overdue_tasks(bag: BagState) -> list[int]:
    return [task for cls in bag.classes.values() for task in cls.overdue]


def _due_times(turn: Turn, bag: BagState) -> tuple[dict[int, int], bool]:
    """Return when each task in play is overdue, by the last of its attempts.  And must the check be repeated soon: is
    one attempt past its deadline while another is not, or may a deadline move?"""
    attempts = turn.state.attempts
    rows = attempts.in_play(bag.number)
    spans: dict[tuple[int, int], int] = {}
    due: dict[int, int] = {}
    any_past = False
    kinds = zip(rows.tolist(), attempts.np_cls[rows].tolist(), attempts.np_pilot[rows].tolist(), strict=True)
    for row, cls, pilot in kinds:
        span = spans.get((cls, pilot))
        if span is None:
            span = spans[cls, pilot] = deadline_span(turn, turn.state.classes[cls], turn.state.pilots[pilot])
        ref = attempts.task[row]
        at = attempts.granted[row] + span
        at = max(at, turn.grace_ends()) if attempts.granted[row] < turn.resumed else at
        due[ref] = max(due.get(ref, 0), at)
        any_past = any_past or at <= turn.now
    return due, any_past or bool(due and _deadline_moves(bag))


def _deadline_moves(bag: BagState) -> bool:
    """May a deadline come earlier than it was reckoned?"""
    if "attempt-deadline" not in bag.policy:
        return True
    return not all(path in attributes.LASTING for path in program_of(bag, "attempt-deadline").uses)


def _hosts_of(state: State, bag: BagState, refs: list[int]) -> dict[int, list[int]]:
    """Return the rows of the hosts that run each of these tasks, or may run it."""
    attempts = state.attempts
    found: dict[int, list[int]] = {ref: [] for ref in refs}
    for row in attempts.of_bag(bag.number).tolist() if found else ():
        if (hosts := found.get(attempts.task[row])) is not None:
            hosts.append(state.pilots[attempts.pilot[row]].row)
    return found


def _list_overdue(state: State, bag: BagState, task: int, hosts: tuple[int, ...]) -> None:
    cls = bag.classes.get((bag.target_of(task), bag.tasks.variant[task]))
    if cls is not None and not cls.in_chain and _may_have_another(bag, task):
        cls.overdue[task] = hosts
        state.overdue[cls.number] = None


def _may_have_another(bag: BagState, task: int) -> bool:
    return bag.tasks.live[task] < cap(bag, PER_TASK, MOST_PER_TASK)


def prune(state: State) -> None:
    """Drop tasks from the lists that are not overdue any more: the task has ended, one of its attempts has, or a lost
    attempt has come back and the task has as many as it may have."""
    for number in list(state.overdue):
        cls = state.classes.get(number)
        if cls is not None and cls.bag in state.deadlines:
            for task in [task for task in cls.overdue if not _is_still_overdue(state.bags[cls.bag], cls, task)]:
                del cls.overdue[task]
        elif cls is not None:
            cls.overdue.clear()
        if cls is None or not cls.overdue:
            del state.overdue[number]


def _is_still_overdue(bag: BagState, cls: TaskClass, task: int) -> bool:
    is_same = bag.tasks.state[task] == ACTIVE and bag.classes.get((cls.target, bag.tasks.variant[task])) is cls
    return is_same and _may_have_another(bag, task)


# --- granting ---------------------------------------------------------------------------------------------------------


def classes_with_overdue(state: State) -> list[TaskClass]:
    """Return the classes with overdue tasks, those of paused bags apart.

    Every request asks, so only the first task of each class is checked; `add_overdue` checks the others."""
    found = []
    for number in list(state.overdue):
        cls = state.classes.get(number)
        if cls is None or cls.bag not in state.deadlines:
            prune(state)
            continue
        bag = state.bags[cls.bag]
        while cls.overdue and not _is_still_overdue(bag, cls, first := next(iter(cls.overdue))):
            del cls.overdue[first]
        if not cls.overdue:
            state.overdue.pop(number, None)
        elif not bag.paused:
            found.append(cls)
    return found


def has_overdue_for(state: State, pilot: PilotState, cls: TaskClass) -> bool:
    """Is there an overdue task of the class that the pilot's host does not run itself?"""
    return next(_for_host(state, pilot, cls), None) is not None


def count_overdue_for(state: State, pilot: PilotState, cls: TaskClass, most: int) -> int:
    """Count the overdue tasks of the class that the pilot's host does not run itself, up to `most`."""
    return sum(1 for _ in islice(_for_host(state, pilot, cls), most)) if cls.overdue else 0


def _for_host(state: State, pilot: PilotState, cls: TaskClass) -> Iterator[tuple[int, tuple[int, ...]]]:
    bag = state.bags[cls.bag]
    return (each for each in cls.overdue.items() if pilot.row not in each[1] and _is_still_overdue(bag, cls, each[0]))


def add_overdue(turn: Turn, to: Recipient, cls: TaskClass, most: int) -> int:
    """Add attempts of overdue tasks that the pilot's host does not run, those that run at other sites first; return how
    many."""
    state, pilot = turn.state, to.pilot
    seen = dict(islice(_for_host(state, pilot, cls), MOST_SEEN))
    is_here = {task: any(state.host_names[row][0] == pilot.site for row in hosts) for task, hosts in seen.items()}
    live = state.bags[cls.bag].tasks.live
    tasks = sorted(is_here, key=lambda task: (live[task], is_here[task]))[: max(most, 0)]
    for task in tasks:
        del cls.overdue[task]
    if tasks:
        state.version += 1  # pilots that waited behind these tasks may have others now
        _check_at(turn, cls.bag, turn.now + EVERY)
        to.groups.append(cls.group(tasks, state.attempts.numbers(len(tasks))))
    return len(tasks)
