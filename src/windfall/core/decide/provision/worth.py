"""Worth: how many slots the unstarted tasks of a class are worth (P7).

A pilot takes seconds to start and to leave, so a slot is worth `Config.worth` of work.  Tasks of unknown duration are
worth a slot each, and so are long ones.  Short ones share the slots that work on their class already with new ones, if
each slot then has enough to do.  Slots of silent pilots, and slots that are stuck in one task, do not work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from windfall.core.messages.lifecycle import GRANTED, STARTED
from windfall.core.state.world import State, TaskClass


def unstarted(cls: TaskClass) -> int:
    """Return the slots that the ready and overdue tasks of a class could fill; those of a batch share one."""
    return -(-(cls.ready + len(cls.overdue)) // max(cls.batch, 1))


def worthwhile(state: State, cls: TaskClass, worth: int, in_play: Callable[[], dict[int, int]]) -> int:
    """Return the new slots that the unstarted tasks of a class are worth; `in_play` counts its attempts in play."""
    units = unstarted(cls)
    unit_ms = (cls.mean or state.bags[cls.bag].targets[cls.target].shape.expect) * max(cls.batch, 1)
    if not unit_ms or unit_ms >= worth or not units:
        return units
    slots = -int(-units * unit_ms // worth)
    return max(min(units, slots - in_play().get(cls.number, 0) // max(cls.batch, 1)), 0)


class AttemptsInPlay(NamedTuple):
    """The attempts whose slots will soon take other tasks."""

    by_class: dict[int, int]
    until: int  # when the first of them has been in play for too long; 0: there is none


def attempts_in_play(state: State, now: int, worth: int) -> AttemptsInPlay:
    """Count the attempts in play of each class, in one pass: those of pilots that are heard, and in play for less than
    `worth`, since a slot that is stuck takes no other task."""
    attempts = state.attempts
    states = attempts.np_state[: attempts.rows]
    recent = attempts.np_granted[: attempts.rows] > now - worth
    rows = np.flatnonzero(recent & ((states == STARTED) | (states == GRANTED)))
    pilots = attempts.np_pilot[rows]
    heard = [number for number in np.unique(pilots).tolist() if not state.pilots[number].lease_expired]
    rows = rows[np.isin(pilots, heard)]
    classes, counts = np.unique(attempts.np_cls[rows], return_counts=True)
    until = int(attempts.np_granted[rows].min()) + worth if len(rows) else 0
    return AttemptsInPlay(dict(zip(classes.tolist(), counts.tolist(), strict=True)), until)
