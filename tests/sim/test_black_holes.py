"""Black holes: hosts on which every task fails at once.  They must not ruin a bag, and no host that is as good as the
others may be quarantined."""

from __future__ import annotations

import random

import pytest

from windfall.core.config import Config
from windfall.core.messages.lifecycle import FAILED, SUCCEEDED
from windfall.sim.models.hosts import Host
from windfall.sim.world import PilotPlace, Work, World

MINUTE = 60_000


def ten_minutes(_task: int, draw: random.Random) -> int:
    return draw.randint(5 * MINUTE, 15 * MINUTE)


def a_minute(_task: int, draw: random.Random) -> int:
    return draw.randint(MINUTE // 2, MINUTE)


def judged(world: World, site: str = "here") -> dict[str, list[str]]:
    """Return the entries on each host in the site's history."""
    entries: dict[str, list[str]] = {}
    for _, kind, entry in world.server.core.state.sites[site].history:
        if kind == "host":
            name, _, text = entry.partition(": ")
            entries.setdefault(name, []).append(text)
    return entries


def ends(world: World, bag: int = 1) -> tuple[int, int]:
    counts = world.server.core.state.bags[bag].counts
    return counts[SUCCEEDED], counts[FAILED]


def world_of(seed: int, hosts: int, *, holes: int = 0, cores: int = 1) -> World:
    world = World(seed, Config(idle=1 << 40))
    world.site("here")
    for number in range(hosts):
        world.add_host(PilotPlace("here", Host(hole=number < holes), cores))
    return world


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("hosts", "holes", "cores"), [(10, 1, 1), (10, 3, 1), (4, 1, 16), (60, 2, 1)])
def test_black_holes_are_quarantined_and_fail_no_task(
    seed: int, hosts: int, holes: int, cores: int
) -> None:
    """Without quarantine the first black hole alone would fail hundreds of tasks."""
    world = world_of(seed, hosts, holes=holes, cores=cores)
    world.submit(Work(1_000, ten_minutes, retries=3))
    world.run()
    assert ends(world) == (1_000, 0)
    entries = judged(world)
    assert set(entries) == {f"here-{number}" for number in range(1, holes + 1)}
    assert all("quarantined" in texts[0] for texts in entries.values())


@pytest.mark.parametrize("seed", range(3))
def test_black_hole_fails_no_task_of_small_bag(seed: int) -> None:
    world = world_of(seed, 10, holes=1)
    world.submit(Work(30, ten_minutes, retries=3))
    world.run()
    assert ends(world) == (30, 0)


@pytest.mark.parametrize("seed", range(5))
def test_hosts_are_not_quarantined_while_one_task_in_five_fails_everywhere(seed: int) -> None:
    """One task in five fails, wherever it runs."""
    world = world_of(seed, 20, cores=1 + seed % 2)
    world.submit(Work(5_000, a_minute, retries=100, fails=0.2))
    world.run()
    assert ends(world) == (5_000, 0) and judged(world) == {} and not world.server.core.state.quarantined


@pytest.mark.parametrize("seed", range(3))
def test_bag_that_fails_everywhere_quarantines_no_host(seed: int) -> None:
    world = world_of(seed, 10)
    world.submit(Work(300, a_minute, retries=1, fails=1.0))
    world.run()
    assert ends(world) == (0, 300) and judged(world) == {}


@pytest.mark.parametrize("seed", range(3))
def test_stretch_of_failing_tasks_quarantines_no_host(seed: int) -> None:
    """A sweep goes too far: neighbouring tasks fail, and a host is granted several of them together."""
    world = world_of(seed, 8, cores=4)
    world.submit(Work(1_000, a_minute, retries=1, failing=frozenset(range(400, 700))))
    world.run()
    assert ends(world) == (700, 300) and judged(world) == {}


def test_mended_host_leaves_quarantine_on_probation() -> None:
    world, broken = World(1, Config(idle=1 << 40)), Host(hole=True)
    world.site("here")
    for host in (broken, *(Host() for _ in range(9))):
        world.add_host(PilotPlace("here", host))
    world.submit(Work(3_000, ten_minutes, retries=3))
    world.engine.at(120 * MINUTE, lambda: setattr(broken, "hole", False))
    world.run()
    assert ends(world) == (3_000, 0)
    last = judged(world)["here-1"][-2:]
    assert last == ["on probation: one task at a time", "it works again"]
