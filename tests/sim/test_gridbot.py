"""The studies of the GridBot paper, small."""

from __future__ import annotations

from dataclasses import replace

from windfall.sim.experiments import condor


def test_pilots_that_keep_their_slots_beat_jobs_that_queue_one_by_one() -> None:
    """g-c with a third of the jobs."""
    for seed in (1, 2):
        assert condor.plain(seed, tasks=1_000)[-1] > 1.3 * condor.ends(condor.through(seed, tasks=1_000))[-1]


def test_a_pool_that_never_takes_a_slot_back_is_as_good_as_pilots() -> None:
    """So the difference is one of queuing anew for every job."""
    study = replace(condor.Study(), kept=1.0, gap=0.01, startup=0.01, preempted=1e9, days=0.0)
    plain, ours = condor.plain(3, study, 1_000)[-1], condor.ends(condor.through(3, study, 1_000))[-1]
    assert 0.7 < plain / ours < 1.3
