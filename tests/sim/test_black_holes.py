"""Black holes: hosts that fail whatever they are given, at once.  They must not take a bag with them, and no host that
is as good as the others may be taken for one."""

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
    """What was said of each host."""
    said: dict[str, list[str]] = {}
    for _, kind, says in world.server.core.state.sites[site].history:
        if kind == "host":
            name, _, text = says.partition(": ")
            said.setdefault(name, []).append(text)
    return said


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
def test_a_bag_ends_well_although_some_hosts_fail_whatever_they_get(
    seed: int, hosts: int, holes: int, cores: int
) -> None:
    """Without a rule against it the first hole alone fails hundreds of them."""
    world = world_of(seed, hosts, holes=holes, cores=cores)
    world.submit(Work(1_000, ten_minutes, retries=3))
    world.run()
    assert ends(world) == (1_000, 0)
    said = judged(world)
    assert set(said) == {f"here-{number}" for number in range(1, holes + 1)}
    assert all("quarantined" in of[0] for of in said.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_small_bag_ends_well_before_anybody_can_have_succeeded(seed: int) -> None:
    world = world_of(seed, 10, holes=1)
    world.submit(Work(30, ten_minutes, retries=3))
    world.run()
    assert ends(world) == (30, 0)


@pytest.mark.parametrize("seed", range(5))
def test_healthy_hosts_are_not_taken_for_black_holes(seed: int) -> None:
    """Where one task in five fails, wherever it runs."""
    world = world_of(seed, 20, cores=1 + seed % 2)
    world.submit(Work(5_000, a_minute, retries=100, fails=0.2))
    world.run()
    assert ends(world) == (5_000, 0) and judged(world) == {} and not world.server.core.state.quarantined


@pytest.mark.parametrize("seed", range(3))
def test_a_bag_that_fails_everywhere_is_no_hosts_fault(seed: int) -> None:
    world = world_of(seed, 10)
    world.submit(Work(300, a_minute, retries=1, fails=1.0))
    world.run()
    assert ends(world) == (0, 300) and judged(world) == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_stretch_of_bad_tasks_is_no_hosts_fault(seed: int) -> None:
    """A sweep that goes too far: tasks side by side fail, on whichever hosts they are given to together."""
    world = world_of(seed, 8, cores=4)
    world.submit(Work(1_000, a_minute, retries=1, failing=frozenset(range(400, 700))))
    world.run()
    assert ends(world) == (700, 300) and judged(world) == {}


def test_a_host_that_was_mended_is_released_on_probation() -> None:
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
