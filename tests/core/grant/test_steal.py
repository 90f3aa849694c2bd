"""Work stealing: idle pilots are granted tasks that the core recalls from pilots with more than they can run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, answers, granted, shape
from windfall.core.messages import events as e, facts as f


def test_prefetched_tasks_are_recalled_for_an_idle_pilot(bench: Bench) -> None:
    bag, rich, poor = bench.submit(shape(5, expect=100)), bench.pilot(), bench.pilot()
    held = bench.take(rich)
    assert len(held) == 5
    bench.exchange(rich, started=[held[0][0]], wait=9_000)
    assert bench.exchange(poor, want=3, wait=9_000) is None
    (told,) = answers(bench.effects, rich)
    assert told.recall and set(told.recall) <= {attempt for attempt, _ in held[1:]}
    bench.exchange(rich, reports=[e.Report(attempt, "returned", "recall") for attempt in told.recall])
    (fed,) = answers(bench.effects, poor)
    assert granted(fed) and bench.tasks(bag).count("a") + bench.tasks(bag).count("r") == 5


def test_task_is_recalled_for_a_pilot_whose_report_leaves_it_idle_beside_its_poll(bench: Bench) -> None:
    bench.submit(shape(3, expect=100))
    (mine, _), *_ = bench.take(poor := bench.pilot(), want=1)
    held = bench.take(rich := bench.pilot())
    bench.exchange(rich, started=[held[0][0]], wait=9_000)
    assert bench.exchange(poor, want=3, wait=9_000) is None and not answers(bench.effects, rich)
    bench.report(poor, mine)
    (told,) = answers(bench.effects, rich)
    assert told.recall == [held[1][0]]


def test_recalled_task_goes_to_the_pilot_it_was_recalled_for(bench: Bench) -> None:
    bag, rich, poor = bench.submit(shape(2, expect=100)), bench.pilot(), bench.pilot()
    (runs, _), (spare, _) = bench.take(rich)
    bench.exchange(rich, started=[runs], wait=9_000)
    bench.exchange(poor, want=3, wait=9_000)
    bench.exchange(rich, want=3, reports=[e.Report(spare, "returned", "recall")])
    (fed,) = answers(bench.effects, poor)
    assert len(granted(fed)) == 1 and bench.tasks(bag) == "aa"


def test_recall_of_a_task_that_has_started_is_forgotten(bench: Bench) -> None:
    bench.submit(shape(2, expect=100))
    rich, poor = bench.pilot(), bench.pilot()
    (a, _), (b, _) = bench.take(rich)
    bench.exchange(poor, want=3, wait=9_000)
    assert bench.exchange(rich).recall == [b]
    assert bench.exchange(rich, started=[a, b]).recall == []


@pytest.mark.parametrize(("policy", "limit"), [({"per-host": 'Host.Name == "rich" ? 100 : 0'}, 0), ({}, 3_600_000)])
def test_task_is_not_recalled_for_a_pilot_that_could_not_take_it(policy: dict[str, str], limit: int) -> None:
    b = Bench(lease=3_600_000, silence=36_000_000)
    b.submit(shape(4, limit=limit), policy=policy)
    rich, poor = b.pilot(cores=2, host="rich"), b.pilot(cores=2, host="poor")
    held = b.take(rich)
    assert len(held) == 4
    b.exchange(rich, started=[attempt for attempt, _ in held[:2]])
    b.exchange(poor, want=2, wait=20_000, left=60_000)
    assert not b.exchange(rich).recall


def test_task_is_recalled_only_for_a_pilot_that_matches() -> None:
    b = Bench()
    b.submit(shape(2), policy={"requirements": 'Host.Name == "rich"'})
    rich, poor, able = b.pilot(host="rich"), b.pilot(host="poor"), b.pilot(host="rich")
    assert len(b.take(rich)) == 2 and b.core.state.overloaded_pilots
    b.exchange(poor, want=1, wait=20_000)
    assert not b.core.state.pilots[rich].recalling
    b.exchange(able, want=1, wait=20_000)
    assert b.core.state.pilots[rich].recalling


def test_pilot_that_holds_a_fitting_task_is_found_among_many() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(140, memory=3 << 30, expect=10))
    rich = [b.pilot(host=f"rich{n}") for n in range(70)]
    for pilot in rich:
        assert len(b.take(pilot, 2)) == 2
    b.submit(shape(2, expect=10))
    last = b.pilot(host="last")
    assert len(b.take(last, 2)) == 2
    poor = b.pilot(host="poor", memory=1 << 30)
    b.exchange(poor, want=1, wait=HOUR)
    assert [pilot for pilot in (*rich, last) if b.core.state.pilots[pilot].recalling] == [last]


def batched(count: int = 20, batch: int = 4, **more: Any) -> f.TargetShape:
    return shape(count, batch=batch, **more)


def test_batches_are_recalled_whole_and_only_before_they_start(bench: Bench) -> None:
    bench.submit(batched(16, expect=30))  # short: five batches would be prefetched
    rich, poor = bench.pilot(), bench.pilot()
    held = bench.take(rich)
    assert len(held) == 16
    bench.exchange(rich, started=[held[0][0]])
    assert bench.exchange(poor, want=100, wait=20_000) is None
    told = bench.exchange(rich)
    assert told is not None
    by_attempt = dict(held)
    assert sorted(by_attempt[a] for a in told.recall) == [8, 9, 10, 11, 12, 13, 14, 15]


def test_recall_of_a_batch_is_withdrawn_when_one_of_its_tasks_has_started(bench: Bench) -> None:
    bench.submit(batched(8, expect=30))
    rich, poor = bench.pilot(), bench.pilot()
    held = bench.take(rich)
    assert bench.exchange(poor, want=100, wait=20_000) is None
    told = bench.exchange(rich)
    assert told is not None and len(told.recall) == 4
    begun = min(told.recall, key=dict(held).__getitem__)
    told = bench.exchange(rich, started=[begun])
    assert told is not None and told.recall == []
