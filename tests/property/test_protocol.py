"""The whole protocol in memory, under faults.  A failure prints the plan that replays it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from windfall.core.messages.facts import PartAppended, PilotDraining, PilotEnded, PolicySet, TasksCancelled
from windfall.store import codec

from .plan import (
    Act,
    BagPlan,
    Plan,
    SitePlan,
    belied_plan,
    data_plan,
    failing_plan,
    growing_plan,
    hole_plan,
    left_plan,
    plans,
    policy_plan,
    random_plan,
    repeat_plan,
    replica_plan,
)
from .world import World

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@settings(
    max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=QUIET,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)
@given(plans())
def test_every_promise_holds_in_generated_plans(plan: Plan) -> None:
    World(plan).run()


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_random_worlds_keep_every_promise(first: int) -> None:
    """scripts/soak goes on with the seeds after these."""
    for seed in range(first, first + 40):
        World(random_plan(seed)).run()


@pytest.mark.parametrize("seed", (665, 3040, 3513, 4497, 7953, 9045, 25635))
def test_worlds_in_which_soak_found_a_defect_keep_every_promise(seed: int) -> None:
    World(random_plan(seed)).run()


def test_worlds_with_data_keep_every_promise() -> None:
    """No task waits for ever for a host, or for a copy on a lost disk (P4)."""
    for seed in range(80):
        World(data_plan(seed)).run()


@pytest.mark.parametrize("first", range(0, 60, 30))
def test_worlds_with_data_and_batch_sites_keep_every_promise(first: int) -> None:
    """Pilots that wait for data are granted tasks before sites learn the demand; a job outlives its pilot's goodbye."""
    for seed in range(first, first + 30):
        World(data_plan(seed, sites=True)).run()


@pytest.mark.parametrize("first", (0, 15))
def test_worlds_with_black_holes_keep_every_promise(first: int) -> None:
    """Quarantined hosts are released in the end, and other hosts get the tasks that they held (P4)."""
    for seed in range(first, first + 15):
        World(hole_plan(seed)).run()


def test_worlds_with_replicas_keep_every_promise() -> None:
    """A task with several attempts has one result (P1), and no budget is exceeded (P6)."""
    worlds = [World(replica_plan(seed)).run() for seed in range(60)]
    bags = [bag for world in worlds for bag in world.server.core.state.bags.values()]
    assert sum(bag.replicas_granted for bag in bags) > 100


def test_worlds_with_failing_tasks_keep_every_promise() -> None:
    """Failing tasks go to the fail-over site of their bag, and do not wait there for ever (G11, P4)."""
    worlds = [World(failing_plan(seed)).run() for seed in range(60)]
    ends = [task for world in worlds for task, over in world.oracle.over.items() if over]
    assert len(ends) > 100


@pytest.mark.parametrize("first", (0, 30))
def test_worlds_with_growing_graphs_keep_every_promise(first: int) -> None:
    """A part may wait for tasks in any state: no task starts before its prerequisites (Y), and all end (P4)."""
    worlds = [World(growing_plan(seed)).run() for seed in range(first, first + 30)]
    facts = [fact for world in worlds for row in world.server.disk.rows for fact in codec.decode(row)]
    parts = [fact for fact in facts if isinstance(fact, PartAppended)]
    assert len(parts) > 60 and sum(bool(part.edges) for part in parts) > 30
    assert any(isinstance(fact, TasksCancelled) and fact.why == "upstream" for fact in facts)


def test_worlds_with_changing_policies_keep_every_promise() -> None:
    """Policies change, and hosts may not match yet: all tasks end (P4), on every path of recovery."""
    worlds = [World(policy_plan(seed)).run() for seed in range(40)]
    facts = [fact for world in worlds for row in world.server.disk.rows for fact in codec.decode(row)]
    assert sum(isinstance(fact, PolicySet) for fact in facts) > 30


def test_worlds_with_deadlines_and_replicas_by_expression_keep_every_promise() -> None:
    """A task has one result, however often it runs (P1), and all tasks end (P4)."""
    worlds = [World(repeat_plan(seed)).run() for seed in range(60)]
    bags = [bag for world in worlds for bag in world.server.core.state.bags.values()]
    assert sum(bag.replicas_granted for bag in bags if "attempt-deadline" in bag.policy) > 30
    assert sum(bag.replicas_granted for bag in bags if "NumberOfReplicas" in bag.policy.get("replicate", "")) > 10


def test_worlds_with_killed_pilots_salvage_their_results() -> None:
    """Results of killed pilots are found before their tasks run again (S5)."""
    worlds = [World(left_plan(seed)).run() for seed in range(40)]
    said = [says for world in worlds for _, kind, says in world.server.core.state.sites["c0"].history
            if kind == "salvage"]
    assert sum("gone: 0 results" not in each for each in said) > 10


def test_worlds_that_lose_sight_of_jobs_start_no_external_effects_twice() -> None:
    """The processes of missing and requeued jobs run on; their tasks wait for evidence (P1), and end (P4)."""
    worlds = [World(belied_plan(seed)).run() for seed in range(20)]
    facts = [fact for world in worlds for row in world.server.disk.rows for fact in codec.decode(row)]
    assert sum(isinstance(fact, PilotDraining) for fact in facts) > 10, "pilots in doubt"
    ended = [fact for fact in facts if isinstance(fact, PilotEnded) and fact.why == "gone"]
    assert len(ended) > 10, "which later pilots on their hosts prove dead"


def test_world_is_decided_by_its_plan() -> None:
    plan = random_plan(34)
    assert World(plan).run().server.disk.rows == World(plan).run().server.disk.rows


def test_random_worlds_hold_every_kind_of_fault() -> None:
    worlds = [World(random_plan(seed)).run() for seed in range(40)]
    assert sum(world.server.crashes for world in worlds) > 20
    assert sum(len(world.oracle.given_up) for world in worlds) > 20
    assert sum(world.server.disk.flushes for world in worlds) > 1_000
    assert any(world.server.steady.rate != 1_000 for world in worlds)
    sites = [site for world in worlds for site in world.sites.values()]
    assert sum(site.submissions for site in sites) > 100 and sum(site.tenders for site in sites) > len(sites)


# Plans of worlds that once broke a promise.
FOUND = {
    "the highest attempt number is not in the last row": Plan(
        seed=294, bags=(BagPlan(6_513, 1, "limited", 1), BagPlan(13_012, 20, "graph")),
        loss=3, double=5, delay=60, crash=30,
    ),
    "a census answer renews the lease of what was given up": Plan(
        seed=149, bags=(BagPlan(0, 3), BagPlan(0, 1, "limited")), loss=3, crash=30, fail=0
    ),
    "the last success of a target strands what waits for it": Plan(
        seed=54, pilots=(4,),
        bags=(BagPlan(0, 20, "limited"), BagPlan(0, 20, "targets"), BagPlan(0, 20, "external", 1)),
        acts=(Act(27_185, "new pilot", 4, 18), Act(6_341, "new pilot", 2, 56), Act(38_447, "pilot dies", 3, 86)),
        double=20, fail=40,
    ),
    "a class that leaves the ready list unblocks another": Plan(
        seed=1_318, pilots=(2, 4, 2), bags=(BagPlan(0, 20, "long"), BagPlan(0, 8, "graph", 1), BagPlan(0, 8, "long")),
        acts=(Act(37_305, "pilot dies unseen", 3, 4), Act(56_800, "retry", 4, 52)),
        loss=15, delay=60, crash=30, fail=40,
    ),
    "the best shape costs more than the budget has left": Plan(
        seed=273, pilots=(), bags=(BagPlan(0, 8, "whole", 0, "broker"),), fail=0,
        sites=(SitePlan(16, ((4, 40_000), (1, 20_000)), 3, 1, budget=200_000),),
    ),
    "tasks are appended behind a target that has been cancelled": Plan(
        seed=1, pilots=(4,), bags=(BagPlan(0, 9, "targets"),),
        acts=(Act(6_000, "cancel"), Act(30_000, "append", 0, 3)), fail=0,
    ),
    "a snapshot knows more tasks than the graph did": Plan(
        seed=1, pilots=(4,), bags=(BagPlan(0, 8, "graph"),),
        acts=(Act(5_000, "append", 0, 3), Act(10_000, "snapshot"), Act(20_000, "server crash")), fail=0,
    ),
    "a site serves an owner no more whose task takes a whole pilot": Plan(
        seed=1, pilots=(4,), bags=(BagPlan(0, 20, "whole", 1),),
        acts=tuple(Act(at, "share") for at in range(2_000, 9_000, 1_000)), fail=0,
    ),
    "what a pilot may have is not what it was just shown": Plan(
        seed=560, pilots=(4, 1),
        bags=(BagPlan(0, 8, "conscious"), BagPlan(0, 1, "conscious"), BagPlan(0, 3, "data", 1)),
        acts=(Act(59_977, "disk lost", 2), Act(29_619, "disk lost", 4), Act(21_984, "disk lost", 4)),
        loss=3, delay=1, crash=5, fail=50, skew=40,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_plan_that_once_broke_a_promise_keeps_it(name: str) -> None:
    World(FOUND[name]).run()
