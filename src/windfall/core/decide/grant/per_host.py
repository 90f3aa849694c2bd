"""`per-host`: how many tasks of a bag one host may hold at once (GridBot's `Concurrency`).

Rules
  * A number, which may depend on host and task; undefined, or an error, is no limit, what is below 1 lets no task go
    there.
  * Counted are the bag's attempts that the host's pilots hold, running or not, of whatever target.
  * It holds for the whole answer: what is granted with it counts, and what comes behind such a bag in the order is not
    sent ahead of its time to a host that the bag wants to have few on.
  * What a host holds is counted once for an answer, however many bags ask.
  * It holds for replicas and for what is overdue as well.  Batches and pipelines have none: what goes together is one
    matter, however many tasks it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windfall.core.expressions import attributes
from windfall.core.expressions.classads import Value, format_value, program_of, why_no_value
from windfall.core.messages.lifecycle import DROPPED, GRANTED, STARTED
from windfall.core.state.world import PilotState, State, TaskClass

NO_LIMIT = 1 << 40


def limit(state: State, now: int, pilot: PilotState, cls: TaskClass, ad: Mapping[str, Value]) -> int:
    """Of its bag, on that pilot's host, whose ad it is."""
    bag = state.bags[cls.bag]
    if "per-host" not in bag.policy:
        return NO_LIMIT
    found = program_of(bag, "per-host").result(tuple(_values(state, now, pilot, cls, ad).values()))
    return NO_LIMIT if isinstance(found, str) else max(min(int(found), NO_LIMIT), 0)


def _values(
    state: State, now: int, pilot: PilotState, cls: TaskClass, ad: Mapping[str, Value]
) -> dict[str, Value]:
    """Of what its bag's `per-host` speaks of, in the order in which it does."""
    bag = state.bags[cls.bag]
    subject = attributes.Subject(state, now, bag, state.sites[pilot.site], cls, pilot)
    return {path: attributes.value_from_ad(subject, path, ad) for path in program_of(bag, "per-host").uses}


def why_no_limit(state: State, now: int, pilot: PilotState, cls: TaskClass) -> str:
    """Why its bag's `per-host` is no limit there; "" if it is one."""
    values = _values(state, now, pilot, cls, attributes.host_ad(state, pilot, now))
    return why_no_value(state.bags[cls.bag].policy["per-host"], values)


def why_none(state: State, now: int, pilot: PilotState, cls: TaskClass) -> str:
    """Why none of the bag's tasks may go there; "" if some may."""
    ad = attributes.host_ad(state, pilot, now)
    if not cls.has_per_host or limit(state, now, pilot, cls, ad) > 0:
        return ""
    text = state.bags[cls.bag].policy["per-host"]
    values = _values(state, now, pilot, cls, ad)
    there = ", ".join(f"{path} is {format_value(value)}" for path, value in values.items() if value is not None)
    return f"{text} is below 1" + (f": {there}" if there else "")


def held(state: State, bag: int, row: int) -> int:
    """Attempts of a bag that a host's pilots hold."""
    return Held(state, row).of(bag)


class Held:
    """Attempts that a host's pilots hold, by bag; counted when the first bag asks, for there may be many that do."""

    __slots__ = ("_found", "_row", "_state")

    def __init__(self, state: State, row: int) -> None:
        self._state, self._row = state, row
        self._found: dict[int, int] | None = None

    def of(self, bag: int) -> int:
        if self._found is None:
            self._found = self._count()
        return self._found.get(bag, 0)

    def _count(self) -> dict[int, int]:
        state, attempts = self._state, self._state.attempts
        there = [number for number in state.on_host.get(self._row, ()) if state.pilots[number].attempts_held]
        if not there:
            return {}
        pilots = attempts.np_pilot[: attempts.rows]
        rows = np.flatnonzero(pilots == there[0] if len(there) == 1 else np.isin(pilots, there))
        states = attempts.np_state[rows]
        rows = rows[(states == GRANTED) | (states == STARTED) | (states == DROPPED)]
        bags, counts = np.unique(attempts.np_task[rows] >> 32, return_counts=True)
        return dict(zip(bags.tolist(), counts.tolist(), strict=True))
