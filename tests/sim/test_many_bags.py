"""GridBot's figure 7 and its mishaps, in simulation: many bags of one owner, hosts with wrong output, and a stampede of
pilots after a restart of the server."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from windfall.core.config import Config
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import SUCCEEDED
from windfall.core.step import Core
from windfall.sim.models.hosts import Host
from windfall.sim.models.pilot import Pilot
from windfall.sim.world import PilotPlace, Work, World
from windfall.store import codec

MINUTE = 60_000
BAGS, TASKS, LEFT = 50, 1_200, 100


def a_while(_task: int, draw: random.Random) -> int:
    """Draw a task's duration as in the paper, with a second for each of its minutes."""
    return draw.randint(10_000, 50_000)


class Progress:
    """The times when each bag was first granted, and when `LEFT` of its tasks were left."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun: dict[int, int] = {}
        self.near: dict[int, int] = {}
        self._done: Counter[int] = Counter()
        world.server.observe(self.see)

    def see(self, facts: list[Any]) -> None:
        for fact in facts:
            if isinstance(fact, f.Granted):
                for group in fact.groups:
                    self.begun.setdefault(group.bag, fact.at)
            elif isinstance(fact, f.Finished):
                self._done[fact.bag] += len(fact.tasks)
                if self._done[fact.bag] >= TASKS - LEFT:
                    self.near.setdefault(fact.bag, fact.at)


def test_fifty_bags_begin_and_end_in_order_of_rank() -> None:
    """No bag ages: the whole run takes less than the wait for ageing."""
    world = World(7, Config(idle=1 << 40, ageing=1 << 40))
    world.site("here")
    progress = Progress(world)
    ranks = random.Random(7).sample(range(1, 1_000), BAGS)
    rank_of: dict[int, int] = {}
    for rank in ranks:
        world.submit(Work(TASKS, a_while, policy={"rank": str(rank)}, name=f"r{rank}"),
                     lambda number, rank=rank: rank_of.__setitem__(number, rank))  # type: ignore[misc]
    for _ in range(50):
        world.add_host(PilotPlace("here", Host(), 8))
    world.run()
    order = sorted(rank_of, key=lambda bag: -rank_of[bag])
    assert all(progress.begun[high] <= progress.begun[low] for high, low in pairwise(order))
    assert progress.begun[order[0]] < progress.begun[order[1]] and len(set(progress.begun.values())) > BAGS // 2
    assert all(progress.near[high] < progress.near[low] for high, low in pairwise(order))
    assert all(bag.counts[SUCCEEDED] == TASKS for bag in world.server.core.state.bags.values())


# --- hosts with wrong output ----------------------------------------------------------------------------------------


class Spoiling(World):
    """A world in which the results of some hosts take their time, and fail the bag's check."""

    spoils: tuple[str, ...] = ()

    def _run(self, pilot: Pilot, task: Any) -> tuple[int, dict[str, Any]]:
        wall, report = super()._run(pilot, task)
        if pilot.name in self.spoils:
            report = {"a": task.attempt, "o": "failed", "why": "check", "exit": 0, "wall": wall}
        return wall, report


@pytest.mark.parametrize("seed", range(3))
def test_hosts_with_wrong_output_cost_no_task(seed: int) -> None:
    """Two of twenty hosts are bad: nearly every tenth attempt fails, and each task may fail three times."""
    world = Spoiling(seed, Config(idle=1 << 40))
    world.spoils = ("here-1", "here-2")
    world.site("here")
    world.submit(Work(2_000, a_while, retries=3))
    world.pilots("here", 20)
    world.run()
    state = world.server.core.state
    assert state.bags[1].counts[SUCCEEDED] == 2_000
    failed = world.tally.attempts - 2_000
    assert 0 < failed < 100, "before long nothing more is sent there"


# --- a stampede -----------------------------------------------------------------------------------------------------

PILOTS, DOWN, RATE = 5_000, 60_000, 500


class Door:
    """The door of the server: shut while the server is down; after that it admits `RATE` requests per second."""

    def __init__(self) -> None:
        self.shut = False
        self.offered: Counter[int] = Counter()  # by second
        self.shed: Counter[int] = Counter()
        self._let_in: Counter[int] = Counter()

    def admits(self, now: int, reopened: int | None) -> bool:
        second = now // 1_000
        self.offered[second] += 1
        if self.shut or (reopened is not None and self._let_in[second] >= RATE):
            self.shed[second] += 1
            return False
        self._let_in[second] += 1
        return True


class Caller(Pilot):
    """A pilot that the door can turn away: it learns so at once, and returns after its back-off."""

    door = Door()
    reopened: int | None = None

    def _send(self, event: Any, answer: Any) -> None:
        if self.door.admits(self.engine.now, self.reopened):
            super()._send(event, answer)
        else:
            self.engine.after(5, self._unheard, event)


def fall_over(world: World, journal: list[bytes]) -> None:
    """Crash the server: its memory and all connections are lost, and its journal is replayed."""
    server = world.server
    Caller.door.shut = True
    server._waiting.clear()
    server._inbox.clear()
    core = Core(server.core.config)
    for body in journal:
        core.replay(codec.decode(body))
    server.core, server._wake_at = core, None
    world._busy = None
    for pilot in world._pilots.values():
        for seq in list(pilot.agenda.in_flight):
            pilot.agenda.request_failed(world.engine.now, seq)
        pilot._pump()


def come_back(world: World) -> None:
    Caller.door.shut, Caller.reopened = False, world.engine.now
    world.server.core.resume(world.engine.now)
    world.server._turn()


def test_five_thousand_pilots_return_spread_out_after_server_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The back-off of the pilots spreads them; no result and no pilot is lost, and no task runs twice."""
    monkeypatch.setattr("windfall.sim.world.Pilot", Caller)
    monkeypatch.setattr(Caller, "door", Door())
    monkeypatch.setattr(Caller, "reopened", None)
    world = World(3, Config(idle=1 << 40, park=60_000))
    journal: list[bytes] = []
    world.server.observe(lambda facts: journal.append(codec.encode(facts)) if facts else None)
    world.site("here")
    world.submit(Work(3 * PILOTS, lambda _, draw: draw.randint(60_000, 120_000)))
    world.pilots("here", PILOTS)
    world.run(100_000)
    fall_over(world, journal)
    world.run(100_000 + DOWN)
    door, tried = Caller.door, sum(Caller.door.offered[second] for second in range(100, 160))
    assert tried < 12 * PILOTS, "they wait longer each time"
    come_back(world)
    world.run(100_000 + DOWN + 90_000)
    after = [door.offered[second] for second in range(160, 250)]
    state = world.server.core.state
    assert max(after) < PILOTS // 2, "they do not all come at once"
    assert sum(door.shed[second] for second in range(160, 250)) > 500, "many were turned away"
    assert all(pilot.heard > 160_000 and pilot.epoch == 1 for pilot in state.pilots.values()), "all are there again"
    world.run()
    assert len(state.pilots) == PILOTS and state.bags[1].counts[SUCCEEDED] == 3 * PILOTS
    assert world.tally.attempts == 3 * PILOTS
