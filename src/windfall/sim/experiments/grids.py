"""GridBot's platform (Silberstein et al. 2009): collaborative grids, a cluster, volunteers, as its studies share them.

A host is preempted, or forgets a task, and nobody says so: BOINC's server learns of it when the deadline has passed.
How much a host loses was known before a study begins, for the paper's server had run for months: `remember` gives the
core that record.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from windfall.sim.models.hosts import ONE, Host
from windfall.sim.models.laws import Law
from windfall.sim.world import Place, World

SOURCE = "Silberstein, Sharov, Geiger, Schuster: GridBot, execution of bags of tasks in multiple grids (2009)"
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
KNOWN = 200  # attempts that each host had before a study
LITTLE = 0.1  # share of the attempts
LEAST_SHARE = 0.01  # of its time that a volunteer gives


@dataclass(frozen=True)
class Kind:
    """Hosts that are alike.  Of them a part `bad` loses the share `loses[1]` of what it is given, the others
    `loses[0]`."""

    site: str
    count: int
    bad: float = 0.0
    loses: tuple[float, float] = (0.0, 0.0)
    spread: float = 0.0  # of the logarithm of their speeds
    volunteer: bool = False
    calls: float = 0.0  # volunteers: exponent of the share of the time that they work for us; 0: all of it
    gives: Law | None = None  # volunteers: the share of the time that they work for us, another one for each task
    returns: Law | None = None  # ms after which there is a new pilot where one has left for want of work
    deadline: int = 0  # ms after which what was lost is sent again; 0: by the bag's own limit


@dataclass(slots=True)
class Fickle(Host):
    gives: Law = ONE

    def takes(self, work: float, draw: random.Random, limit: float = math.inf) -> tuple[int, bool]:
        share = min(max(LEAST_SHARE, self.gives.draw(draw)), 1.0)
        return Host.takes(self, work / share, draw, limit)


def settle_in(world: World, kinds: Sequence[Kind], draw: random.Random) -> dict[str, Host]:
    """All hosts, by name."""
    found: dict[str, Host] = {}
    for kind in kinds:
        world.site(kind.site, kind="boinc" if kind.volunteer else "simulated")
        bad = set(draw.sample(range(kind.count), round(kind.bad * kind.count)))
        for number in range(kind.count):
            host = _host(kind, kind.loses[number in bad], draw)
            found[f"{kind.site}-{number + 1}"] = host
            world._settle_in(Place(kind.site, host, returns=kind.returns, deadline=kind.deadline))
    return found


def _host(kind: Kind, loses: float, draw: random.Random) -> Host:
    speed = math.exp(draw.gauss(0, kind.spread))
    if kind.gives is not None:
        return Fickle(speed, loses, gives=kind.gives)
    return Host(speed * max(LEAST_SHARE, draw.random() ** kind.calls) if kind.calls else speed, loses)


def remember(world: World, hosts: dict[str, Host], draw: random.Random, low: float = 1.0) -> None:
    """What earlier bags have left behind: a record of each host, by which those that lose little now have lost `low`
    times as much before.  Once all of them have enrolled."""
    state = world.server.core.state
    for (_, name), row in state.host_rows.items():
        loses = hosts[name].loses * (low if hosts[name].loses < LITTLE else 1.0)
        lost = sum(draw.random() < loses for _ in range(KNOWN))
        state.hosts.attempts[row], state.hosts.losses[row] = KNOWN, lost
        state.hosts.success[row] = SECOND


def some(minutes: float) -> Law:
    """Exponential, in ms, with that mean."""
    return Law("", "exponential", (minutes * MINUTE,))
