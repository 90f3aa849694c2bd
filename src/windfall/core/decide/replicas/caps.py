"""Caps of replicas, as the bag's user has set them (`model/policies/replica_caps.py`), and the cost of replicas.

What they cost is what was used, until a task ended, by those of its attempts that did not end it: the original's time,
where a replica was faster.  Of several that are in play all but the oldest are expected to be in vain; each is taken to
need as long as such tasks do, or as long as it has had.
"""

from __future__ import annotations

import numpy as np

from windfall.core.messages.lifecycle import STARTED
from windfall.core.state.accounts import UNLIMITED, charge, cores_used
from windfall.core.state.world import BagState, PilotState, State, TaskClass
from windfall.core.turn import Turn
from windfall.model.policies import replica_caps


def cap(bag: BagState, key: str, usual: int) -> int:
    """As its user has said, or else as usual."""
    text = bag.policy.get(key)
    return usual if text is None else replica_caps.read(text, key)


def usual_time(state: State, cls: TaskClass) -> float:
    """Ms that such a task takes; 0: nobody knows."""
    return cls.mean or float(state.bags[cls.bag].targets[cls.target].shape.expect)


def core_ms_left(turn: Turn, bag: BagState) -> int:
    """Ms of cores that more replicas may take."""
    if replica_caps.COST not in bag.policy:
        return UNLIMITED
    return cap(bag, replica_caps.COST, 0) - bag.replica_waste - expected_waste(turn, bag)


def expected_cost(state: State, cls: TaskClass, pilot: PilotState) -> int:
    """Ms of cores that one more attempt should take; where nobody knows, more than may be left under a cap."""
    usual = usual_time(state, cls) or cls.worst_case
    return cores_used(cls, pilot) * round(usual) if usual else UNLIMITED - 1


def expected_waste(turn: Turn, bag: BagState) -> int:
    """Ms of cores of what is in play and should turn out to be in vain."""
    state, attempts = turn.state, turn.state.attempts
    rows = attempts.in_play(bag.number)
    rows = rows[bag.tasks.np_live[attempts.tasks_of(rows)] > 1]
    oldest: dict[int, int] = {}
    total = 0
    for row in rows[np.lexsort((attempts.np_number[rows], attempts.np_granted[rows]))].tolist():
        if oldest.setdefault(attempts.task[row], row) != row:
            cls, pilot = state.classes[attempts.cls[row]], state.pilots[attempts.pilot[row]]
            had = turn.now - attempts.granted[row]
            total += cores_used(cls, pilot) * round(max(had, usual_time(state, cls) or cls.worst_case))
    return total


def note_waste(state: State, bag: BagState, row: int, at: int) -> None:
    """Another attempt has just ended its task."""
    attempts = state.attempts
    generation = bag.tasks.generation[attempts.task[row] & 0xFFFFFFFF]
    if attempts.state[row] == STARTED and attempts.generation[row] == generation:
        bag.replica_waste += charge(state, row, max(at - attempts.started[row], 0))
