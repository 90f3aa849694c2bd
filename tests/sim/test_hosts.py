"""Laws, hosts and background load: drawn values have the stated means, and change the course of a world."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from windfall.core.config import Config
from windfall.core.messages.lifecycle import O_FAILED, SUCCEEDED
from windfall.errors import BadInput
from windfall.sim.models import laws, load
from windfall.sim.models.hosts import Availability, Host, Machines, stretched
from windfall.sim.record import Record
from windfall.sim.replay import replay
from windfall.sim.world import Work, World, target_shape

HOUR = 3_600_000

# --- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "mean"), [
    ("uniform(1min, 3min)", 120_000), ("exponential(10min)", 600_000), ("normal(10min, 1min)", 600_000),
    ("lognormal(10min, 0.5)", 679_889), ("weibull(0.45, 4.16h)", 10.31 * HOUR), ("gamma(2, 5min)", 600_000),
    ("pareto(3, 10min)", 900_000), ("7min", 420_000),
])  # fmt: skip
def test_drawn_values_have_mean_of_their_law(text: str, mean: float) -> None:
    law, draw = laws.time(text, "duration"), random.Random(1)
    drawn = [law.draw(draw) for _ in range(60_000)]
    assert law.mean == pytest.approx(mean, rel=0.01)
    assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.05) and min(drawn) >= 0


@pytest.mark.parametrize(("text", "says"), [
    ("weibul(0.45, 4h)", "did you mean 'weibull'"), ("weibull(0.45)", "takes shape, scale"),
    ("weibull(0, 4h)", "0 is not between 0.01 and 100"), ("exponential(4)", "not a duration"),
    ("uniform(3s, 1s)", "from the smaller to the larger"), ("exponential(x)", "not a duration"),
    ("5", "not a duration"), ("lognormal(5min, nan)", "out of all bounds"),
    ([1], "must be a value or a law"), ("(", "not a duration"),
])  # fmt: skip
def test_broken_law_is_refused_with_reason(text: object, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        laws.time(text, "up")
    assert says in str(caught.value) and "up" in str(caught.value)


def test_laws_of_numbers_and_sizes_draw_in_range() -> None:
    assert laws.plain(0.5, "speed").draw(random.Random(1)) == 0.5
    assert 1e6 <= laws.size("uniform(1MB, 2MB)", "size").draw(random.Random(1)) <= 2e6
    with pytest.raises(BadInput, match="negative"):
        laws.plain(-1, "speed")


# --- hosts -----------------------------------------------------------------------------------------------------------

PRESENCE = Availability(laws.time("exponential(1h)", "up"), laws.time("exponential(30min)", "down"))


def test_suspended_work_takes_longer_by_absence_of_its_host() -> None:
    draw = random.Random(2)
    took = [stretched(10 * HOUR, PRESENCE, draw) for _ in range(2_000)]
    assert PRESENCE.share == pytest.approx(2 / 3)
    assert sum(took) / len(took) == pytest.approx(15 * HOUR, rel=0.02)


def test_stretched_work_ends_although_presence_comes_in_tiny_pieces() -> None:
    tiny = Availability(laws.time("weibull(0.01, 1ms)", "up"), laws.time("1s", "down"))
    assert stretched(1e12, tiny, random.Random(1)) > 1e12


def test_speed_load_and_turnaround_combine_to_duration() -> None:
    host = Host(2.0, load=laws.plain(0.5, "load"), turnaround=laws.time("3h", "turnaround"))
    assert host.takes(HOUR, random.Random(1)) == (4 * HOUR, False)
    assert Host(hole=True).takes(HOUR, random.Random(1)) == (1_000, False)


def test_task_is_killed_at_its_limit() -> None:
    host = Host(0.5, turnaround=laws.time("3h", "turnaround"))
    assert host.takes(HOUR, random.Random(1), 2 * HOUR) == (5 * HOUR, False)
    assert host.takes(HOUR, random.Random(1), HOUR) == (4 * HOUR, True)


def test_group_has_asked_share_of_black_holes() -> None:
    group = Machines(200, holes=0.1, speed=laws.plain("uniform(1, 3)", "speed"))
    hosts = group.hosts(random.Random(5))
    assert sum(host.hole for host in hosts) == 20 and len({host.speed for host in hosts}) == 200


def playing(group: Machines, tasks: int = 60, wall: int = HOUR, **options: int) -> tuple[World, Record]:
    world, record = World(3, Config(deaths=1000, **options), watch=True), Record()
    record.attach(world.server)
    world.site("there")
    world.machines("there", group, random.Random(9))
    world.submit(Work(tasks, lambda _task, _draw: wall, retries=1000))
    world.run()
    assert world.server.core.state.bags[1].counts[SUCCEEDED] == tasks
    return world, record


def test_pilots_are_lost_when_their_hosts_leave() -> None:
    world, record = playing(Machines(10, availability=PRESENCE), tasks=30)
    found = record.summary(1)
    assert found["outcomes"]["lost"] > 10 and found["redundant"] > 0
    assert world.engine.now > 30 * HOUR / 10 / PRESENCE.share


def test_suspending_hosts_lose_no_attempt() -> None:
    world, record = playing(Machines(10, availability=PRESENCE, suspends=True))
    assert record.summary(1)["outcomes"] == {"succeeded": 60}
    assert world.engine.now > 60 * HOUR / 10


def test_black_hole_fails_hundred_tasks_only_without_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    _, record = playing(Machines(10, holes=0.1), wall=60_000)
    assert 5 <= len([attempt for attempt in record.attempts() if attempt.outcome == O_FAILED]) < 20
    monkeypatch.setattr("windfall.core.decide.hosts.quarantine._judge", lambda *_: None)
    _, record = playing(Machines(10, holes=0.1), wall=60_000)
    failed = [attempt for attempt in record.attempts() if attempt.outcome == O_FAILED]
    assert len({attempt.pilot for attempt in failed}) == 1 and len(failed) > 100


def test_idle_hosts_get_new_pilots_for_next_stage() -> None:
    """While the one task of the first stage runs, idle pilots leave; the second stage needs their hosts again."""
    world, record = World(1, Config(idle=60_000)), Record()
    record.attach(world.server)
    world.site("there")
    world.machines("there", Machines(4), random.Random(1))
    targets = [target_shape("main", 1), target_shape("then", 8, after=[0])]
    world.submit(Work(9, lambda task, _draw: HOUR if task == 0 else 60_000, targets=targets))
    world.run()
    assert len(record.pilots) > 4 and world.engine.now < HOUR + 8 * 60_000
    assert len({record.pilots[attempt.pilot].host for attempt in record.attempts() if attempt.task}) == 4


# --- background load -------------------------------------------------------------------------------------------------


def test_synthetic_load_keeps_asked_share_of_processors_busy() -> None:
    jobs = list(islice(load.synthetic(random.Random(4), 128, 0.7), 40_000))
    length = jobs[-1].submit
    assert sum(job.procs * job.run for job in jobs) / (128 * length) == pytest.approx(0.7, rel=0.06)
    assert all(job.estimate >= job.run and job.procs in (1, 2, 4, 8, 16, 32, 64, 128) for job in jobs)
    waits = [replay(list(islice(load.synthetic(random.Random(4), 128, busy), 5_000)), 128).mean_wait
             for busy in (0.3, 0.9)]
    assert waits[0] < waits[1]


def test_segment_of_log_fits_machine_and_starts_at_zero(data: Path) -> None:
    day = 86_400.0
    jobs = load.segment(data / "swf" / "KTH-SP2-derived.swf.gz", 64, start=10 * day, length=2 * day)
    assert 20 < len(jobs) < 2_000 and all(0 <= job.submit < 2 * day and job.procs <= 64 for job in jobs)
    with pytest.raises(BadInput, match="no jobs between"):
        load.segment(data / "swf" / "KTH-SP2-derived.swf.gz", 64, start=10_000 * day, length=1)
