"""Batches in virtual time, with the real core and the real agenda: their gain, and the promises they must not break."""

from __future__ import annotations

import random
from typing import Any

import pytest

from windfall.core.config import Config
from windfall.core.messages.lifecycle import SUCCEEDED
from windfall.sim.models.pilot import Pilot
from windfall.sim.world import Work, World, WorldRules, target_shape


class Seen(World):
    """A world that records which pilot started which task, and when."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: list[tuple[int, str, int]] = []

    def _run(self, pilot: Pilot, task: Any) -> tuple[int, dict[str, Any]]:
        self.seen.append((task.command[1], pilot.name, self.engine.now))
        return super()._run(pilot, task)


def test_batch_runs_on_one_pilot_in_order_and_in_one_slot() -> None:
    world = Seen(3)
    world.site("here")
    world.pilots("here", 3, cores=4, latency=20)
    world.submit(Work(96, lambda _task, draw: 1_000 + draw.randrange(500), batch=16))
    world.run()
    for first in range(0, 96, 16):
        mine = [(task, name) for task, name, _ in world.seen if first <= task < first + 16]
        assert [task for task, _ in mine] == list(range(first, first + 16))
        assert len({name for _, name in mine}) == 1
    starts = sorted(at for task, _, at in world.seen if task % 16 == 0)
    assert starts[-1] - starts[0] < 100  # six batches, twelve cores: all at once, a core each


@pytest.mark.parametrize("seed", range(6))
def test_all_tasks_succeed_in_batches_although_pilots_die(seed: int) -> None:
    world = World(seed, Config(deaths=200), watch=True)
    world.site("here")
    world.pilots("here", 6, cores=2, loses=0.05, latency=40)
    world.submit(Work(150, lambda _task, draw: round(draw.expovariate(1 / 60_000)) + 1, fails=0.1, retries=50, batch=7))
    world.run()
    assert world.server.core.state.bags[1].counts[SUCCEEDED] == 150


def test_batches_of_sixteen_cut_requests_and_makespan_at_slow_server() -> None:
    """The server is one queue, and tasks take a few seconds: sixteen of them cost it about as much as one."""
    ends, calls = [], []
    for batch in (0, 16):
        world = World(rules=WorldRules(service=350))
        world.site("here")
        world.pilots("here", 32, latency=150)
        world.submit(Work(1_024, lambda _task, _draw: 5_000, expect=5_000, batch=batch))
        world.run()
        ends.append(world.engine.now)
        calls.append(world.server.exchanges)
    assert ends[1] < 0.6 * ends[0] and calls[1] < calls[0] / 3.5


def test_same_seed_gives_same_run_of_batches() -> None:
    def played() -> list[tuple[int, str, int]]:
        world = Seen(5)
        world.site("here")
        world.pilots("here", 5, loses=0.02)
        world.submit(Work(200, _some, batch=8))
        world.run()
        return world.seen

    assert played() == played()


def test_stages_of_pipeline_run_on_one_pilot_one_after_the_other() -> None:
    world = Seen(7, watch=True)
    world.site("here")
    world.pilots("here", 4, cores=2, latency=30)
    stages = [target_shape(name, 40, retries=9, previous_stage=previous)
              for name, previous in (("a", -1), ("b", 0), ("c", 1))]
    world.submit(Work(120, _some, fails=0.1, targets=stages))
    world.run()
    bag = world.server.core.state.bags[1]
    assert bag.counts[SUCCEEDED] == 120
    where = {task: (name, at) for task, name, at in world.seen}  # the last time, which was the good one
    for first in range(40):
        (_, a), (_, b), (_, c) = (where[first + stage] for stage in (0, 40, 80))
        assert a < b < c
    together = sum(len({where[first + stage][0] for stage in (0, 40, 80)}) == 1 for first in range(40))
    assert together > 25  # a stage that failed by itself may go elsewhere


def _some(_task: int, draw: random.Random) -> int:
    return draw.randrange(1, 9_000)
