"""Work stealing: idle pilots are granted tasks that the core recalls from pilots with more than they can run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, answers, granted, shape
from windfall.core.messages import events as e, facts as f


def test_prefetched_tasks_are_recalled_for_an_idle_pilot(bench: Bench) -> None:
    bag, donor, thief = bench.submit(shape(5, expect=100)), bench.pilot(), bench.pilot()
    held = bench.take(donor)
    assert len(held) == 5
    bench.exchange(donor, started=[held[0][0]], wait=9_000)
    assert bench.exchange(thief, want=3, wait=9_000) is None
    (told,) = answers(bench.effects, donor)
    assert told.recall and set(told.recall) <= {attempt for attempt, _ in held[1:]}
    bench.exchange(donor, reports=[e.Report(attempt, "returned", "recall") for attempt in told.recall])
    (fed,) = answers(bench.effects, thief)
    assert granted(fed) and bench.tasks(bag).count("a") + bench.tasks(bag).count("r") == 5


def test_task_is_recalled_for_a_pilot_whose_report_leaves_it_idle_beside_its_poll(bench: Bench) -> None:
    bench.submit(shape(3, expect=100))
    (mine, _), *_ = bench.take(thief := bench.pilot(), want=1)
    held = bench.take(donor := bench.pilot())
    bench.exchange(donor, started=[held[0][0]], wait=9_000)
    assert bench.exchange(thief, want=3, wait=9_000) is None and not answers(bench.effects, donor)
    bench.report(thief, mine)
    (told,) = answers(bench.effects, donor)
    assert told.recall == [held[1][0]]


def test_recalled_task_goes_to_the_pilot_it_was_recalled_for(bench: Bench) -> None:
    bag, donor, thief = bench.submit(shape(2, expect=100)), bench.pilot(), bench.pilot()
    (runs, _), (spare, _) = bench.take(donor)
    bench.exchange(donor, started=[runs], wait=9_000)
    bench.exchange(thief, want=3, wait=9_000)
    bench.exchange(donor, want=3, reports=[e.Report(spare, "returned", "recall")])
    (fed,) = answers(bench.effects, thief)
    assert len(granted(fed)) == 1 and bench.tasks(bag) == "aa"


def test_recall_of_a_task_that_has_started_is_forgotten(bench: Bench) -> None:
    bench.submit(shape(2, expect=100))
    donor, thief = bench.pilot(), bench.pilot()
    (a, _), (b, _) = bench.take(donor)
    bench.exchange(thief, want=3, wait=9_000)
    assert bench.exchange(donor).recall == [b]
    assert bench.exchange(donor, started=[a, b]).recall == []


@pytest.mark.parametrize(("policy", "limit"), [({"per-host": 'Host.Name == "donor" ? 100 : 0'}, 0), ({}, 3_600_000)])
def test_task_is_not_recalled_for_a_pilot_that_could_not_take_it(policy: dict[str, str], limit: int) -> None:
    b = Bench(lease=3_600_000, silence=36_000_000)
    b.submit(shape(4, limit=limit), policy=policy)
    donor, thief = b.pilot(cores=2, host="donor"), b.pilot(cores=2, host="thief")
    held = b.take(donor)
    assert len(held) == 4
    b.exchange(donor, started=[attempt for attempt, _ in held[:2]])
    b.exchange(thief, want=2, wait=20_000, left=60_000)
    assert not b.exchange(donor).recall


def test_task_is_recalled_only_for_a_pilot_that_matches() -> None:
    b = Bench()
    b.submit(shape(2), policy={"requirements": 'Host.Name == "donor"'})
    donor, thief, able = b.pilot(host="donor"), b.pilot(host="thief"), b.pilot(host="donor")
    assert len(b.take(donor)) == 2 and b.core.state.overloaded_pilots
    b.exchange(thief, want=1, wait=20_000)
    assert not b.core.state.pilots[donor].recalling
    b.exchange(able, want=1, wait=20_000)
    assert b.core.state.pilots[donor].recalling


def test_pilot_that_holds_a_fitting_task_is_found_among_many() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(140, memory=3 << 30, expect=10))
    donors = [b.pilot(host=f"donor{n}") for n in range(70)]
    for pilot in donors:
        assert len(b.take(pilot, 2)) == 2
    b.submit(shape(2, expect=10))
    last = b.pilot(host="last")
    assert len(b.take(last, 2)) == 2
    thief = b.pilot(host="thief", memory=1 << 30)
    b.exchange(thief, want=1, wait=HOUR)
    assert [pilot for pilot in (*donors, last) if b.core.state.pilots[pilot].recalling] == [last]


def batched(count: int = 20, batch: int = 4, **more: Any) -> f.TargetShape:
    return shape(count, batch=batch, **more)


def test_batches_are_recalled_whole_and_only_before_they_start(bench: Bench) -> None:
    bench.submit(batched(16, expect=30))  # short: five batches would be prefetched
    donor, thief = bench.pilot(), bench.pilot()
    held = bench.take(donor)
    assert len(held) == 16
    bench.exchange(donor, started=[held[0][0]])
    assert bench.exchange(thief, want=100, wait=20_000) is None
    told = bench.exchange(donor)
    assert told is not None
    by_attempt = dict(held)
    assert sorted(by_attempt[a] for a in told.recall) == [8, 9, 10, 11, 12, 13, 14, 15]


def test_recall_of_a_batch_is_withdrawn_when_one_of_its_tasks_has_started(bench: Bench) -> None:
    bench.submit(batched(8, expect=30))
    donor, thief = bench.pilot(), bench.pilot()
    held = bench.take(donor)
    assert bench.exchange(thief, want=100, wait=20_000) is None
    told = bench.exchange(donor)
    assert told is not None and len(told.recall) == 4
    begun = min(told.recall, key=dict(held).__getitem__)
    told = bench.exchange(donor, started=[begun])
    assert told is not None and told.recall == []
