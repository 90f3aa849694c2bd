"""`per-host`: how many tasks of a bag one host may hold at once (GridBot's `Concurrency`).

Rules
  * A number, which may depend on host and task; undefined, or an error, is no limit, what is below 1 lets no task go
    there.
  * Counted are the bag's attempts that the host's pilots hold, running or not, of whatever target.
  * It holds for the whole answer: what is granted with it counts, and what comes behind such a bag in the order is not
    sent ahead of its time to a host that the bag wants to have few on.
  * It holds for replicas and for what is overdue as well.  Batches and pipelines have none: what goes together is one
    matter, however many tasks it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from windfall.core import ads, facts as f
from windfall.core.classads import Value, program
from windfall.core.lifecycle import DROPPED, GRANTED, STARTED
from windfall.core.state import PilotState, State, TaskClass

if TYPE_CHECKING:
    from windfall.core.engine import Core

NO_LIMIT = 1 << 40


def limit(state: State, now: int, pilot: PilotState, cls: TaskClass, ad: Mapping[str, Value]) -> int:
    """Of its bag, on that pilot's host, whose ad it is."""
    bag = state.bags[cls.bag]
    text = bag.policy.get("per-host")
    if text is None:
        return NO_LIMIT
    known = program(text)
    subject = ads.Subject(state, now, bag, state.sites[pilot.site], cls, pilot)
    found = known.result(tuple(ads.known(subject, path, ad) for path in known.uses))
    return NO_LIMIT if isinstance(found, str) else max(min(int(found), NO_LIMIT), 0)


def held(state: State, bag: int, row: int) -> int:
    """Attempts of a bag that a host's pilots hold."""
    pilots = [number for number in state.on_host.get(row, ()) if state.pilots[number].held]
    if not pilots:
        return 0
    attempts, used = state.attempts, state.attempts.rows
    rows = np.flatnonzero(np.isin(attempts.np_pilot[:used], pilots) & (attempts.np_task[:used] >> 32 == bag))
    return int(np.isin(attempts.np_state[rows], (GRANTED, STARTED, DROPPED)).sum())


def left(core: Core, pilot: PilotState, cls: TaskClass, groups: list[f.Group]) -> int:
    """How many more of the class its host may be given, beside these groups."""
    most = limit(core.state, core.now, pilot, cls, core.match.published(core, pilot))
    if most >= NO_LIMIT:
        return NO_LIMIT
    given = sum(len(group.tasks) for group in groups if group.bag == cls.bag)
    return most - given - held(core.state, cls.bag, pilot.row)
