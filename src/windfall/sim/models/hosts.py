"""Hosts: their speed, their load, their availability, and their faults.

    speed          work that a core does in a second
    load           share of the speed that other people's programs take
    availability   the host comes and goes; running tasks are lost with it, or (`suspends`) wait for it
    hole           the host is a black hole: every task fails at once
    turnaround     from the end of a task until its result is sent: volunteers call rarely
    loses          share of the attempts that kill their pilot
    network        the host is cut off now and then: messages are lost

Callers pass the random generators.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import NamedTuple

from windfall.sim.models.laws import Law

MOST_TURNS = 10_000  # stretches of presence drawn within one task; the rest of the task is computed from the means
FULL = 0.99  # greatest load: a host that others take altogether would never finish a task
ONE = Law("1", "", (1.0,))
HOLE = 1_000  # ms after which a black hole has failed a task


class Availability(NamedTuple):
    """How long a host is present and how long it is away, in turns; ms."""

    up: Law
    down: Law

    @property
    def share(self) -> float:
        return self.up.mean / (self.up.mean + self.down.mean)


class Cuts(NamedTuple):
    """How long the network of a host works, and how long it is cut, in turns; ms."""

    every: Law
    lasting: Law


Spans = tuple[tuple[int, int], ...]  # ms: begin and end of each


class HostNetwork:
    """The network of one host, which is cut at random (`cuts`) and in planned outages (`dark`).

    Callers ask with times that never decrease.
    """

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
    network: HostNetwork | None = None

    def takes(self, work: float, draw: random.Random, limit: float = math.inf) -> tuple[int, bool]:
        """Return the ms from the start of a task until its result is sent, and whether it exceeded its time limit.

        `work`: the ms that the task takes alone at speed 1; `limit`: the ms after which the task is killed.
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
    """Return how long `work` takes if it starts while the host is present, and pauses while the host is away.

    A task is more likely to start in a long stretch of presence than in a short one, and starts anywhere within it.
    Here it starts at the beginning of a stretch drawn anew for each task, which flatters the host a little.
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
    """A group of like hosts.  Each host draws its `speed` once, and its `load` and `turnaround` for each task."""

    count: int
    cores: int = 1
    memory: int = 1 << 50
    latency: int = 0
    speed: Law = ONE
    load: Law | None = None
    holes: float = 0.0  # share of the hosts that are black holes
    loses: float = 0.0
    availability: Availability | None = None
    suspends: bool = False
    turnaround: Law | None = None
    cuts: Cuts | None = None
    dark: Spans = ()  # when none of the hosts can be reached

    def hosts(self, draw: random.Random) -> list[Host]:
        """Draw the hosts of the group; the black holes stand at random places among them."""
        black = set(draw.sample(range(self.count), round(self.holes * self.count)))
        return [
            Host(speed=max(1e-6, self.speed.draw(draw)), loses=self.loses, load=self.load, hole=number in black,
                 availability=self.availability, suspends=self.suspends, turnaround=self.turnaround,
                 network=self._network(draw))
            for number in range(self.count)
        ]

    def _network(self, draw: random.Random) -> HostNetwork | None:
        if not self.cuts and not self.dark:
            return None
        return HostNetwork(self.cuts, self.dark, random.Random(draw.getrandbits(64)))
