"""Hosts: how fast they are, what else they do, when they are there.

    speed          work that a core does in a second
    load           share of it that others take
    availability   they come and go; what runs is lost with them, or (`suspends`) waits for them
    hole           a black hole: every task fails at once
    turnaround     from the end of a task until its result is sent: volunteers call rarely
    loses          share of the attempts that take the pilot with them
    network        cut off now and then: messages are lost

Everything is drawn from generators that are handed in.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import NamedTuple

from windfall.sim.models.laws import Law

MOST_TURNS = 10_000  # of presence and absence within one task; beyond them the means will do
FULL = 0.99  # load: a host that others take altogether would never finish anything
ONE = Law("1", "", (1.0,))
HOLE = 1_000  # ms after which a black hole has failed a task


class Availability(NamedTuple):
    """How long it is there, how long it is away; both in milliseconds, in turns."""

    up: Law
    down: Law

    @property
    def share(self) -> float:
        return self.up.mean / (self.up.mean + self.down.mean)


class Cuts(NamedTuple):
    """How long its network works, how long it does not; in milliseconds, in turns."""

    every: Law
    lasting: Law


Spans = tuple[tuple[int, int], ...]  # from when to when


class Network:
    """Of one host: is it cut off, at random or because all is dark?  Asked with times that only grow."""

    def __init__(self, cuts: Cuts | None, dark: Spans, draw: random.Random) -> None:
        self._cuts, self._dark, self._draw = cuts, dark, draw
        self._cut = False
        self._until = cuts.every.draw(draw) if cuts else 0.0

    def cut(self, now: int) -> bool:
        return any(begin <= now < end for begin, end in self._dark) or (self._cuts is not None and self._in_cut(now))

    def _in_cut(self, now: int) -> bool:
        assert self._cuts is not None
        while self._until <= now:
            self._cut = not self._cut
            law = self._cuts.lasting if self._cut else self._cuts.every
            self._until += max(1.0, law.draw(self._draw))
        return self._cut


@dataclass(slots=True)
class Host:
    speed: float = 1.0
    loses: float = 0.0
    load: Law | None = None
    hole: bool = False
    availability: Availability | None = None
    suspends: bool = False
    turnaround: Law | None = None
    network: Network | None = None

    def takes(self, work: float, draw: random.Random, limit: float = math.inf) -> tuple[int, bool]:
        """Milliseconds from the start of a task until its result is sent, and whether it ran out of its time.

        `work`: at speed 1, with nobody else; `limit`: what it is given, after which it is ended.
        """
        if self.hole:
            return HOLE, False
        wall = work / self.speed
        if self.load is not None:
            wall /= 1 - min(FULL, self.load.draw(draw))
        if self.suspends and self.availability is not None:
            wall = stretched(wall, self.availability, draw)
        over = wall > limit
        wall = min(wall, limit)
        if self.turnaround is not None:
            wall += self.turnaround.draw(draw)
        return max(1, round(wall)), over


def stretched(work: float, availability: Availability, draw: random.Random) -> float:
    """How long `work` takes when it waits while the host is away; it begins while the host is there.

    The stretch of presence in which a task begins is met the more likely the longer it is, and begun anywhere within
    it: we take a whole one, drawn anew for each task, and so flatter the host a little.
    """
    total, left = 0.0, work
    for _ in range(MOST_TURNS):
        here = availability.up.draw(draw)
        if here >= left:
            return total + left
        total += here + availability.down.draw(draw)
        left -= here
    return total + left / availability.share


@dataclass(frozen=True, slots=True)
class Machines:
    """Like hosts.  `speed`, `load` and so on are drawn once for each."""

    count: int
    cores: int = 1
    memory: int = 1 << 50
    latency: int = 0
    speed: Law = ONE
    load: Law | None = None
    holes: float = 0.0  # share of them
    loses: float = 0.0
    availability: Availability | None = None
    suspends: bool = False
    turnaround: Law | None = None
    cuts: Cuts | None = None
    dark: Spans = ()  # when none of them can be reached

    def hosts(self, draw: random.Random) -> list[Host]:
        """As many holes as the share says, at random places."""
        black = set(draw.sample(range(self.count), round(self.holes * self.count)))
        return [
            Host(max(1e-6, self.speed.draw(draw)), self.loses, self.load, number in black, self.availability,
                 self.suspends, self.turnaround,
                 Network(self.cuts, self.dark, random.Random(draw.getrandbits(64))) if self.cuts or self.dark else None)
            for number in range(self.count)
        ]
