"""The tail of a bag: its last round, in which fewer of its tasks wait than are out (`BagState.in_tail`).  To see it
nobody need know how many hosts there are.

Rules, for bags that may have replicas
  * Grants shrink to one task an answer, unless tasks are so short that several are sent at a time anyhow: what is left
    is spread over those who ask.
  * Of those who wait, hosts that are known to be reliable come first, and of these the fast ones.
And for every bag
  * When each task that is out should have ended is estimated: from when it started, how long such tasks take, and how
    fast its host is.  It is shown, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from windfall.core.decide.replicas.candidates import first_in_order
from windfall.core.decide.replicas.caps import usual_time
from windfall.core.messages.lifecycle import GRANTED, STARTED
from windfall.core.state.estimates import bad_hosts
from windfall.core.state.world import BagState, PilotClass, State, TaskClass
from windfall.core.turn import Turn

SORTED_FIRST = 64  # of those who wait, mostly
LAST = 1e9  # later than the slowest
MOST_SHOWN = 1_000  # tasks out, up to which the end of a bag is estimated


def grant_size_in_tail(turn: Turn, cls: TaskClass, most: int) -> int:
    """How many of so many to hand out in one answer."""
    if most <= 1:
        return most
    usual = usual_time(turn.state, cls)
    short = 0 < usual < turn.config.prefetch
    return most if short or not turn.state.bags[cls.bag].in_tail else min(most, 1)


def reliable_hosts_first(state: State, waiting: list[PilotClass]) -> Iterator[int]:
    """Pilots of these classes that wait, those on reliable hosts first, of these the fast ones, and else as they stand.

    All at once: thousands may wait, and are asked whenever something is late."""
    numbers = [number for pc in waiting for number in pc.waiting]
    rows = np.array([row for pc in waiting for row in pc.waiting.values()], dtype=np.int64)
    speed = state.hosts.np_speed[rows]
    place = np.where(bad_hosts(state.hosts, rows), LAST, 0) - np.where(speed > 0, speed, 1)
    every = np.arange(len(numbers))
    for at in first_in_order(every, place, SORTED_FIRST).tolist():
        yield numbers[at]
    for at in first_in_order(every, place, len(numbers))[SORTED_FIRST:].tolist():
        yield numbers[at]


# --- what is to be expected -------------------------------------------------------------------------------------------


def expected_end(state: State, now: int, row: int) -> int:
    """When an attempt in play should have ended; 0: nobody knows."""
    attempts = state.attempts
    usual = usual_time(state, state.classes[attempts.cls[row]])
    if not usual:
        return 0
    speed = state.hosts.speed[state.pilots[attempts.pilot[row]].row] or 1.0
    return (attempts.started[row] or now) + round(usual / speed)


def expected_ends(state: State, now: int, bag: BagState) -> dict[int, int]:
    """When each of its tasks that are out should have ended, by the first of its attempts; 0: nobody knows."""
    attempts = state.attempts
    found: dict[int, int] = {}
    for row in attempts.of_bag(bag.number).tolist():
        if attempts.state[row] in (GRANTED, STARTED):
            task, at = attempts.task[row] & 0xFFFFFFFF, expected_end(state, now, row)
            found[task] = min(found.get(task, at), at)
    return found


def count_late(state: State, now: int, bag: BagState) -> int:
    """In its tail: tasks that should have ended by now."""
    if bag.ended or not bag.in_tail or bag.not_ended() > MOST_SHOWN:
        return 0
    return sum(0 < at < now for at in expected_ends(state, now, bag).values())


def expected_last_end(state: State, now: int, bag: BagState) -> int:
    """When a bag in its tail should have ended: not before now; 0 if it is not in its tail, or nobody knows."""
    if bag.ended or not bag.in_tail or bag.not_ended() > MOST_SHOWN:
        return 0
    found = expected_ends(state, now, bag)
    known = len(found) == bag.not_ended() and all(found.values())
    return max(now, *found.values()) if found and known else 0
