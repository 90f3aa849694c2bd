"""GridBot's platform (Silberstein et al. 2009): collaborative grids, a cluster and volunteers, shared by its studies.

A preempted host, or one that forgets a task, does not report it: BOINC's server learns of it at the deadline.  The
paper's server had run for months before a study and knew how much each host loses; `remember` gives the core that
record.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from windfall.sim.models.hosts import ONE, Host
from windfall.sim.models.laws import Law
from windfall.sim.world import PilotPlace, World

SOURCE = "Silberstein, Sharov, Geiger, Schuster: GridBot, execution of bags of tasks in multiple grids (2009)"
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
KNOWN = 200  # attempts in each host's record before a study
LITTLE = 0.1  # a host that loses a smaller share of its attempts loses little
LEAST_SHARE = 0.01  # the least share of its time that a volunteer gives


@dataclass(frozen=True)
class HostKind:
    """Hosts that are alike.  The share `bad` of them loses `loses[1]` of its attempts, the other hosts `loses[0]`."""

    site: str
    count: int
    bad: float = 0.0
    loses: tuple[float, float] = (0.0, 0.0)
    spread: float = 0.0  # deviation of the logarithm of their speeds
    volunteer: bool = False
    calls: float = 0.0  # volunteers: exponent of the share of their time that they give; 0: all of it
    gives: Law | None = None  # volunteers: the share of their time that they give, drawn for each task
    returns: Law | None = None  # ms after which a pilot that left for lack of work is started again
    deadline: int = 0  # ms after which a lost attempt is sent again; 0: after the bag's own limit


@dataclass(slots=True)
class Volunteer(Host):
    """A volunteer's host that gives another share of its time to each task."""

    gives: Law = ONE

    def takes(self, work: float, draw: random.Random, limit: float = math.inf) -> tuple[int, bool]:
        share = min(max(LEAST_SHARE, self.gives.draw(draw)), 1.0)
        return Host.takes(self, work / share, draw, limit)


def add_hosts(world: World, kinds: Sequence[HostKind], draw: random.Random) -> dict[str, Host]:
    """Add the sites and hosts of each kind to a world; return the hosts by name."""
    found: dict[str, Host] = {}
    for kind in kinds:
        world.site(kind.site, kind="boinc" if kind.volunteer else "simulated")
        bad = set(draw.sample(range(kind.count), round(kind.bad * kind.count)))
        for number in range(kind.count):
            host = _host(kind, kind.loses[number in bad], draw)
            found[f"{kind.site}-{number + 1}"] = host
            world.add_host(PilotPlace(kind.site, host, returns=kind.returns, deadline=kind.deadline))
    return found


def _host(kind: HostKind, loses: float, draw: random.Random) -> Host:
    speed = math.exp(draw.gauss(0, kind.spread))
    if kind.gives is not None:
        return Volunteer(speed, loses, gives=kind.gives)
    return Host(speed * max(LEAST_SHARE, draw.random() ** kind.calls) if kind.calls else speed, loses)


def record_earlier_losses(world: World, hosts: dict[str, Host], draw: random.Random, low: float = 1.0) -> None:
    """Give the core a record of each enrolled host's earlier attempts.

    A host that loses little has lost `low` times its present share before.
    """
    state = world.server.core.state
    for (_, name), row in state.host_rows.items():
        loses = hosts[name].loses * (low if hosts[name].loses < LITTLE else 1.0)
        lost = sum(draw.random() < loses for _ in range(KNOWN))
        state.hosts.attempts[row], state.hosts.losses[row] = KNOWN, lost
        state.hosts.success[row] = SECOND


def exponential(minutes: float) -> Law:
    """Return an exponential law, in ms, with that mean."""
    return Law("", "exponential", (minutes * MINUTE,))
