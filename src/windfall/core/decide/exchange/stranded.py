"""Stranded tasks: those that wait, directly or not, for a task or target that will not succeed any more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import FIRST_FINAL, SUCCEEDED
from windfall.core.messages.runs import runs_of
from windfall.core.state.classes import spans
from windfall.core.state.graph import Graph
from windfall.core.state.world import BagState
from windfall.core.turn import Turn


def cancel_if_stranded(turn: Turn, bag: BagState, target: int, failed: list[int]) -> None:
    """Cancel stranded tasks after tasks of a target have ended, `failed` without success: only if the target was the
    last of its tasks, or if tasks wait for one of `failed`."""
    ended = bag.targets[target]
    if (failed and bag.graph is not None) or (ended.dependents and ended.not_succeeded and not ended.not_ended):
        cancel_stranded(turn, bag, failed)


def cancel_stranded(turn: Turn, bag: BagState, failed: list[int] | None = None) -> None:
    """Cancel the bag's stranded tasks, so that none of them waits for ever (P4).

    `failed` names the tasks that have newly ended without success; None stands for all that have.
    """
    while len(stranded := _stranded(bag, failed)):
        turn.emit(f.TasksCancelled(turn.now, bag.number, runs_of(stranded), "upstream"))
        failed = stranded.tolist() if len(bag.targets) > 1 else []


def _stranded(bag: BagState, failed: list[int] | None) -> NDArray[np.int64]:
    states = bag.tasks.np_state[: bag.size]
    parts = [np.zeros(0, dtype=np.int64)]
    targets = _stranded_targets(bag) if len(bag.targets) > 1 and not bag.open else {}
    if targets:
        parts += [np.arange(first, stop) for first, target, stop in spans(bag) if target in targets]
    if bag.graph is not None:
        front = np.flatnonzero(states > SUCCEEDED).tolist() if failed is None else list(failed)
        parts.append(stranded_tasks(bag.graph, bag.tasks.state, front))
    tasks: NDArray[np.int64] = np.unique(np.concatenate(parts))
    return tasks[states[tasks] < FIRST_FINAL]


def _stranded_targets(bag: BagState) -> dict[int, None]:
    """Return the targets that wait, at any distance, for one that has ended without all its successes."""
    stranded: dict[int, None] = {}
    front = [target for target in bag.targets if target.not_succeeded and not target.not_ended]
    while front:
        for index in front.pop().dependents:
            if index not in stranded:
                stranded[index] = None
                front.append(bag.targets[index])
    return stranded


def stranded_tasks(graph: Graph, states: memoryview, front: list[int]) -> NDArray[np.int64]:
    """Return the unended tasks that wait, at any distance, for one of `front`.

    The walk stops at ended tasks: when they ended, it went on from there.
    """
    stranded: dict[int, None] = {}
    while front:
        for after in graph.after(front.pop()):
            if after not in stranded and states[after] < FIRST_FINAL:
                stranded[after] = None
                front.append(after)
    return np.array(sorted(stranded), dtype=np.int64)
