"""Running again: which tasks of a bag start again when the user has mended what they run.

Rules
  * A bag is run again once all its tasks have ended: an attempt in play has the files of before.
  * Tasks that failed, were cancelled or quarantined start again; so do tasks that the change concerns, or a choice of
    these.  A task whose prerequisite starts again starts again, too, for it may read other files.
  * A task that the change concerns, and that keeps its result by the user's choice, is *outdated*: the next rerun of
    what has changed takes it, too.
  * When a change concerns tasks and nothing starts again, the specification stays as it was, so that the change is
    found again next time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windfall.core.decide.data.lost_copies import rerun_makers
from windfall.core.decide.exchange.stranded import cancel_stranded
from windfall.core.decide.requests.request import refusing, the_bag
from windfall.core.decide.requests.submit import check_budget
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import FREE, LOST, SUCCEEDED
from windfall.core.messages.runs import runs_where
from windfall.core.state.classes import spans
from windfall.core.state.load import OUTDATED
from windfall.core.state.world import BagState, State
from windfall.core.turn import Turn
from windfall.errors import BadInput, Conflict
from windfall.model.units import plural

FAILED, CHANGED, ALL = "failed", "changed", "all"
Mask = NDArray[np.bool_]


class TasksAgain(NamedTuple):
    """The tasks that a rerun starts again, and those that keep a result of the former specification."""

    again: f.Runs
    outdated: f.Runs


@refusing
def rerun(turn: Turn, event: e.Rerun) -> None:
    """Begin a new generation of the chosen tasks, under the new specification.

    The answer's `value` counts them, its `extra` those that keep a result of the former specification."""
    bag = the_bag(turn, event.bag)
    chosen = selection(turn.state, event)
    if event.spec and (chosen.again or not event.concerned):
        turn.emit(f.BagRevised(
            turn.now, bag.number, event.spec, event.targets, outdated=chosen.outdated, by=event.by))
    if chosen.again:
        turn.emit(f.TasksRetried(turn.now, bag.number, chosen.again, event.by, why="rerun"))
        cancel_stranded(turn, bag)
        rerun_makers(turn, bag)
    turn.done(event, bag.not_ended(), total(chosen.outdated))  # what waits for a failed task is cancelled again


def total(runs: f.Runs) -> int:
    return sum(count for _, count in runs)


def selection(state: State, event: e.Rerun) -> TasksAgain:
    """Choose the tasks; raise the error that refuses the event."""
    bag = state.bags[event.bag]
    _check(state, bag, event)
    states, outdated = bag.tasks.np_state[: bag.size], (bag.tasks.np_flags[: bag.size] & OUTDATED) > 0
    for first, count in event.concerned:
        outdated[first : first + count] = True
    failed = states > SUCCEEDED
    wanted = {"": failed | outdated, FAILED: failed, CHANGED: outdated, ALL: np.ones(bag.size, dtype=bool)}
    again = _with_dependents(bag, wanted[event.which])
    return TasksAgain(runs_where(again), runs_where(outdated & ~again & (states == SUCCEEDED)))


def _check(state: State, bag: BagState, event: e.Rerun) -> None:
    if event.which not in ("", FAILED, CHANGED, ALL):
        raise BadInput(f"{event.which[:40]!r} chooses no tasks", f"choose {FAILED}, {CHANGED} or {ALL}")
    if more := bag.not_ended():
        raise Conflict(
            f"bag {bag.number} still runs, with {plural(more, 'task')} to go",
            f"windfall wait {bag.number} first; or windfall cancel {bag.number}: cancelled tasks run again, too")
    if not event.spec:
        return
    if event.seen != (bag.revised, len(bag.appended)):
        raise Conflict(f"bag {bag.number} has changed meanwhile", "look again, then ask again")
    shapes = [target.shape for target in bag.targets]
    if [(shape.name, shape.count) for shape in event.targets] != [(shape.name, shape.count) for shape in shapes]:
        raise BadInput(f"bag {bag.number} has other targets, or other numbers of tasks", "submit a bag of its own")
    check_budget(bag.budget, event.targets)
    if event.targets != shapes and _in_play(state, bag):
        raise Conflict(f"attempts of bag {bag.number} that were cancelled have not stopped yet",
                       "try again in a moment")


def _in_play(state: State, bag: BagState) -> bool:
    """Does a pilot hold attempts of the bag?  They count by what they were granted for."""
    states = state.attempts.np_state[state.attempts.of_bag(bag.number)]
    return bool(((states != FREE) & (states != LOST)).any())


def _with_dependents(bag: BagState, chosen: Mask) -> Mask:
    """Return the chosen tasks and all that depend on them, by edges between tasks or between targets."""
    count = -1
    while count != (count := int(np.count_nonzero(chosen))):
        if bag.graph is not None:
            _follow_edges(bag, chosen)
        touched = [target for first, target, end in spans(bag) if chosen[first:end].any()]
        after = dict.fromkeys(index for target in touched for index in bag.targets[target].dependents)
        for first, target, end in spans(bag):
            if target in after:
                chosen[first:end] = True
    return chosen


def _follow_edges(bag: BagState, chosen: Mask) -> None:
    assert bag.graph is not None
    ready = np.flatnonzero(chosen).tolist()
    for task in ready:  # `ready` grows while the loop runs
        for after in bag.graph.after(task):
            if not chosen[after]:
                chosen[after] = True
                ready.append(after)
