"""Placeholders (T3): a host whose local queue lets a pilot of ours run now and then.

A placeholder asks, runs what it is granted, reports and leaves.  Then others have their turn: `after_work` ms of them,
or, where there was nothing for it, `after_nothing`.  So a host is here a row of short-lived pilots of one name.
"""

from __future__ import annotations

from collections.abc import Callable

from windfall.core.messages import effects as x
from windfall.sim.models.pilot import Pilot

Start = Callable[[str, Callable[[Pilot], None]], "Placeholder"]


class Placeholder(Pilot):
    """A pilot that takes one grant and leaves."""

    worked = False

    def _answered(self, effect: object) -> None:
        super()._answered(effect)
        if self.alive and isinstance(effect, x.ExchangeReply) and effect.grants and not self.worked:
            self.worked = True
            self.agenda.leaving = "idle"  # it takes nothing more, and goes when it has reported


class Turns:
    """One host: `start` begins a placeholder there and is told whom to call when it has left."""

    def __init__(self, name: str, start: Start, after: Callable[..., None], *, after_work: int, after_nothing: int,
                 over: Callable[[], bool]) -> None:
        self.name, self.start, self.after, self.over = name, start, after, over
        self.waits = {True: after_work, False: after_nothing}
        self._begin()

    def _begin(self) -> None:
        if not self.over():
            self.start(self.name, self._left)

    def _left(self, pilot: Pilot) -> None:
        assert isinstance(pilot, Placeholder)
        self.after(self.waits[pilot.worked], self._begin)
