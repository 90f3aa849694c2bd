"""Timers of the core: what falls due, and when."""

from __future__ import annotations

from heapq import heappop, heappush


class Timers:
    """Timers fire in the order of their times; those of one time in the order in which they were added.

    Leases and parked polls fall due by the dozen, so one heap entry serves all timers of a time."""

    __slots__ = ("_due", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []
        self._due: dict[int, list[tuple[str, int | str]]] = {}

    @property
    def next(self) -> int | None:
        """Return when the next timer fires; None: there is none."""
        return self._times[0] if self._times else None

    def add(self, at: int, kind: str, key: int | str) -> None:
        if (due := self._due.get(at)) is None:
            self._due[at] = due = []
            heappush(self._times, at)
        due.append((kind, key))

    def pop(self, now: int) -> list[tuple[str, int | str]]:
        """Remove and return the timers of the earliest time that has come; none where none has."""
        if not self._times or self._times[0] > now:
            return []
        return self._due.pop(heappop(self._times))
