"""Refuse a change of state that the tables of `messages/lifecycle.py` lack.

The functions that apply facts ask here before they write a state, in production, too: a wrong move ends the process
before its fact is journaled, so the journal stays right.  Writing the present state again is refused, too, unless the
table of repeats names it: a row of attempts that is granted or freed twice would have two owners.
"""

from __future__ import annotations

from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages.lifecycle import (
    ACTIVE,
    ATTEMPT_MOVES,
    ATTEMPT_STATES,
    INTENT_MOVES,
    INTENT_STATES,
    LOST,
    PILOT_MOVES,
    PILOT_STATES,
    TASK_MOVES,
    TASK_STATES,
    Moves,
    allowed,
)


class IllegalMove(Exception):
    """A fact asked for a move that its lifecycle table lacks: the decider that emitted it is wrong."""


class MoveTable:
    """The states of one kind of thing, and which may follow which."""

    def __init__(self, noun: str, names: tuple[str, ...], moves: Moves, repeats: tuple[int, ...] = ()) -> None:
        self.noun, self.names = noun, names
        pairs = allowed(moves) | {(state, state) for state in repeats}
        # for each new state: a byte for each old one, 1 where the move is allowed; hot loops index these themselves
        self.into = tuple(bytes((old, new) in pairs for old in range(len(names))) for new in range(len(names)))
        self._into = tuple(np.frombuffer(row, dtype=np.bool_) for row in self.into)

    def check(self, old: int, new: int, number: int) -> None:
        """Refuse to move the thing of that number from one state to another, unless the table has the move."""
        if not self.into[new][old]:
            self.refuse(old, new, number)

    def check_many(self, old: NDArray[np.uint8], new: int, numbers: NDArray[np.int64]) -> None:
        """Refuse to move things to a state, unless the table has the move for each of their old states."""
        fine = self._into[new][old]
        if not fine.all():
            first = int(np.argmin(fine))
            self.refuse(int(old[first]), new, int(numbers[first]))

    def check_tally(self, tally: list[int], new: int, first: int) -> None:
        """Refuse to move a run of things to a state; `tally` counts them by their old states."""
        for old, count in enumerate(tally):
            if count and not self.into[new][old]:
                self.refuse(old, new, first)

    def refuse(self, old: int, new: int, number: int) -> NoReturn:
        raise IllegalMove(f"{self.noun} {number}: no move from {self.names[old]} to {self.names[new]} is in the table")


TASKS: Final = MoveTable("task", TASK_STATES, TASK_MOVES, repeats=(ACTIVE,))  # a replica is granted
ATTEMPTS: Final = MoveTable("attempt", ATTEMPT_STATES, ATTEMPT_MOVES, repeats=(LOST,))  # its pilot is gone, too
PILOTS: Final = MoveTable("pilot", PILOT_STATES, PILOT_MOVES)
INTENTS: Final = MoveTable("intent", INTENT_STATES, INTENT_MOVES)
