"""Worth: how many slots the unstarted tasks of a class are worth (P7).

A pilot takes seconds to start and to leave, so a slot is worth `Config.worth` of work.  Tasks of unknown duration are
worth a slot each, and so are long ones.  Short ones share the slots that work on their class already with new ones, if
each slot then has enough to do.
"""

from __future__ import annotations

import numpy as np

from windfall.core.messages.lifecycle import GRANTED, STARTED
from windfall.core.state.world import State, TaskClass


def unstarted(cls: TaskClass) -> int:
    """Return the slots that the ready and overdue tasks of a class could fill; those of a batch share one."""
    return -(-(cls.ready + len(cls.overdue)) // max(cls.batch, 1))


def worthwhile(state: State, cls: TaskClass, worth: int) -> int:
    """Return the new slots that the unstarted tasks of a class are worth."""
    units = unstarted(cls)
    unit_ms = (cls.mean or state.bags[cls.bag].targets[cls.target].shape.expect) * max(cls.batch, 1)
    if not unit_ms or unit_ms >= worth or not units:
        return units
    slots = -int(-units * unit_ms // worth)
    return max(min(units, slots - _in_play(state, cls) // max(cls.batch, 1)), 0)


def _in_play(state: State, cls: TaskClass) -> int:
    attempts = state.attempts
    states = attempts.np_state[: attempts.rows]
    mine = attempts.np_cls[: attempts.rows] == cls.number
    return int(np.count_nonzero(mine & ((states == STARTED) | (states == GRANTED))))
