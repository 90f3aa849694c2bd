"""The core and the agenda in virtual time: a seed always gives the same run, and all promises hold at every step."""

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


def test_same_seed_gives_same_run() -> None:
    assert trace(played(5, loses=0.1, fails=0.1)) == trace(played(5, loses=0.1, fails=0.1))
    assert trace(played(5)) != trace(played(6))


@pytest.mark.parametrize("seed", range(10))
def test_all_tasks_succeed_although_pilots_die(seed: int) -> None:
    world = played(seed, loses=0.15, fails=0.1)
    bag = world.server.core.state.bags[1]
    assert bag.counts[SUCCEEDED] == 200 and not bag.counts[FAILED]
    assert world.tally.attempts > 200 and world.tally.lost > 0


def test_no_slot_idles_while_tasks_wait() -> None:
    """With equal tasks on equal slots the makespan is the work divided by the slots, and a little communication."""
    world = World()
    world.site("here")
    world.pilots("here", 10, cores=4)
    world.submit(Work(400, lambda _task, _draw: 600_000))
    world.run()
    assert 10 * 600_000 <= world.engine.now < 10 * 600_000 + 2_000


def test_faster_host_runs_more_tasks() -> None:
    world = World()
    world.site("here")
    world.pilots("here", 1, speed=1.0)
    world.pilots("here", 1, speed=3.0)
    world.submit(Work(400, lambda _task, _draw: 60_000))
    world.run()
    assert world.engine.now < 1.02 * 400 * 60_000 / 4


def test_service_time_of_server_lengthens_makespan() -> None:
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
def test_pilot_at_rest_has_no_request_no_order_and_no_deadline(latency: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator asks a pilot at rest nothing more."""
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
