"""Laws, hosts and background load: what is drawn has the mean that is stated, and worlds feel it."""

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
def test_what_is_drawn_has_the_mean_of_its_law(text: str, mean: float) -> None:
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
def test_what_is_no_law_is_refused(text: object, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        laws.time(text, "up")
    assert says in str(caught.value) and "up" in str(caught.value)


def test_numbers_and_sizes_can_be_drawn_too() -> None:
    assert laws.plain(0.5, "speed").draw(random.Random(1)) == 0.5
    assert 1e6 <= laws.size("uniform(1MB, 2MB)", "size").draw(random.Random(1)) <= 2e6
    with pytest.raises(BadInput, match="negative"):
        laws.plain(-1, "speed")


# --- hosts -----------------------------------------------------------------------------------------------------------

PRESENCE = Availability(laws.time("exponential(1h)", "up"), laws.time("exponential(30min)", "down"))


def test_work_waits_while_its_host_is_away() -> None:
    draw = random.Random(2)
    took = [stretched(10 * HOUR, PRESENCE, draw) for _ in range(2_000)]
    assert PRESENCE.share == pytest.approx(2 / 3)
    assert sum(took) / len(took) == pytest.approx(15 * HOUR, rel=0.02)


def test_presence_in_tiny_pieces_ends_all_the_same() -> None:
    tiny = Availability(laws.time("weibull(0.01, 1ms)", "up"), laws.time("1s", "down"))
    assert stretched(1e12, tiny, random.Random(1)) > 1e12


def test_speed_load_and_turnaround_add_up() -> None:
    host = Host(2.0, load=laws.plain(0.5, "load"), turnaround=laws.time("3h", "turnaround"))
    assert host.takes(HOUR, random.Random(1)) == (4 * HOUR, False)
    assert Host(hole=True).takes(HOUR, random.Random(1)) == (1_000, False)


def test_what_takes_longer_than_it_may_is_ended() -> None:
    host = Host(0.5, turnaround=laws.time("3h", "turnaround"))
    assert host.takes(HOUR, random.Random(1), 2 * HOUR) == (5 * HOUR, False)
    assert host.takes(HOUR, random.Random(1), HOUR) == (4 * HOUR, True)


def test_as_many_black_holes_as_are_asked_for() -> None:
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


def test_hosts_that_come_and_go_take_their_pilots_with_them() -> None:
    world, record = playing(Machines(10, availability=PRESENCE), tasks=30)
    found = record.summary(1)
    assert found["outcomes"]["lost"] > 10 and found["redundant"] > 0
    assert world.engine.now > 30 * HOUR / 10 / PRESENCE.share


def test_hosts_that_suspend_lose_nothing() -> None:
    world, record = playing(Machines(10, availability=PRESENCE, suspends=True))
    assert record.summary(1)["outcomes"] == {"succeeded": 60}
    assert world.engine.now > 60 * HOUR / 10


def test_a_black_hole_swallows_far_more_than_its_share_unless_it_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _, record = playing(Machines(10, holes=0.1), wall=60_000)
    assert 5 <= len([attempt for attempt in record.attempts() if attempt.outcome == O_FAILED]) < 20
    monkeypatch.setattr("windfall.core.decide.hosts.quarantine._weigh", lambda *_: None)
    _, record = playing(Machines(10, holes=0.1), wall=60_000)
    failed = [attempt for attempt in record.attempts() if attempt.outcome == O_FAILED]
    assert len({attempt.pilot for attempt in failed}) == 1 and len(failed) > 100


def test_a_host_comes_back_after_it_had_nothing_to_do() -> None:
    """Two stages: while the one task of the first runs, the others leave; the second finds them again."""
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


def test_made_up_load_keeps_as_much_busy_as_is_asked() -> None:
    jobs = list(islice(load.synthetic(random.Random(4), 128, 0.7), 40_000))
    length = jobs[-1].submit
    assert sum(job.procs * job.run for job in jobs) / (128 * length) == pytest.approx(0.7, rel=0.06)
    assert all(job.estimate >= job.run and job.procs in (1, 2, 4, 8, 16, 32, 64, 128) for job in jobs)
    waits = [replay(list(islice(load.synthetic(random.Random(4), 128, busy), 5_000)), 128).mean_wait
             for busy in (0.3, 0.9)]
    assert waits[0] < waits[1]


def test_a_stretch_of_a_log(data: Path) -> None:
    day = 86_400.0
    jobs = load.segment(data / "swf" / "KTH-SP2-derived.swf.gz", 64, start=10 * day, length=2 * day)
    assert 20 < len(jobs) < 2_000 and all(0 <= job.submit < 2 * day and job.procs <= 64 for job in jobs)
    with pytest.raises(BadInput, match="no jobs between"):
        load.segment(data / "swf" / "KTH-SP2-derived.swf.gz", 64, start=10_000 * day, length=1)
