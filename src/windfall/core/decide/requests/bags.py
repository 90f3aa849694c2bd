"""Requests about a bag: close, pause, cancel, retry, remove, and change its budget or policies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from windfall.core.decide.data.lost_copies import rerun_makers
from windfall.core.decide.exchange.stranded import cancel_stranded
from windfall.core.decide.grant.order import prospects, wrong_policy
from windfall.core.decide.replicas import by_deadline
from windfall.core.decide.requests.attendance import close_bag
from windfall.core.decide.requests.request import refusing, the_bag
from windfall.core.decide.requests.submit import check_budget
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import ACTIVE, FIRST_FINAL, GRANTED, READY, STARTED, SUCCEEDED, WAITING
from windfall.core.messages.runs import runs_of, runs_where
from windfall.core.state import accounts
from windfall.core.state.classes import spans
from windfall.core.state.columns import TASK_BITS
from windfall.core.state.world import BagState
from windfall.core.turn import Turn
from windfall.errors import Conflict
from windfall.model.checks.bag import pointless
from windfall.model.policies.presets import NONE

States = NDArray[np.uint8]


@refusing
def close(turn: Turn, event: e.Close) -> None:
    """Let no more tasks be appended."""
    bag = the_bag(turn, event.bag)
    if bag.open:
        close_bag(turn, bag, event.by)
    turn.done(event, bag.number)


@refusing
def pause(turn: Turn, event: e.Pause) -> None:
    """Grant nothing of the bag, and recall what has not started; or go on."""
    bag = the_bag(turn, event.bag)
    if bag.paused != event.paused:
        turn.emit(f.BagPaused(turn.now, bag.number, event.paused, event.by))
        if event.paused:
            _recall_unstarted(turn, bag)
    turn.done(event, bag.number)


def _recall_unstarted(turn: Turn, bag: BagState) -> None:
    attempts = turn.state.attempts
    for row in attempts.in_state(bag.number, GRANTED).tolist():
        pilot = turn.state.pilots[attempts.pilot[row]]
        pilot.recalling[attempts.number[row]] = False
        turn.state.pilots_with_news[pilot.number] = None


@refusing
def cancel(turn: Turn, event: e.Cancel) -> None:
    """Cancel all tasks of a bag, which closes it, or those that the event names."""
    bag = the_bag(turn, event.bag)
    runs = _chosen(bag, event.tasks, lambda s: (s == READY) | (s == WAITING) if event.waiting else s < FIRST_FINAL)
    if event.tasks is None and bag.open:
        turn.emit(f.BagClosed(turn.now, bag.number, event.by))
    if runs:
        turn.emit(f.TasksCancelled(turn.now, bag.number, runs, "user", event.by))
        cancel_stranded(turn, bag)
    turn.done(event, sum(count for _, count in runs))


@refusing
def retry(turn: Turn, event: e.Retry) -> None:
    """Begin a new generation of the tasks that ended without success.  Accepted results stay.

    A task with external effects whose pilot is silent starts again, too, where the event names it alone: its user says
    that the old attempt is dead, so nothing that waits for the task is cancelled."""
    bag = the_bag(turn, event.bag)
    if bag.external and event.tasks is not None and len(event.tasks) == 1 and _is_stuck(turn, bag, int(event.tasks[0])):
        turn.emit(f.TasksCancelled(turn.now, bag.number, [(int(event.tasks[0]), 1)], "user", event.by))
    runs = _chosen(bag, event.tasks, lambda states: states > SUCCEEDED)
    if runs:
        turn.emit(f.TasksRetried(turn.now, bag.number, runs, event.by))
        cancel_stranded(turn, bag)
        rerun_makers(turn, bag)
    turn.done(event, sum(count for _, count in runs))


def _is_stuck(turn: Turn, bag: BagState, task: int) -> bool:
    """Do silent pilots alone hold the task?"""
    attempts, pilots = turn.state.attempts, turn.state.pilots
    if not (0 <= task < bag.size and bag.tasks.state[task] == ACTIVE):
        return False
    rows = attempts.of_task(bag.number << TASK_BITS | task)
    held = [row for row in rows if attempts.state[row] in (GRANTED, STARTED)]
    return all(pilots[attempts.pilot[row]].lease_expired for row in held)


def _chosen(
    bag: BagState, tasks: list[int] | NDArray[np.int64] | None, wanted: Callable[[States], NDArray[np.bool_]]
) -> f.Runs:
    """Return those of the named tasks, or of all tasks, that are in a wanted state."""
    states = bag.tasks.np_state
    if tasks is None:  # ten million tasks are never listed one by one
        return runs_where(wanted(states[: bag.size]))
    chosen = np.unique(np.asarray(tasks, dtype=np.int64))
    chosen = chosen[(chosen >= 0) & (chosen < bag.size)]
    return runs_of(chosen[wanted(states[chosen])])


@refusing
def remove(turn: Turn, event: e.Remove) -> None:
    """Remove a bag that has ended."""
    bag = the_bag(turn, event.bag)
    if bag.not_ended():
        raise Conflict(f"bag {bag.number} has unfinished tasks", f"windfall cancel {bag.number} first")
    turn.emit(f.BagRemoved(turn.now, bag.number, event.by))
    turn.done(event, bag.number)


@refusing
def set_budget(turn: Turn, event: e.SetBudget) -> None:
    """Give a bag another budget, which must cover what it has used and reserved."""
    bag = the_bag(turn, event.bag)
    check_budget(event.budget, [target.shape for target in bag.targets])
    rows = turn.state.attempts.of_bag(bag.number).tolist()
    used = bag.spent + sum(accounts.pledge_of(turn.state, row) for row in rows)
    if event.budget and event.budget < used:
        raise Conflict(f"bag {bag.number} has used, or reserved, more than that", "cancel it instead")
    if bag.budget != event.budget:
        turn.emit(f.BudgetSet(turn.now, bag.number, event.budget, event.by))
    turn.done(event, bag.number)


@refusing
def set_policy(turn: Turn, event: e.SetPolicy) -> None:
    """Give a bag other expressions.

    The answer's `value` counts the hosts that serve the bag's owner now and match, its `extra` all that serve him.
    """
    bag = the_bag(turn, event.bag)
    wanted = {key: text for key, text in event.policy.items() if text}
    batch = max((target.shape.batch for target in bag.targets), default=0)
    error = wrong_policy(wanted, len(bag.targets)) or pointless(wanted, bag.external, batch, provision=bag.provision)
    if error:
        raise error
    policy = {key: text for key, text in {**bag.policy, **event.policy}.items() if text}
    if event.policy.get("replicate") == "" and bag.replicate != NONE:
        policy["replicate"] = NONE  # "" would bring back the one that the bag was submitted with
    if policy != bag.policy:
        turn.emit(f.PolicySet(turn.now, bag.number, policy, event.by))
        by_deadline.find_overdue(turn, bag.number)
    match, known, _ = prospects(turn.state, turn.now, bag)
    turn.done(event, match, known)


# --- the driver's word ----------------------------------------------------------------------------------------------


def inputs_gathered(turn: Turn, event: e.InputsGathered) -> None:
    """Let a target start whose input files are at hand, or cancel its tasks if they never will be.

    The fact does not list the files: they follow from results, which are journaled."""
    bag = turn.state.bags.get(event.bag)
    target = bag.targets[event.target] if bag is not None and 0 <= event.target < len(bag.targets) else None
    if bag is not None and target is not None and target.inputs_pending and not target.pending:
        if event.refused:
            _cancel_target(turn, bag, target.index, event.refused)
        else:
            turn.emit(f.InputsGathered(turn.now, bag.number, target.index))
    turn.done(event)


def _cancel_target(turn: Turn, bag: BagState, target: int, note: str) -> None:
    states = bag.tasks.np_state
    chosen = np.concatenate([first + np.flatnonzero(states[first:end] < FIRST_FINAL)
                             for first, place, end in spans(bag) if place == target])
    if len(chosen):
        turn.emit(f.TasksCancelled(turn.now, bag.number, runs_of(chosen), "gather", note=note))
        cancel_stranded(turn, bag)


def note_disk_low(turn: Turn, event: e.DiskLow) -> None:
    """Note that the driver's disk is low, or not any more.  No fact: the driver tells it again after a restart."""
    if turn.state.disk_low and not event.on:
        turn.state.version += 1  # waiting pilots may be granted something again
    turn.state.disk_low, turn.state.disk_problem = event.on, event.says
    turn.done(event)
