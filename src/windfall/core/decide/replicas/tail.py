"""The tail of a bag: its last round, in which fewer of its tasks wait than run (`BagState.in_tail`).

Rules, for bags that may have replicas
  * A grant brings one task, unless tasks are so short that several are prefetched anyhow: the last tasks are spread
    over the pilots that ask.
  * Of waiting pilots, those on reliable hosts come first, and of these the fast ones.
  * `scan.py` finds its late tasks, and `candidates.py` decides which of them get replicas.
For every bag
  * The end of each running task is estimated from its start, its class's usual time and the speed of its host.  The
    estimate is shown, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from windfall.core.decide.replicas.caps import usual_time
from windfall.core.decide.replicas.scan import first_in_order
from windfall.core.state.host_table import bad_hosts
from windfall.core.state.world import BagState, PilotClass, State, TaskClass
from windfall.core.turn import Turn

SORTED_FIRST = 64  # waiting pilots that are sorted before the others: mostly they are enough
SLOWEST = 1e9  # places a pilot behind the slowest
MOST_SHOWN = 1_000  # running tasks up to which the end of a bag is estimated


def grant_size_in_tail(turn: Turn, cls: TaskClass, most: int) -> int:
    """Return how many of so many tasks one answer brings."""
    if most <= 1:
        return most
    usual = usual_time(turn.state, cls)
    is_short = 0 < usual < turn.config.prefetch
    return most if is_short or not turn.state.bags[cls.bag].in_tail else min(most, 1)


def reliable_hosts_first(state: State, waiting: list[PilotClass]) -> Iterator[int]:
    """Yield the waiting pilots of these classes: on reliable hosts first, of these on fast ones, else as they stand.

    One sort serves thousands of waiting pilots, for each late task asks."""
    numbers = [number for pc in waiting for number in pc.waiting]
    rows = np.array([row for pc in waiting for row in pc.waiting.values()], dtype=np.int64)
    speed = state.hosts.np_speed[rows]
    place = np.where(bad_hosts(state.hosts, rows), SLOWEST, 0) - np.where(speed > 0, speed, 1)
    every = np.arange(len(numbers))
    for at in first_in_order(every, place, SORTED_FIRST).tolist():
        yield numbers[at]
    for at in first_in_order(every, place, len(numbers))[SORTED_FIRST:].tolist():
        yield numbers[at]


# --- estimates --------------------------------------------------------------------------------------------------------


def expected_end(state: State, now: int, row: int) -> int:
    """Return when an attempt in play should have ended; 0: unknown."""
    attempts = state.attempts
    usual = usual_time(state, state.classes[attempts.cls[row]])
    if not usual:
        return 0
    speed = state.hosts.speed[state.pilots[attempts.pilot[row]].row] or 1.0
    return (attempts.started[row] or now) + round(usual / speed)


def expected_ends(state: State, now: int, bag: BagState) -> dict[int, int]:
    """Return when each running task should have ended, by the first of its attempts; 0: unknown."""
    attempts = state.attempts
    found: dict[int, int] = {}
    for row in attempts.in_play(bag.number).tolist():
        task, at = attempts.task_of(row), expected_end(state, now, row)
        found[task] = min(found.get(task, at), at)
    return found


def count_late(state: State, now: int, bag: BagState) -> int:
    """Count the tasks of a bag in its tail that should have ended by now."""
    if not _is_estimated(bag):
        return 0
    return sum(0 < at < now for at in expected_ends(state, now, bag).values())


def expected_last_end(state: State, now: int, bag: BagState) -> int:
    """Return when a bag in its tail should have ended, not before now; 0: unknown, or not in its tail."""
    if not _is_estimated(bag):
        return 0
    found = expected_ends(state, now, bag)
    is_known = len(found) == bag.not_ended() and all(found.values())
    return max(now, *found.values()) if found and is_known else 0


def _is_estimated(bag: BagState) -> bool:
    return not bag.ended and bag.in_tail and bag.not_ended() <= MOST_SHOWN
