"""Policies that are expressions, in whole worlds: many bags, hosts that fail, policies that change."""

from __future__ import annotations

import random

from windfall.core.config import Config
from windfall.core.messages import events as e
from windfall.core.messages.lifecycle import SUCCEEDED
from windfall.sim.models.hosts import Host
from windfall.sim.play import Run
from windfall.sim.record import Record
from windfall.sim.scenario import parse
from windfall.sim.world import PilotPlace, Work, World

MINUTE = 60_000


def about_three_minutes(_task: int, draw: random.Random) -> int:
    return draw.randint(2 * MINUTE, 4 * MINUTE)


def played(world: World) -> Record:
    record = Record()
    record.attach(world.server)
    world.run()
    assert all(bag.counts[SUCCEEDED] == bag.size for bag in world.server.core.state.bags.values())
    return record


def test_fifty_bags_run_in_order_of_rank_while_tasks_fail() -> None:
    """GridBot's figure 7, smaller: the order holds up to the last few tasks of each bag, which failures delay."""
    world = World(5, Config(idle=1 << 40))
    world.site("here")
    world.pilots("here", 25, loses=0.02)
    ranks = random.Random(5).sample(range(50), 50)
    for rank in ranks:
        world.submit(Work(60, about_three_minutes, fails=0.02, retries=99, policy={"rank": f"{rank} + 0 * Host.Cores"}))
    record = played(world)
    begins: dict[int, int] = {}
    ends: dict[int, list[int]] = {}
    for attempt in sorted(record.attempts(), key=lambda each: each.granted):
        begins.setdefault(attempt.bag, attempt.granted)
        if attempt.counts:
            ends.setdefault(attempt.bag, []).append(attempt.end)
    by_rank = sorted(range(1, 51), key=lambda bag: -ranks[bag - 1])
    assert [bag for bag, _ in sorted(begins.items(), key=lambda pair: pair[1])] == by_rank
    few_left = [sorted(ends[bag])[-6] for bag in by_rank]
    assert few_left == sorted(few_left)


def flaky(policy: dict[str, str]) -> World:
    world = World(3, Config(idle=1 << 40, deaths=200))
    world.site("here")
    for number in range(20):
        world.add_host(PilotPlace("here", Host(loses=0.5 if number % 2 else 0.0)))
    world.submit(Work(800, about_three_minutes, policy=policy))
    return world


def test_requirement_on_error_rate_avoids_hosts_that_lose_much() -> None:
    world = flaky({})
    played(world)
    careful = flaky({"requirements": "Host.ErrorRate is undefined || Host.ErrorRate < 0.3"})
    record = played(careful)
    assert careful.tally.lost < world.tally.lost / 4
    late = [each for each in record.attempts() if each.granted > 30 * MINUTE]
    reliable = {pilot.number for pilot in careful.server.core.state.pilots.values()
                if int(pilot.host_name.split("-")[1]) % 2}
    assert late and sum(each.pilot in reliable for each in late) > 0.95 * len(late)


def test_changed_requirements_apply_to_later_grants() -> None:
    world = World(1, Config(idle=1 << 40), watch=True)
    world.site("here")
    world.pilots("here", 4)
    world.submit(Work(60, about_three_minutes))
    text = 'Host.Name == "here-1" || Bag.JobsLeft < 10'
    world.engine.at(20 * MINUTE, world.server.put, e.SetPolicy(0, 1, {"requirements": text}))
    record = played(world)
    hosts = {pilot.number: pilot.host_name for pilot in world.server.core.state.pilots.values()}
    attempts = sorted(record.attempts(), key=lambda each: each.granted)
    before = {hosts[each.pilot] for each in attempts if each.granted < 20 * MINUTE}
    after = [each for each in attempts if each.granted > 20 * MINUTE]
    assert len(before) == 4
    assert {hosts[each.pilot] for each in after[:-12]} == {"here-1"} and len(after) > 20
    assert len({hosts[each.pilot] for each in after[-9:]}) > 1  # pilots whose request was refused asked again


SCENARIO = """
[sites.fast]
[sites.slow]
[hosts.quick]
site = "fast"
count = 3
[hosts.lame]
site = "slow"
count = 3
speed = 0.1
[bags.first]
tasks = 30
duration = "1min"
sites = 'Site.Name =!= "slow"'
rank = '1'
[bags.second]
tasks = 30
duration = "1min"
requirements = 'Host.Site == "slow" || Bag.Age > 600'
rank = 'Host.Site == "slow" ? 5 : 0'
"""


def test_scenario_bag_takes_policy_expressions() -> None:
    run = Run(parse(SCENARIO), 1)
    run.play()
    where: dict[int, set[str]] = {}
    state = run.world.server.core.state
    for attempt in run.record.attempts():
        where.setdefault(attempt.bag, set()).add(state.pilots[attempt.pilot].site)
    assert where[1] == {"fast"} and where[2] == {"slow", "fast"}
    assert state.bags[1].policy == {"rank": "1", "sites": 'Site.Name =!= "slow"'}
