"""Replicas by expression: the bag says which of its running tasks are to be given to one more host (GridBot's
`ReplicationRequirements`).

The expression speaks of the task's ad, in which `Replica1`, `Replica2` and so on are the hosts that have it, oldest
first; and of the bag.  It is evaluated in cycles, as in algorithm 2: the tasks in play are gone through, those with the
fewest attempts first and of these the oldest, a part of them in each step; when all were seen the next cycle begins
after a while.  What was found stands until somebody takes it, its task changes, or the cycle is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from windfall.core.decide.replicas.session import Scan
from windfall.core.expressions import attributes
from windfall.core.expressions.classads import Value, matches, program, program_of, why_not
from windfall.core.messages.lifecycle import ACTIVE, GRANTED, STARTED
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn

CYCLE = 10_000  # ms from the beginning of one to that of the next
MOST_EVALUATED = 256  # tasks that are looked at in one step, of all bags,
LEAST_PER_BAG = 8  # and of each of them
PAUSE = 100  # ms, while there are more
MOST_WANTED = 256  # that wait to be taken

Read = Callable[["RunningTask"], Value]
Published = Callable[[PilotState], Mapping[str, Value]]  # the ad of a pilot's host


@dataclass(slots=True)
class RunningTask:
    """A task that runs, the rows of its attempts, oldest first, and where to look up the ads of their hosts."""

    subject: attributes.Subject
    rows: list[int]
    published: Published


def continue_cycle(turn: Turn, bag: BagState, text: str, most: int) -> Scan:
    """Go on with the cycle, or begin another one."""
    found = turn.replicas.cycles.get(bag.number)
    if found is None or found.text != text:
        for number in [number for number in turn.replicas.cycles if number not in turn.state.replicating]:
            del turn.replicas.cycles[number]  # bags that have ended since
        found = turn.replicas.cycles[bag.number] = Scan(text)
    if found.queue and turn.now >= found.begins and len(found.found) >= MOST_WANTED:
        found.begins = turn.now + CYCLE
        found.found.clear()  # nobody has taken these: let others be found
    if not found.queue and turn.now >= found.begins:
        found.begins, found.queue = turn.now + CYCLE, _in_play(turn, bag, most)
        found.found.clear()
    tasks = bag.tasks
    turn.state.attempts.index(bag.number)
    for task in [task for task, live in found.found.items() if tasks.state[task] != ACTIVE or tasks.live[task] != live]:
        del found.found[task]
    wants = program_of(bag, "replicate")
    reads = [reader(path) for path in wants.uses]
    published = partial(turn.grants.orders.published, turn.state, turn.now)
    for _ in range(max(MOST_EVALUATED - turn.replicas.evaluated, LEAST_PER_BAG)):
        if not found.queue or len(found.found) >= MOST_WANTED:
            break
        task = found.queue.popleft()
        turn.replicas.evaluated += 1
        case = None
        if tasks.state[task] == ACTIVE and 0 < tasks.live[task] < most:
            case = _case(turn.state, turn.now, bag, task, published)
        wanted = case is not None and matches(wants.result(tuple([read(case) for read in reads])))
        if wanted and (len(found.found) < MOST_WANTED // 2 or not _beside_first(turn, bag, found, task)):
            found.found[task] = tasks.live[task]
    return found


def _beside_first(turn: Turn, bag: BagState, found: Scan, task: int) -> bool:
    """Does it run on the host that runs the first one?  A large host is to find some that it does not run itself."""
    first = next(iter(found.found))
    return bool(_hosts(turn, bag, task) & _hosts(turn, bag, first))


def _hosts(turn: Turn, bag: BagState, task: int) -> set[int]:
    state = turn.state
    return {state.pilots[state.attempts.pilot[row]].row for row in state.attempts.of_task(bag.number << 32 | task)}


def _in_play(turn: Turn, bag: BagState, most: int) -> deque[int]:
    attempts, live = turn.state.attempts, bag.tasks.np_live
    states, refs = attempts.np_state[: attempts.rows], attempts.np_task[: attempts.rows]
    rows = np.flatnonzero((refs >> 32 == bag.number) & ((states == STARTED) | (states == GRANTED)))
    tasks = refs[rows] & 0xFFFFFFFF
    rows, tasks = rows[live[tasks] < most], tasks[live[tasks] < most]
    order = np.lexsort((attempts.np_granted[rows], live[tasks]))
    return deque(dict.fromkeys(tasks[order].tolist()))


def _case(state: State, now: int, bag: BagState, task: int, published: Published) -> RunningTask | None:
    attempts = state.attempts
    rows = [row for row in attempts.of_task(bag.number << 32 | task) if attempts.state[row] in (GRANTED, STARTED)]
    rows.sort(key=lambda row: (attempts.granted[row], attempts.number[row]))
    cls: TaskClass | None = bag.classes.get((bag.target_of(task), bag.tasks.variant[task]))
    if not rows or cls is None:
        return None
    site = state.sites[state.pilots[attempts.pilot[rows[0]]].site]
    return RunningTask(attributes.Subject(state, now, bag, site, cls), rows, published)


def why_not_wanted(state: State, now: int, bag: BagState, task: int, text: str) -> str:
    """Why the expression asks for no replica of a task that runs; "" if it asks for one."""
    case = _case(state, now, bag, task, lambda pilot: attributes.host_ad(state, pilot, now))
    return why_not(text, {path: reader(path)(case) for path in program(text).uses}) if case is not None else ""


def reader(path: str) -> Read:
    if path == "Task.NumberOfReplicas":
        return lambda case: len(case.rows)
    if not path.startswith("Task.Replica"):
        return lambda case: attributes.value_now(case.subject, path)
    which, _, rest = path.removeprefix("Task.Replica").partition(".")
    place = int(which) - 1
    return lambda case: _of_replica(case, place, rest)


def _of_replica(case: RunningTask, place: int, rest: str) -> Value:
    """Of the host that has it, as it is published; undefined where there are not so many."""
    if place >= len(case.rows):
        return None
    bag, state, now = case.subject.bag, case.subject.state, case.subject.now
    if rest == "SentTime":
        return state.attempts.granted[case.rows[place]] // 1000
    pilot = state.pilots[state.attempts.pilot[case.rows[place]]]
    subject = attributes.Subject(state, now, bag, state.sites[pilot.site], case.subject.cls, pilot)
    return attributes.value_from_ad(subject, rest, case.published(pilot))
