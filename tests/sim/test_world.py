"""The core and the agenda in virtual time: the same seed, the same run; all promises, all the time."""

from __future__ import annotations

import random

import pytest

from windfall.core.config import Config
from windfall.core.messages.lifecycle import FAILED, SUCCEEDED
from windfall.pilot.agenda.agenda import Agenda
from windfall.sim.world import Work, World, WorldRules


def minutes(_task: int, draw: random.Random) -> int:
    return round(draw.expovariate(1 / 300_000)) + 1


def played(seed: int, **options: float) -> World:
    world = World(seed, Config(deaths=200), watch=True)  # hosts die here, tasks are not to blame
    world.site("here")
    world.site("there")
    world.pilots("here", 6, cores=2, loses=options.get("loses", 0.0), latency=40)
    world.pilots("there", 3, speed=2.5, latency=150)
    world.submit(Work(200, minutes, fails=options.get("fails", 0.0), retries=50))
    world.run()
    return world


def trace(world: World) -> tuple[int, ...]:
    return world.engine.now, world.engine.events, world.server.exchanges, world.tally.attempts, world.tally.busy


def test_the_same_seed_is_the_same_run() -> None:
    assert trace(played(5, loses=0.1, fails=0.1)) == trace(played(5, loses=0.1, fails=0.1))
    assert trace(played(5)) != trace(played(6))


@pytest.mark.parametrize("seed", range(10))
def test_everything_ends_whatever_is_lost(seed: int) -> None:
    world = played(seed, loses=0.15, fails=0.1)
    bag = world.server.core.state.bags[1]
    assert bag.counts[SUCCEEDED] == 200 and not bag.counts[FAILED]
    assert world.tally.attempts > 200 and world.tally.lost > 0


def test_no_slot_idles_while_there_is_work() -> None:
    """Equal tasks on equal slots: the makespan is the work divided by the slots, and a little talk."""
    world = World()
    world.site("here")
    world.pilots("here", 10, cores=4)
    world.submit(Work(400, lambda _task, _draw: 600_000))
    world.run()
    assert 10 * 600_000 <= world.engine.now < 10 * 600_000 + 2_000


def test_faster_hosts_do_more() -> None:
    world = World()
    world.site("here")
    world.pilots("here", 1, speed=1.0)
    world.pilots("here", 1, speed=3.0)
    world.submit(Work(400, lambda _task, _draw: 60_000))
    world.run()
    assert world.engine.now < 1.02 * 400 * 60_000 / 4


def test_a_server_that_is_one_queue_is_felt() -> None:
    ends = []
    for service in (0, 350):
        world = World(rules=WorldRules(service=service))
        world.site("here")
        world.pilots("here", 32)
        world.submit(Work(640, lambda _task, _draw: 5_000))
        world.run()
        ends.append(world.engine.now)
    assert ends[1] > 1.3 * ends[0]


@pytest.mark.parametrize("latency", [0, 40])
def test_a_pilot_at_rest_has_nothing_to_say_to_do_or_to_wait_for(latency: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator does not ask a pilot further that says so."""
    original, rests = Agenda.at_rest, []

    def at_rest(self: Agenda) -> bool:
        if rest := original(self):
            now = world.engine.now
            rests.append((self.next_request(now), self.orders(now), self.due(now)))
        return bool(rest)

    monkeypatch.setattr(Agenda, "at_rest", at_rest)
    world = World(3, Config(deaths=200))
    world.site("here")
    world.pilots("here", 6, cores=2, loses=0.1, latency=latency)
    world.submit(Work(200, minutes, fails=0.1, retries=50))
    world.run()
    assert len(rests) > 100 and set(map(str, rests)) == {"(None, [], None)"}
