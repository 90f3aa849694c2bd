"""`per-host`: how many tasks of a bag one host may hold at once (GridBot's `Concurrency`).

Rules
  * The limit is a number, which may depend on host and task.  An undefined value, or an error, is no limit; a number
    below 1 lets no task go there.
  * All attempts of the bag that the host's pilots hold count, running or not, of whatever target.
  * The limit holds for the whole answer: tasks granted in the same answer count, and no class behind such a bag in the
    order is prefetched.
  * An answer counts what a host holds once, however many bags ask.
  * Replicas and overdue tasks count as well.  Batches and pipelines have no such limit.
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
    """Return the limit of the class's bag on the pilot's host, whose ad is given."""
    bag = state.bags[cls.bag]
    if "per-host" not in bag.policy:
        return NO_LIMIT
    found = program_of(bag, "per-host").result(tuple(_values(state, now, pilot, cls, ad).values()))
    return NO_LIMIT if isinstance(found, str) else max(min(int(found), NO_LIMIT), 0)


def _values(
    state: State, now: int, pilot: PilotState, cls: TaskClass, ad: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the attributes that the bag's `per-host` uses, in its order, with their values."""
    bag = state.bags[cls.bag]
    subject = attributes.Subject(state, now, bag, state.sites[pilot.site], cls=cls, pilot=pilot)
    return {path: attributes.value_from_ad(subject, path, ad) for path in program_of(bag, "per-host").uses}


def why_no_limit(state: State, now: int, pilot: PilotState, cls: TaskClass) -> str:
    """Say why the bag's `per-host` is no limit there; "" if it is one."""
    values = _values(state, now, pilot, cls, attributes.host_ad(state, pilot, now))
    return why_no_value(state.bags[cls.bag].policy["per-host"], values)


def why_none(state: State, now: int, pilot: PilotState, cls: TaskClass) -> str:
    """Say why none of the bag's tasks may go there; "" if some may."""
    ad = attributes.host_ad(state, pilot, now)
    if not cls.has_per_host or limit(state, now, pilot, cls, ad) > 0:
        return ""
    text = state.bags[cls.bag].policy["per-host"]
    values = _values(state, now, pilot, cls, ad)
    there = ", ".join(f"{path} is {format_value(value)}" for path, value in values.items() if value is not None)
    return f"{text} is below 1" + (f": {there}" if there else "")


def held(state: State, bag: int, row: int) -> int:
    """Count the attempts of a bag that a host's pilots hold."""
    return Held(state, row).of(bag)


class Held:
    """The attempts that a host's pilots hold, by bag, counted when the first bag asks."""

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
        holders = [number for number in state.on_host.get(self._row, ()) if state.pilots[number].attempts_held]
        if not holders:
            return {}
        pilots = attempts.np_pilot[: attempts.rows]
        rows = np.flatnonzero(pilots == holders[0] if len(holders) == 1 else np.isin(pilots, holders))
        states = attempts.np_state[rows]
        rows = rows[(states == GRANTED) | (states == STARTED) | (states == DROPPED)]
        bags, counts = np.unique(attempts.bags_of(rows), return_counts=True)
        return dict(zip(bags.tolist(), counts.tolist(), strict=True))
