"""The studies of the GridBot paper, small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windfall.core.expressions import classads
from windfall.core.messages.lifecycle import O_LOST
from windfall.errors import BadInput
from windfall.sim.experiments import bags, condor, naive, replicas, scale, several
from windfall.sim.record import Record


def test_pilots_that_keep_their_slots_beat_jobs_that_queue_one_by_one() -> None:
    """g-c with a third of the jobs."""
    for seed in (1, 2):
        assert condor.plain(seed, tasks=1_000)[-1] > 1.3 * condor.ends(condor.through(seed, tasks=1_000))[-1]


def test_a_pool_that_never_takes_a_slot_back_is_as_good_as_pilots() -> None:
    """So the difference is one of queuing anew for every job."""
    calibration = replace(condor.CondorCalibration(), kept=1.0, gap=0.01, startup=0.01, preempted=1e9, days=0.0)
    plain, ours = condor.plain(3, calibration, 1_000)[-1], condor.ends(condor.through(3, calibration, 1_000))[-1]
    assert 0.7 < plain / ours < 1.3


def test_with_policies_a_bag_does_not_wait_for_the_volunteers_deadline() -> None:
    """g-n, a tenth of it: naive takes days, for what is lost runs again when three have passed."""
    calibration = replace(naive.NaiveCalibration(), tasks=300, grid=17, volunteers=30)
    assert naive.turnaround(naive.play(1, False, calibration)) > 72
    assert naive.turnaround(naive.play(1, True, calibration)) < 16


def test_bags_are_done_in_the_order_of_their_rank_however_many_there_are() -> None:
    """g-s, a tenth of it."""
    few, many = (scale.play(1, count, 120, 60) for count in (5, 20))
    for courses in (few, many):
        assert not scale.astray([course.began for course in courses])
        assert not scale.astray([course.left[2] for course in courses])
    times = [sum(course.ended - course.began for course in courses) / len(courses) for courses in (few, many)]
    assert max(times) < 1.3 * min(times)


def test_bundles_make_tails_longer_and_good_hosts_make_them_shorter() -> None:
    """g-8, a quarter of it."""
    calibration = replace(bags.FiveBagsCalibration(), tasks=300, grid=75, cluster=25)
    rows = bags.play(1, calibration)
    assert [holds(rows) for _, holds in bags.CLAIMS] == [True] * 4


SMALL = replace(replicas.ReplicasCalibration(), tasks=1_200, hosts=120, buffer=600)


def test_replicas_that_queue_are_slower_and_more_than_those_that_do_not() -> None:
    """g-r, a twenty-fifth of it: without limits most replicas come too late, and nobody withdraws them."""
    queued, ours = replicas.papers(1, replicas.POLICIES[0], SMALL), replicas.ours(1, replicas.POLICIES[0], SMALL)
    assert queued.replicas > ours.replicas and queued.waste > ours.waste
    assert ours.turnaround < queued.turnaround


def test_without_replicas_a_bag_waits_for_deadlines() -> None:
    restrictive, disabled = (replicas.papers(2, replicas.POLICIES[at], SMALL) for at in (1, 3))
    assert restrictive.turnaround < disabled.turnaround and not disabled.replicas


def test_what_a_host_has_lost_is_given_up_when_the_deadline_has_passed_and_not_before() -> None:
    world, work, record = replicas.platform(4, SMALL), replicas.work_of(4, SMALL), Record()
    record.attach(world.server)
    world.submit(work)
    world.run()
    lost = [each.end - each.granted for each in record.attempts() if each.outcome == O_LOST]
    assert len(lost) > 50 and set(lost) == {round(SMALL.deadline * replicas.MINUTE)}


def test_where_nothing_is_replicated_or_kept_back_both_servers_do_the_same() -> None:
    plain = next(policy for policy in replicas.POLICIES if replicas.one_server(policy))
    assert replicas.papers(3, plain, SMALL) == replicas.ours(3, plain, SMALL)


def test_a_bag_whose_tail_is_guessed_waits_for_volunteers_and_restrictive_rules_waste_less() -> None:
    """g-9, a fiftieth of it; that R1 is slower than R2 takes more jobs to show."""
    calibration = replace(several.CALIBRATION, tasks=600, grid=60, volunteers=440, buffer=600, few=160, left=40)
    rows = several.play(1, calibration)
    assert rows[1].turnaround >= rows[2].turnaround < rows[3].turnaround
    assert several.falls([row.replicas for row in rows[1:]]) and several.falls([row.waste for row in rows[1:]])
    assert [row.began for row in rows] == sorted(row.began for row in rows)


def test_a_study_whose_policies_cannot_be_evaluated_says_so_instead_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise RuntimeError("no classad2")

    monkeypatch.setattr(classads, "_programs", {})
    monkeypatch.setattr(classads, "_compiled", missing)
    with pytest.raises(BadInput, match="cannot be evaluated") as refused:
        replicas.papers(1, replicas.POLICIES[0], SMALL)
    assert refused.value.hint == "no classad2"
