"""Batching: which tasks go together, to run one after the other in one slot of one pilot (T7), and which follow them
there (T8).

Rules
  * A target may ask for batches of k: tasks i·k … i·k+k−1, counted within the target, are one batch.
  * A grant takes whole batches: all of a batch that is ready and of one class.  What came back singly (a failure, a
    lost pilot) goes again with whatever else of its batch is ready then, be it alone.
  * The last batch of an open bag may be incomplete.  It waits for more tasks for `patience` ms since the first of them
    came, then goes as it is.  Of a closed bag it goes at once.
  * What a pilot holds of one batch is a *chain*: it takes one slot, however many tasks it has.
  * A target may stand *behind* another of the same size: task i is granted together with task i of that one, to the
    same pilot, which starts it only after the other has succeeded there.  All stages of a pipeline are one chain; with
    batches of k, the first stage of k pipelines, then the second.  A stage that the pilot cannot run, or that waits for
    something else too, is not taken along, nor what follows it: it goes by itself when its prerequisites are done.
  * A batch that is too long for a message goes in pieces.
  * A task that was present at the death of a pilot goes alone: the next death will tell who is to blame.
"""

from __future__ import annotations

import numpy as np

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import GRANTED, STARTED
from windfall.core.state.columns import ref_of
from windfall.core.state.world import NO_CHAIN, BagState, PilotState, State, TargetState, TaskClass

_INDEX_BITS = 32  # of a chain's number; above them stands its target


def chain_of(bag: BagState, task: int) -> int:
    """The number, within the bag, of the chain that a task is part of."""
    place, index = bag.locate(task)
    target = bag.targets[place]
    if not is_chained(target):
        return NO_CHAIN
    while target.shape.previous_stage >= 0:
        target = bag.targets[target.shape.previous_stage]
    return target.index << _INDEX_BITS | index // max(target.shape.batch, 1)


def is_chained(target: TargetState) -> bool:
    return target.shape.batch > 1 or target.shape.previous_stage >= 0 or target.next_stage >= 0


def row_chain(state: State, row: int) -> int:
    """The chain of an attempt in play."""
    chained = state.classes[state.attempts.cls[row]].in_chain
    return chain_of(state.bag_of(row), state.attempts.task_of(row)) if chained else NO_CHAIN


def chain_key(state: State, row: int) -> tuple[int, int]:
    """Equal for attempts of one chain, and for no others that one pilot holds."""
    chain = row_chain(state, row)
    return (state.bag_of(row).number, chain) if chain >= 0 else (0, row)


# --- the last batch of an open bag ----------------------------------------------------------------------------------


def tasks_filling(bag: BagState) -> dict[int, None]:
    """Tasks that wait for their batch to fill."""
    return {bag.classes[target.index, 0].backlog.task_at(place): None
            for target in bag.targets for place in bag.filling(target)}


# --- taking whole batches -------------------------------------------------------------------------------------------


def batch_mates(bag: BagState, cls: TaskClass, head: int, taken: dict[int, None]) -> list[int]:
    """Return the ready tasks of a task's batch, in order, with the task; none while the batch waits to fill."""
    target, backlog = bag.targets[cls.target], cls.backlog
    place = backlog.position(head)
    stop = bag.filling(target).start if bag.filling(target) else target.count
    if place >= stop:
        return []
    size = max(cls.batch, 1)
    first = place - place % size
    if bag.tasks.deaths[head]:
        return [head]
    tasks = [backlog.task_at(each) for each in range(first, min(first + size, stop))]
    return [task for task in tasks if backlog.is_ready(task) and task not in taken and not bag.tasks.deaths[task]]


# --- pipelines ------------------------------------------------------------------------------------------------------


def link_stages(bag: BagState) -> None:
    """Tell every target which one stands behind it."""
    for target in bag.targets:
        if target.shape.previous_stage >= 0:
            bag.targets[target.shape.previous_stage].next_stage = target.index


def stage_edges(shapes: list[f.TargetShape]) -> bytes:
    """Prerequisites between tasks that pipelines mean: task i before task i of the target behind."""
    firsts = np.cumsum([0, *(shape.count for shape in shapes)])
    pairs = [
        np.stack(
            [np.arange(shape.count) + firsts[shape.previous_stage], np.arange(shape.count) + firsts[index]], axis=1
        )
        for index, shape in enumerate(shapes)
        if shape.previous_stage >= 0
    ]
    return np.concatenate(pairs).astype("<i4").tobytes() if pairs else b""


def pipeline_problem(shapes: list[f.TargetShape], open_: bool) -> str:
    """Say what is wrong with the pipelines that the targets describe; "": nothing."""
    taken: dict[int, None] = {}
    for index, shape in enumerate(shapes):
        if shape.previous_stage < 0:
            continue
        if shape.previous_stage >= index or shape.previous_stage in taken:
            return f"target {shape.name!r} must stand behind an earlier one that no other stands behind"
        taken[shape.previous_stage] = None
        first = shapes[shape.previous_stage]
        if open_ or (shape.count, shape.batch) != (first.count, first.batch):
            return f"targets {first.name!r} and {shape.name!r} must have equally many tasks, now and later"
    return ""


def is_blocked(state: State, row: int) -> bool:
    """Is this an attempt behind another that has not succeeded?"""
    graph = state.bag_of(row).graph
    return graph is not None and graph.waits(state.attempts.task_of(row))


def previous_attempt_on(state: State, pilot: PilotState, number: int, task: int) -> int:
    """The attempt that a task is behind on this pilot; 0 if it is behind none, -1 if that is there no more."""
    bag = state.bags[number]
    place, index = bag.locate(task)
    stage = bag.targets[place].shape.previous_stage
    if stage < 0 or bag.graph is None or not bag.graph.waits(task):
        return 0
    attempts = state.attempts
    rows = [row for row in attempts.of_task(ref_of(number, bag.runs[stage][0] + index))
            if attempts.pilot[row] == pilot.number and attempts.state[row] in (GRANTED, STARTED)]
    return int(attempts.number[rows[0]]) if rows else -1


# --- what a chain weighs --------------------------------------------------------------------------------------------


def shift_load(pilot: PilotState, key: tuple[int, int], cls: int, costs: dict[int, int], sign: int) -> int:
    """Add an attempt to a chain that a pilot holds, or take one away; return the change of its load."""
    held = pilot.chains.setdefault(key, {})
    before = max((costs[number] for number in held), default=0)
    held[cls] = held.get(cls, 0) + sign
    if not held[cls]:
        del held[cls]
    if not held:
        del pilot.chains[key]
    return max((costs[number] for number in held), default=0) - before
