"""Sites with batch queues, and their tenders, under the real core: P6 and P7 hold at every step."""

from __future__ import annotations

import pytest

from windfall.core.config import Config
from windfall.core.messages.facts import Limits, Shape
from windfall.sim.engine import Engine
from windfall.sim.models.site import BatchJob, JobRefused, SimulatedSite, machine
from windfall.sim.models.swf import LogJob
from windfall.sim.world import Work, World

MINUTE = 60_000
ONE = Shape(1, 1 << 30, wall=30 * MINUTE)


class Nothing:
    def die(self) -> None:
        pass


def begin(job: BatchJob) -> Nothing:
    return Nothing()


def test_our_jobs_wait_behind_other_peoples_jobs() -> None:
    engine = Engine()
    site = machine(engine, "c", 2, "fcfs", load=[LogJob(1, 0, 60, 2, 60), LogJob(2, 1, 60, 1, 60)])
    engine.run(2_000)
    first = site.submit("me", "a", ONE, begin)
    site.submit("me", "b", ONE, begin)
    engine.run(59_999)
    assert [job.running for job in site.listing("me")] == [False, False] and site.info().queued == 3
    engine.run(60_000)
    assert [job.running for job in site.listing("me")] == [True, False]
    site.leave(site.jobs[first])
    assert [(job.nonce, job.running) for job in site.listing("me")] == [("b", True)]


def test_information_system_reports_old_numbers() -> None:
    engine = Engine()
    site = machine(engine, "c", 4, refresh=10_000)
    engine.run(9_000)
    site.submit("me", "a", ONE, begin)
    assert (site.info().free, site.info().age) == (4, 9_000)
    engine.run(11_000)
    assert (site.info().free, site.info().age) == (3, 1_000)


def test_preempted_job_is_requeued_and_ends_at_its_wall_time() -> None:
    engine = Engine(3)
    site = machine(engine, "c", 1, preempts=20 * MINUTE, requeues=True)
    name = site.submit("me", "a", ONE, begin)
    engine.run(600 * MINUTE)
    assert name not in site.jobs and site.starts > 1


def test_site_refuses_job_beyond_users_limit() -> None:
    site = machine(Engine(), "c", 4, most=1)
    site.submit("me", "a", ONE, begin)
    with pytest.raises(JobRefused):
        site.submit("me", "b", ONE, begin)
    site.submit("you", "b", ONE, begin)


def busy(count: int, minutes: float) -> list[LogJob]:
    return [LogJob(n, 0, 60 * minutes * (n % 5 + 1), 1, 60 * minutes * 5) for n in range(count)]


def two_sites(seed: int, **limits: int) -> tuple[World, list[SimulatedSite]]:
    world = World(seed, Config(idle=20_000), watch=True)
    sites = [machine(world.engine, name, 8, load=busy(8, minutes), startup=2_000)
             for name, minutes in (("c1", 1), ("c2", 4))]
    for site in sites:
        world.cluster(site, Limits([ONE], **limits), submit=1_000, cancel=3_000, listing=2_000, latency=20)
    return world, sites


@pytest.mark.parametrize("provision", ["swarm", "demand", "msr", "broker"])
def test_bag_ends_and_leaves_no_intents_and_no_jobs(provision: str) -> None:
    world, sites = two_sites(1)
    world.submit(Work(12, lambda task, draw: 90_000, limit=5 * MINUTE, expect=90_000, provision=provision))
    world.run(240 * MINUTE)
    assert world.tally.ends or not any(bag.not_ended() for bag in world.server.core.state.bags.values())
    world.engine.run(world.engine.now + 5 * MINUTE)
    assert not world.server.core.state.intents and not any(site.jobs for site in sites)


def test_msr_starts_more_jobs_than_swarm_and_broker() -> None:
    starts = {}
    for provision in ("swarm", "msr", "broker"):
        world, sites = two_sites(1)
        world.submit(Work(12, lambda task, draw: 10 * MINUTE, limit=20 * MINUTE, expect=10 * MINUTE,
                          provision=provision))
        world.run(240 * MINUTE)
        world.engine.run(world.engine.now + 5 * MINUTE)
        starts[provision] = sum(site.starts for site in sites)
    assert starts["broker"] == 12 <= starts["swarm"] < starts["msr"]


@pytest.mark.parametrize("seed", range(8))
def test_limits_hold_while_tenders_crash_and_pilots_are_preempted(seed: int) -> None:
    """The bag ends, too: a new tender finds the unreported jobs of a crashed one by listing."""
    world = World(seed, Config(idle=20_000, landing=5_000), watch=True)
    draw = world.engine.random
    sites, tenders, most = [], [], 0
    for name in ("c1", "c2"):
        site = machine(world.engine, name, 6, load=busy(4, 2), preempts=20 * MINUTE, requeues=name == "c2", most=5)
        sites.append(site)
        tenders.append(world.cluster(site, Limits([ONE], pilots=6, queued=4, flight=3), listing=1_000, latency=30,
                                   submit=lambda: draw.randrange(4_000), cancel=lambda: draw.randrange(4_000)))

    def crash(tender: int) -> None:
        tenders[tender].crash()
        world.engine.after(draw.randrange(20_000), tenders[tender].restart)
        if world.engine.now < 60 * MINUTE:
            world.engine.after(draw.randrange(3 * MINUTE), crash, 1 - tender)

    def look() -> None:
        nonlocal most
        most = max(most, *(len(site.jobs) for site in sites))
        world.engine.after(500, look)

    world.engine.after(2_000, crash, 0)
    look()
    world.submit(Work(40, lambda task, draw: draw.randrange(6 * MINUTE), limit=8 * MINUTE, expect=MINUTE,
                      fails=0.1, retries=20))
    world.run(600 * MINUTE)
    assert not any(bag.not_ended() for bag in world.server.core.state.bags.values())
    assert 0 < most <= 6
    world.engine.run(world.engine.now + 20 * MINUTE)
    assert not world.server.core.state.intents and not any(site.jobs for site in sites)
