"""The lifecycle tables as a promise: compare the states before and after a fact, whatever `apply` checks itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages.lifecycle import (
    ATTEMPT_MOVES,
    ATTEMPT_STATES,
    ENDED,
    INTENT_MOVES,
    INTENT_STATES,
    PILOT_MOVES,
    PILOT_STATES,
    TASK_MOVES,
    TASK_STATES,
    Moves,
    allowed,
)
from windfall.core.state.world import State


class StatesBefore:
    """The states before a fact is applied; afterwards `broken` names every move that no lifecycle table has."""

    def __init__(self, state: State) -> None:
        self.tasks = {bag.number: bag.tasks.np_state[: bag.size].copy() for bag in state.bags.values()}
        self.attempts = state.attempts.np_state[: state.attempts.rows].copy()
        self.pilots = {pilot.number: pilot.state for pilot in state.pilots.values()}
        self.intents = {intent.number: intent.state for intent in state.intents.values()}

    def broken(self, state: State) -> list[str]:
        tasks = {
            (old, new)
            for number, before in self.tasks.items() if number in state.bags
            for old, new in _changes(before, state.bags[number].tasks.np_state[: len(before)])
        }
        attempts = _changes(self.attempts, state.attempts.np_state[: len(self.attempts)])
        pilots = {(old, state.pilots[number].state) for number, old in self.pilots.items() if number in state.pilots}
        intents = {(old, state.intents[number].state if number in state.intents else ENDED)
                   for number, old in self.intents.items()}
        return [
            *_illegal("task", tasks, TASK_STATES, TASK_MOVES),
            *_illegal("attempt", attempts, ATTEMPT_STATES, ATTEMPT_MOVES),
            *_illegal("pilot", pilots, PILOT_STATES, PILOT_MOVES),
            *_illegal("intent", intents, INTENT_STATES, INTENT_MOVES),
        ]


def _changes(old: NDArray[np.uint8], new: NDArray[np.uint8]) -> set[tuple[int, int]]:
    changed = np.flatnonzero(old != new)
    return set(zip(old[changed].tolist(), new[changed].tolist(), strict=True))


def _illegal(noun: str, made: set[tuple[int, int]], names: tuple[str, ...], moves: Moves) -> list[str]:
    return [f"lifecycle: {noun} {names[old]} → {names[new]}"
            for old, new in sorted(made - allowed(moves)) if old != new]
