"""Replicas by expression: the bag's `replicate` says which of its running tasks get one more attempt (GridBot's
`ReplicationRequirements`).

The expression speaks of the bag and of the task's ad, in which `Replica1`, `Replica2` and so on are the hosts that run
the task, oldest attempt first.  Evaluation goes in cycles, as in algorithm 2: a cycle evaluates the tasks in play,
those with the fewest attempts first and of these the oldest, some of them in each step; the next cycle begins a while
after the last one began.  A task stays wanted until a pilot takes it, its attempts change, or the cycle is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from windfall.core.decide.replicas.session import Cycle
from windfall.core.expressions import attributes
from windfall.core.expressions.classads import Value, matches, program, program_of, why_not
from windfall.core.messages.lifecycle import ACTIVE, GRANTED, STARTED
from windfall.core.state.columns import ref_of
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn

CYCLE = 10_000  # ms from the beginning of one cycle to that of the next
MOST_EVALUATED = 256  # tasks of all bags evaluated in one step,
LEAST_PER_BAG = 8  # but of each bag no fewer than these
PAUSE = 100  # ms until the cycle goes on
MOST_WANTED = 256  # tasks of one bag that wait for a pilot

Read = Callable[["RunningTask"], Value]
Published = Callable[[PilotState], Mapping[str, Value]]  # the ad of a pilot's host


@dataclass(slots=True)
class RunningTask:
    """A running task as its bag's expression sees it."""

    subject: attributes.Subject
    rows: list[int]  # of its attempts, oldest first
    published: Published


def continue_cycle(turn: Turn, bag: BagState, text: str, most: int) -> Cycle:
    """Evaluate a part of the bag's tasks, in the present cycle or a new one.  A task has at most `most` attempts."""
    cycle = _present_cycle(turn, bag, text, most)
    _drop_changed(bag, cycle)
    tasks, wanted = bag.tasks, cycle.wanted
    turn.state.attempts.index(bag.number)
    asks_for = _evaluator(turn, bag)
    for _ in range(max(MOST_EVALUATED - turn.replicas.evaluated, LEAST_PER_BAG)):
        if not cycle.queue or len(wanted) >= MOST_WANTED:
            break
        task = cycle.queue.popleft()
        turn.replicas.evaluated += 1
        if tasks.state[task] != ACTIVE or not 0 < tasks.live[task] < most or not asks_for(task):
            continue
        if len(wanted) < MOST_WANTED // 2 or not _shares_host_with_first(turn, bag, cycle, task):
            wanted[task] = tasks.live[task]
    return cycle


def _present_cycle(turn: Turn, bag: BagState, text: str, most: int) -> Cycle:
    cycles = turn.replicas.cycles
    cycle = cycles.get(bag.number)
    if cycle is None or cycle.text != text:
        for number in [number for number in cycles if number not in turn.state.replicating]:
            del cycles[number]  # of bags that have ended since
        cycle = cycles[bag.number] = Cycle(text)
    if turn.now < cycle.next_begins:
        return cycle
    if cycle.queue and len(cycle.wanted) >= MOST_WANTED:
        cycle.next_begins = turn.now + CYCLE
        cycle.wanted.clear()  # no pilot took these: evaluate others
    if not cycle.queue:
        cycle.next_begins, cycle.queue = turn.now + CYCLE, _in_play(turn, bag, most)
        cycle.wanted.clear()
    return cycle


def _drop_changed(bag: BagState, cycle: Cycle) -> None:
    """Drop the wanted tasks that have ended, or whose attempts are not those of the evaluation."""
    tasks = bag.tasks
    changed = [task for task, live in cycle.wanted.items() if tasks.state[task] != ACTIVE or tasks.live[task] != live]
    for task in changed:
        del cycle.wanted[task]


def _evaluator(turn: Turn, bag: BagState) -> Callable[[int], bool]:
    """Return a function that says whether the expression asks for a replica of a task."""
    expression = program_of(bag, "replicate")
    reads = [reader(path) for path in expression.uses]
    published = partial(turn.grants.orders.published, turn.state, turn.now)

    def asks_for(task: int) -> bool:
        running = _running_task(turn.state, turn.now, bag, task, published)
        return running is not None and matches(expression.result(tuple([read(running) for read in reads])))

    return asks_for


def _shares_host_with_first(turn: Turn, bag: BagState, cycle: Cycle, task: int) -> bool:
    """Does the task run on the host of the first wanted one?  A large host must find some that it does not run."""
    first = next(iter(cycle.wanted))
    return bool(_hosts(turn, bag, task) & _hosts(turn, bag, first))


def _hosts(turn: Turn, bag: BagState, task: int) -> set[int]:
    state = turn.state
    return {state.pilots[state.attempts.pilot[row]].row for row in state.attempts.of_task(ref_of(bag.number, task))}


def _in_play(turn: Turn, bag: BagState, most: int) -> deque[int]:
    attempts, live = turn.state.attempts, bag.tasks.np_live
    rows = attempts.in_play(bag.number)
    tasks = attempts.tasks_of(rows)
    rows, tasks = rows[live[tasks] < most], tasks[live[tasks] < most]
    order = np.lexsort((attempts.np_granted[rows], live[tasks]))
    return deque(dict.fromkeys(tasks[order].tolist()))


def _running_task(state: State, now: int, bag: BagState, task: int, published: Published) -> RunningTask | None:
    attempts = state.attempts
    rows = [row for row in attempts.of_task(ref_of(bag.number, task)) if attempts.state[row] in (GRANTED, STARTED)]
    rows.sort(key=lambda row: (attempts.granted[row], attempts.number[row]))
    cls: TaskClass | None = bag.classes.get((bag.target_of(task), bag.tasks.variant[task]))
    if not rows or cls is None:
        return None
    site = state.sites[state.pilots[attempts.pilot[rows[0]]].site]
    return RunningTask(attributes.Subject(state, now, bag, site, cls), rows, published)


def why_not_wanted(state: State, now: int, bag: BagState, task: int, text: str) -> str:
    """Say why the expression asks for no replica of a running task; "" if it asks for one."""
    running = _running_task(state, now, bag, task, lambda pilot: attributes.host_ad(state, pilot, now))
    if running is None:
        return ""
    return why_not(text, {path: reader(path)(running) for path in program(text).uses})


def reader(path: str) -> Read:
    """Return the function that reads an attribute of a running task."""
    if path == "Task.NumberOfReplicas":
        return lambda running: len(running.rows)
    if not path.startswith("Task.Replica"):
        return lambda running: attributes.value_now(running.subject, path)
    which, _, rest = path.removeprefix("Task.Replica").partition(".")
    place = int(which) - 1
    return lambda running: _of_replica(running, place, rest)


def _of_replica(running: RunningTask, place: int, rest: str) -> Value:
    """Read an attribute of the host that runs the attempt at this place; undefined where there are fewer attempts."""
    if place >= len(running.rows):
        return None
    asked = running.subject
    state = asked.state
    if rest == "SentTime":
        return state.attempts.granted[running.rows[place]] // 1000
    pilot = state.pilots[state.attempts.pilot[running.rows[place]]]
    subject = attributes.Subject(
        state, asked.now, asked.bag, state.sites[pilot.site], cls=asked.cls, pilot=pilot)
    return attributes.value_from_ad(subject, rest, running.published(pilot))
