"""Deadlines of attempts: one that has not reported in time has its task given to another host, too (algorithm 2 of
GridBot, its first half).

Rules
  * A deadline counts from the grant.  It comes from the bag's `attempt-deadline`, in seconds; with the preset
    `deadline` and nothing said it is a few times what such tasks take.  What is undefined or an error is none.
  * A task is *overdue* when every attempt of it in play is past its own deadline.  It then stands in its class's place
    in the order, before tasks that nobody runs: it came earlier.  Pilots are started for it as for any other.
  * The old attempt goes on, and its result is as good as any: the first wins (`endings.py`).
  * Never on a host that runs the task already, at another site rather than at the same, and never more than a few
    attempts of it at a time.
  * What has external effects, goes in batches or pipelines, or has pilots of its own, has no deadlines.
  * After a restart nothing is overdue before one lease has passed: silence until then means nothing.

All of this is volatile: it follows from when attempts were granted.  Looking costs one pass over the attempts in play,
when the first of them falls due and at most once a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from windfall.core.decide.grant import per_host
from windfall.core.decide.grant.draft import Recipient
from windfall.core.decide.replicas.candidates import DEADLINE, may_run_twice, replicates, setting
from windfall.core.decide.replicas.caps import cap, usual_time
from windfall.core.expressions import attributes
from windfall.core.expressions.classads import Value, program_of, why_no_value
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import ACTIVE, GRANTED, STARTED
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn
from windfall.model.policies.replica_caps import PER_TASK

EVERY = 1_000  # ms between two looks at one bag
USUAL = 3  # with the preset: times what such tasks take,
SHORTEST = 60_000  # and no less than so many ms
NEVER = 1 << 61
MOST_PER_TASK = 4  # attempts of one task at a time, unless the bag says otherwise
MOST_SEEN = 64  # overdue tasks of a class that are looked at for one request


def has_deadlines(bag: BagState) -> bool:
    return may_run_twice(bag) and ("attempt-deadline" in bag.policy or setting(bag) == DEADLINE)


def note_replication(state: State, bag: BagState) -> None:
    """Whether its tasks may run twice at a time, and why."""
    for of, may in ((state.replicating, replicates(bag) and not bag.ended), (state.deadlines, has_deadlines(bag))):
        if may:
            of[bag.number] = None
        else:
            of.pop(bag.number, None)


def deadline_span(turn: Turn, cls: TaskClass, pilot: PilotState) -> int:
    """Ms from its grant that an attempt of such a task on such a pilot may take."""
    bag = turn.state.bags[cls.bag]
    if "attempt-deadline" not in bag.policy:
        usual = usual_time(turn.state, cls)
        return max(round(USUAL * usual), SHORTEST) if usual else NEVER
    known = program_of(bag, "attempt-deadline")
    values = _values(turn.state, turn.now, cls, pilot, turn.grants.orders.published(turn.state, turn.now, pilot))
    found = known.result(tuple(values.values()))
    return NEVER if isinstance(found, str) or not 0 < found < 1 << 40 else round(found * 1000)


def _values(
    state: State, now: int, cls: TaskClass, pilot: PilotState, published: Mapping[str, Value]
) -> dict[str, Value]:
    """Of what its `attempt-deadline` speaks of, in the order in which it does."""
    bag = state.bags[cls.bag]
    uses = program_of(bag, "attempt-deadline").uses
    subject = attributes.Subject(state, now, bag, state.sites[pilot.site], cls, pilot)
    if "PerHost" in uses:
        most = per_host.limit(state, now, pilot, cls, published)
        published = {**published, "PerHost": most if most < per_host.NO_LIMIT else None}
    return {path: attributes.value_from_ad(subject, path, published) for path in uses}


def why_no_deadline(state: State, now: int, cls: TaskClass, pilot: PilotState) -> str:
    """Why its `attempt-deadline` sets none for an attempt there; "" if it sets one, or there is none to ask."""
    text = state.bags[cls.bag].policy.get("attempt-deadline")
    if text is None:
        return ""
    return why_no_value(text, _values(state, now, cls, pilot, attributes.host_ad(state, pilot, now)))


# --- watching ---------------------------------------------------------------------------------------------------------


def watch_grant(turn: Turn, pilot: PilotState, groups: list[f.Group]) -> None:
    """These have just been granted."""
    for number in {group.bag: None for group in groups if group.bag in turn.state.deadlines}:
        first = min(deadline_span(turn, _class(turn.state, group), pilot) for group in groups if group.bag == number)
        _look_at(turn, number, turn.now + min(first, SHORTEST))


def _class(state: State, group: f.Group) -> TaskClass:
    return state.bags[group.bag].classes[group.target, group.variant]


def _look_at(turn: Turn, bag: int, at: int) -> None:
    if at < turn.replicas.expiries.get(bag, NEVER):
        turn.replicas.expiries[bag] = at
        turn.timers.add(at, "expiry", bag)


def expiry_due(turn: Turn, number: int) -> None:
    if turn.replicas.expiries.get(number, NEVER) <= turn.now:
        del turn.replicas.expiries[number]
        find_overdue(turn, number)


def resume(turn: Turn) -> None:
    for number in turn.state.deadlines:
        _look_at(turn, number, turn.grace_ends())


def find_overdue(turn: Turn, number: int) -> None:
    """Which of its tasks are overdue now, and when to look again."""
    bag = turn.state.bags.get(number)
    if bag is None or number not in turn.state.deadlines:
        return
    due, watchful = _due(turn, bag)
    before = [task for cls in bag.classes.values() for task in cls.overdue]
    for cls in bag.classes.values():
        cls.overdue.clear()
    for ref, hosts in _hosts(turn.state, bag, {ref: [] for ref, at in due.items() if at <= turn.now}).items():
        _add(turn.state, bag, ref & 0xFFFFFFFF, tuple(hosts))
    if [task for cls in bag.classes.values() for task in cls.overdue] != before:
        turn.state.version += 1
        turn.provision.changed = True
    first = min([at for at in due.values() if turn.now < at < NEVER], default=NEVER)
    first = min(first, turn.now + SHORTEST) if watchful else first
    if first < NEVER:
        _look_at(turn, number, max(first, turn.now + EVERY))


def _due(turn: Turn, bag: BagState) -> tuple[dict[int, int], bool]:
    """When each of its tasks in play is overdue: by the last of its attempts.  And is it to be looked at again before
    long: one of them is past its deadline and another one not, or how long such tasks take is not known yet?"""
    attempts = turn.state.attempts
    states, refs = attempts.np_state[: attempts.rows], attempts.np_task[: attempts.rows]
    rows = np.flatnonzero((refs >> 32 == bag.number) & ((states == STARTED) | (states == GRANTED)))
    spans: dict[tuple[int, int], int] = {}
    due: dict[int, int] = {}
    watchful = False
    pairs = zip(rows.tolist(), attempts.np_cls[rows].tolist(), attempts.np_pilot[rows].tolist(), strict=True)
    for row, cls, pilot in pairs:
        span = spans.get((cls, pilot))
        if span is None:
            span = spans[cls, pilot] = deadline_span(turn, turn.state.classes[cls], turn.state.pilots[pilot])
        ref = attempts.task[row]
        at = attempts.granted[row] + span
        at = max(at, turn.grace_ends()) if attempts.granted[row] < turn.resumed else at
        due[ref] = max(due.get(ref, 0), at)
        watchful = watchful or at <= turn.now
    return due, watchful or bool(due and _moves(bag))


def _moves(bag: BagState) -> bool:
    """May a deadline come earlier than it was said to be?"""
    if "attempt-deadline" not in bag.policy:
        return True
    return not all(path in attributes.LASTING for path in program_of(bag, "attempt-deadline").uses)


def _hosts(state: State, bag: BagState, found: dict[int, list[int]]) -> dict[int, list[int]]:
    """Those that have each of these tasks, or may have: rows of hosts."""
    attempts = state.attempts
    for row in attempts.of_bag(bag.number).tolist() if found else ():
        if (hosts := found.get(attempts.task[row])) is not None:
            hosts.append(state.pilots[attempts.pilot[row]].row)
    return found


def _add(state: State, bag: BagState, task: int, hosts: tuple[int, ...]) -> None:
    """To those that may be given to another host."""
    cls = bag.classes.get((bag.target_of(task), bag.tasks.variant[task]))
    if cls is not None and not cls.in_chain and bag.tasks.live[task] < cap(bag, PER_TASK, MOST_PER_TASK):
        cls.overdue[task] = hosts
        state.overdue[cls.number] = None


def prune(state: State) -> None:
    """Forget those that are not overdue any more: they have ended, or one of their attempts has, and they go another
    way from now on; or one that was lost has come back, and there are as many as may be."""
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
    same = bag.tasks.state[task] == ACTIVE and bag.classes.get((cls.target, bag.tasks.variant[task])) is cls
    return same and bag.tasks.live[task] < cap(bag, PER_TASK, MOST_PER_TASK)


# --- granting ---------------------------------------------------------------------------------------------------------


def classes_with_overdue(state: State) -> list[TaskClass]:
    """Classes with overdue tasks, those of paused bags aside.  Every request asks, so of each only the first is looked
    at; who takes some sees about the others."""
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
    """Is there any overdue task of the class that its host does not run itself?"""
    return next(_for_host(state, pilot, cls), None) is not None


def count_overdue_for(state: State, pilot: PilotState, cls: TaskClass, most: int) -> int:
    """How many of these there are, up to so many."""
    return sum(1 for _ in islice(_for_host(state, pilot, cls), most)) if cls.overdue else 0


def _for_host(state: State, pilot: PilotState, cls: TaskClass) -> Iterator[tuple[int, tuple[int, ...]]]:
    bag = state.bags[cls.bag]
    return (each for each in cls.overdue.items() if pilot.row not in each[1] and _is_still_overdue(bag, cls, each[0]))


def add_overdue(turn: Turn, to: Recipient, cls: TaskClass, most: int) -> int:
    """Add attempts of overdue tasks that the pilot's host does not run, those that run at other sites first; return how
    many."""
    state, pilot = turn.state, to.pilot
    seen = dict(islice(_for_host(state, pilot, cls), MOST_SEEN))
    here = {task: any(state.host_names[row][0] == pilot.site for row in hosts) for task, hosts in seen.items()}
    live = state.bags[cls.bag].tasks.live
    tasks = sorted(here, key=lambda task: (live[task], here[task]))[: max(most, 0)]
    for task in tasks:
        del cls.overdue[task]
    if tasks:
        state.version += 1  # who waited behind them may have something else now
        _look_at(turn, cls.bag, turn.now + EVERY)
        to.groups.append(cls.group(tasks, state.attempts.numbers(len(tasks))))
    return len(tasks)
