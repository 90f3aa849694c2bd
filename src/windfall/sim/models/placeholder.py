"""Placeholders (T3): a host whose local queue lets a pilot of ours run now and then.

A placeholder asks for work, runs its grant, reports and leaves.  Then other people's jobs have their turn: `after_work`
ms of them, or `after_nothing` ms if the placeholder was granted nothing.  So a host shows as a series of short-lived
pilots of one name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from windfall.core.messages import effects as x
from windfall.sim.engine import Engine
from windfall.sim.models.pilot import Pilot

Start = Callable[[str, Callable[[Pilot], None]], None]


class OthersTurns(NamedTuple):
    """The ms that other people's jobs run on a host between two placeholders."""

    after_work: int = 0
    after_nothing: int = 10_000  # the placeholder had no grant


USUAL_TURNS = OthersTurns()


class Placeholder(Pilot):
    """A pilot that takes one grant and leaves."""

    worked = False

    def _answered(self, effect: object) -> None:
        super()._answered(effect)
        if self.alive and isinstance(effect, x.ExchangeReply) and effect.grants and not self.worked:
            self.worked = True
            self.agenda.leaving = "idle"  # the agenda takes no more work, and departs once it has reported


class Turns:
    """The turns of one host: `start(name, left)` begins a placeholder there and calls `left(pilot)` when it leaves."""

    def __init__(self, name: str, start: Start, engine: Engine, others: OthersTurns) -> None:
        self.name, self.start, self.engine, self.others = name, start, engine, others
        self._begin()

    def _begin(self) -> None:
        self.start(self.name, self._left)

    def _left(self, pilot: Pilot) -> None:
        assert isinstance(pilot, Placeholder)
        self.engine.after(self.others.after_work if pilot.worked else self.others.after_nothing, self._begin)
