"""The studies of the GridBot paper, each with a part of its jobs and hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windfall.core.expressions import classads
from windfall.core.messages.lifecycle import O_LOST
from windfall.errors import BadInput
from windfall.sim.experiments import bags, condor, naive, replicas, scale, several
from windfall.sim.record import Record


def test_pilots_finish_sooner_than_jobs_that_queue_one_by_one() -> None:
    """Run g-c with a third of the jobs."""
    for seed in (1, 2):
        record = condor.run_through_windfall(seed, tasks=1_000)
        assert condor.run_directly(seed, tasks=1_000)[-1] > 1.3 * condor.accepted_ends(record)[-1]


def test_pilots_gain_nothing_on_pool_that_never_takes_slot_back() -> None:
    """Pilots win by queuing once instead of once per job: on such a pool jobs do not queue again either."""
    calibration = replace(condor.CondorCalibration(), kept=1.0, gap=0.01, startup=0.01, preempted=1e9, days=0.0)
    record = condor.run_through_windfall(3, calibration, 1_000)
    assert 0.7 < condor.run_directly(3, calibration, 1_000)[-1] / condor.accepted_ends(record)[-1] < 1.3


def test_policies_spare_bag_the_volunteers_deadline() -> None:
    """Run a tenth of g-n: the naive run takes days, for a lost task runs again when three days have passed."""
    calibration = replace(naive.NaiveCalibration(), tasks=300, grid=17, volunteers=30)
    assert naive.turnaround(naive.play(1, False, calibration)) > 72
    assert naive.turnaround(naive.play(1, True, calibration)) < 16


def test_bags_run_in_order_of_rank_with_like_turnaround_for_5_and_20_bags() -> None:
    """Run a tenth of g-s."""
    few, many = (scale.play(1, count, 120, 60) for count in (5, 20))
    for courses in (few, many):
        assert not scale.count_inversions([course.began for course in courses])
        assert not scale.count_inversions([course.left[2] for course in courses])
    times = [sum(course.ended - course.began for course in courses) / len(courses) for courses in (few, many)]
    assert max(times) < 1.3 * min(times)


def test_all_claims_of_figure_8_hold_in_small_run() -> None:
    """Run a quarter of g-8: bundles make tails longer, hosts that lose little make them shorter."""
    calibration = replace(bags.FiveBagsCalibration(), tasks=300, grid=75, cluster=25)
    rows = bags.play(1, calibration)
    assert [holds(rows) for _, holds in bags.CLAIMS] == [True] * 4


SMALL = replace(replicas.ReplicasCalibration(), tasks=1_200, hosts=120, buffer=600)


def test_queued_replicas_are_slower_and_more_wasteful_than_ours() -> None:
    """Run a twenty-fifth of g-r: without limits most queued replicas come too late, and stay in the queue."""
    permissive = replicas.POLICIES[0]
    queued = replicas.run_on_papers_server(1, permissive, SMALL)
    ours = replicas.run_on_our_server(1, permissive, SMALL)
    assert queued.replicas > ours.replicas and queued.waste > ours.waste
    assert ours.turnaround < queued.turnaround


def test_bag_without_replicas_waits_for_deadlines_of_lost_jobs() -> None:
    restrictive, disabled = (replicas.run_on_papers_server(2, replicas.POLICIES[at], SMALL) for at in (1, 3))
    assert restrictive.turnaround < disabled.turnaround and not disabled.replicas


def test_lost_attempt_is_given_up_exactly_at_deadline() -> None:
    world, work, record = replicas.platform(4, SMALL), replicas.work_of(4, SMALL), Record()
    record.attach(world.server)
    world.submit(work)
    world.run()
    lost = [each.end - each.granted for each in record.attempts() if each.outcome == O_LOST]
    assert len(lost) > 50 and set(lost) == {round(SMALL.deadline * replicas.MINUTE)}


def test_both_servers_agree_without_replicas_and_tail() -> None:
    plain = next(policy for policy in replicas.POLICIES if replicas.servers_agree(policy))
    assert replicas.run_on_papers_server(3, plain, SMALL) == replicas.run_on_our_server(3, plain, SMALL)


def test_rules_of_figure_9_order_turnaround_replicas_and_waste() -> None:
    """Run a fiftieth of g-9.  R1's longer turnaround than R2's needs more jobs to show."""
    calibration = replace(several.CALIBRATION, tasks=600, grid=60, volunteers=440, buffer=600, few=160, left=40)
    rows = several.play(1, calibration)
    assert rows[1].turnaround >= rows[2].turnaround < rows[3].turnaround
    assert several.is_falling([row.replicas for row in rows[1:]])
    assert several.is_falling([row.waste for row in rows[1:]])
    assert [row.began for row in rows] == sorted(row.began for row in rows)


def test_study_refuses_policies_that_cannot_be_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise RuntimeError("no classad2")

    monkeypatch.setattr(classads, "_programs", {})
    monkeypatch.setattr(classads, "_compiled", missing)
    with pytest.raises(BadInput, match="cannot be evaluated") as refused:
        replicas.run_on_papers_server(1, replicas.POLICIES[0], SMALL)
    assert refused.value.hint == "no classad2"
