"""Eligibility: which tasks a pilot may have, by its slots, memory, disk, and the time it has left."""

from __future__ import annotations

import pytest

from tests.core.conftest import HOUR, Bench, shape

GIB = 1 << 30


def test_task_too_wide_for_a_pilot_does_not_block_a_narrow_one(bench: Bench) -> None:
    big, small = bench.submit(shape(1, cores=8)), bench.submit(shape(1))
    bench.take(bench.pilot(2))
    assert (bench.task(big), bench.task(small)) == ("ready", "active")


def test_task_longer_than_the_time_left_does_not_block_shorter_ones(bench: Bench) -> None:
    long, short = bench.submit(shape(1, limit=60_000)), bench.submit(shape(1, limit=1_000))
    check = bench.submit(shape(1, limit=60_000, checkpoint=True, grace=500))
    bench.take(bench.pilot(4), left=2_000)
    assert [bench.task(bag) for bag in (long, short, check)] == ["ready", "active", "active"]


def test_task_is_not_granted_to_a_pilot_short_of_memory_gpus_or_disk(bench: Bench) -> None:
    needs = ({"memory": 8 << 30}, {"gpus": 1}, {"disk": 1 << 50})
    bags = [bench.submit(shape(1, **need)) for need in needs]
    pilot = bench.pilot(8, memory=4 << 30)
    assert bench.take(pilot) == [] and {bench.task(bag) for bag in bags} == {"ready"}


def test_own_memory_and_disk_of_a_pilot_decide_not_those_of_its_class(bench: Bench) -> None:
    """The class of a pilot rounds: a task of 900 MB runs on a pilot of 1,000 MB, and one of 1,010 MB does not."""
    bench.submit(shape(1, memory=900 * 10**6, disk=19 * 10**8))
    bench.submit(shape(1, memory=1_010 * 10**6))
    pilot = bench.pilot(4, memory=1000 * 10**6, disk=20 * 10**8)
    assert len(bench.take(pilot)) == 1
    assert "memory (needs 1.01 GB, has 1 GB)" in bench.explain(2)


@pytest.mark.parametrize("what", ["memory", "disk"])
def test_pilots_of_one_class_are_granted_what_each_has_memory_or_disk_for(what: str) -> None:
    """A pilot of 62.5 GiB is in one class with those of 64 GiB."""
    b = Bench()
    b.submit(shape(4, **{what: 16 * GIB - GIB // 8}, expect=HOUR))
    one, other = (b.pilot(cores=4, host=host, **{what: int(62.5 * GIB)}) for host in "ab")
    assert (len(b.take(one, 9)), len(b.take(other, 9))) == (3, 1)


def test_whole_task_takes_its_pilot_alone(bench: Bench) -> None:
    bench.submit(shape(3, whole=True, cores=2), external=True)  # no prefetch
    assert bench.take(bench.pilot(1)) == []
    pilot = bench.pilot(8)
    ((attempt, _),) = bench.take(pilot)
    bench.submit(shape(3), external=True)
    assert bench.take(pilot) == [], "nothing runs beside it"
    bench.report(pilot, attempt)
    assert len(bench.take(pilot)) == 1


def test_whole_task_waits_until_its_pilot_runs_nothing(bench: Bench) -> None:
    bench.submit(shape(1), external=True)
    pilot = bench.pilot(4)
    ((attempt, _),) = bench.take(pilot)
    whole = bench.submit(shape(1, whole=True), external=True)
    assert bench.take(pilot) == []
    assert "busy" in bench.explain(whole)
    bench.report(pilot, attempt)
    assert len(bench.take(pilot)) == 1


def test_pilot_runs_as_many_tasks_as_its_disk_holds(bench: Bench) -> None:
    bench.submit(shape(8, disk=10 << 30, expect=1))  # short tasks would be prefetched
    pilot = bench.pilot(8, disk=32 << 30)
    held = bench.take(pilot)
    assert len(held) == 3
    assert bench.take(pilot) == []
    bench.report(pilot, held[0][0])
    assert len(bench.take(pilot)) == 1, "the next one fills in as space frees"
