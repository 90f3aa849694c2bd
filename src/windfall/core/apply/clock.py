"""Fold into the state what a person says of a damaged journal: numbers to skip, and the right time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windfall.core.messages import facts as f
from windfall.core.state.world import State


def numbers_skipped(state: State, fact: f.NumbersSkipped) -> None:
    state.next_bag = max(state.next_bag, fact.next_bag)
    state.next_pilot = max(state.next_pilot, fact.next_pilot)
    state.next_intent = max(state.next_intent, fact.next_intent)
    state.attempts.base = state.attempt_base = max(state.attempt_base, fact.attempt_base)


def clock_set(state: State, fact: f.ClockSet) -> None:
    """Set the time.  If the clock was ahead, move what it dated, so that durations stay and nothing has expired."""
    state.now = fact.at
    if fact.before > fact.at:
        _Shift(fact.at, fact.before - fact.at).apply(state)


class _Shift:
    """Moves the times after `since` back by `by` ms.  What expires moves with what it began with."""

    def __init__(self, since: int, by: int) -> None:
        self._since, self._by = since, by

    def _time(self, at: int) -> int:
        return at - self._by if at > self._since else at

    def _times(self, records: Iterable[Any], names: tuple[str, ...]) -> None:
        for record in records:
            for name in names:
                setattr(record, name, self._time(getattr(record, name)))

    def apply(self, state: State) -> None:
        bags = state.bags.values()
        self._times(bags, ("submitted", "ended", "changed", "busy_since", "last_granted", "aged_since", "revised"))
        self._times((target for bag in bags for target in bag.targets), ("filling_since",))
        for pilot in state.pilots.values():
            if pilot.enrolled > self._since:
                pilot.ends -= self._by if pilot.ends else 0
        self._times(state.pilots.values(), ("enrolled", "ended"))
        for token in state.tokens.values():
            if token.issued > self._since:
                token.expires -= self._by if token.expires else 0
        self._times(state.tokens.values(), ("issued",))
        self._times(state.intents.values(), ("made", "changed", "running_since"))
        self._times(state.sites.values(), ("added", "suspect_since"))
        for site in state.sites.values():
            site.history = [(self._time(at), kind, says) for at, kind, says in site.history]
        state.limits_changed = self._time(state.limits_changed)
        self._columns(state)

    def _columns(self, state: State) -> None:
        for table, names in ((state.attempts, ("granted", "started")), (state.hosts, ("success", "seen", "until"))):
            for name in names:
                column = getattr(table, "np_" + name)[: table.rows]
                column[column > self._since] -= self._by
            if table.rows:
                table.mark(0, table.rows - 1)
