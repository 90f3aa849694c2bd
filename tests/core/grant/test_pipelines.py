"""Pipelines: one pilot gets all stages in one grant; after a failure the later stages wait again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import GONE_SILENT, Bench, shape
from windfall.core.messages import effects as x, events as e, facts as f


def stages(count: int = 2, number: int = 2, **more: Any) -> list[f.TargetShape]:
    return [shape(count, name=f"s{place}", previous_stage=place - 1, **more) for place in range(number)]


def groups(answer: x.ExchangeReply | None) -> list[f.Group]:
    assert answer is not None
    return [group for _, granted in answer.grants for group in granted]


def test_stages_go_together_and_take_one_slot(bench: Bench) -> None:
    bag = bench.submit(*stages(3, 3))
    pilot = bench.pilot(cores=2)
    made = groups(bench.exchange(pilot, want=100))
    assert [g.tasks for g in made] == [[0], [3], [6], [1], [4], [7]]
    assert [g.chain for g in made] == [0, 0, 0, 1, 1, 1]
    assert (
        made[1].prerequisites == made[0].attempts
        and made[2].prerequisites == made[1].attempts
        and not made[0].prerequisites
    )
    assert bench.core.state.pilots[pilot].load == 2_000
    assert bench.tasks(bag) == "aaraawaaw"


def test_next_stage_goes_on_at_its_pilot_after_a_success(bench: Bench) -> None:
    bag = bench.submit(*stages(1))
    pilot = bench.pilot()
    (first, _), (second, _) = bench.take(pilot)
    assert "to follow the task that it is behind" in bench.explain(bag, 1)
    bench.report(pilot, first)
    assert bench.tasks(bag) == "sa" and "not known to have started" in bench.explain(bag, 1)
    bench.report(pilot, second)
    assert bench.tasks(bag) == "ss" and bench.core.state.bags[bag].ended


def test_second_stage_that_fails_in_the_report_of_the_firsts_success_is_ready_again(bench: Bench) -> None:
    bag = bench.submit(*stages(1))
    pilot = bench.pilot()
    (first, _), (second, _) = bench.take(pilot)
    bench.exchange(pilot, reports=[e.Report(first), e.Report(second, "failed", "exit")])
    assert bench.tasks(bag) == "sr"  # the first stage has succeeded, so the second does not wait


def test_later_stages_wait_again_after_a_failure(bench: Bench) -> None:
    bag = bench.submit(*stages(1, 3))
    pilot = bench.pilot()
    (first, _), (second, _), (third, _) = bench.take(pilot)
    bench.exchange(pilot, reports=[
        e.Report(first, "failed", "exit"), *(e.Report(a, "returned", "behind") for a in (second, third)),
    ])
    assert bench.tasks(bag) == "rww"
    assert [g.tasks for g in groups(bench.exchange(bench.pilot(), want=10))] == [[0], [1], [2]]


def test_failure_without_retries_cancels_the_later_stages(bench: Bench) -> None:
    bag = bench.submit(*stages(1, 3, retries=0))
    pilot = bench.pilot()
    (first, _), (second, _), _ = bench.take(pilot)
    told = bench.exchange(pilot, reports=[e.Report(first, "failed", "exit")])
    assert bench.tasks(bag) == "fcc"
    assert told is not None and second in told.cancel


def test_stage_that_failed_is_granted_without_the_stage_that_succeeded(bench: Bench) -> None:
    bag = bench.submit(*stages(1))
    pilot = bench.pilot()
    (first, _), (second, _) = bench.take(pilot)
    bench.report(pilot, first)
    bench.report(pilot, second, "failed", "exit")
    assert bench.tasks(bag) == "sr"
    assert [(g.tasks, g.prerequisites) for g in groups(bench.exchange(bench.pilot(), want=10))] == [([1], [])]


@pytest.mark.parametrize("done", [False, True])
def test_stages_of_a_lost_pilot_are_ready_or_waiting_as_their_prerequisites_say(bench: Bench, done: bool) -> None:
    bag = bench.submit(*stages(1))
    pilot = bench.pilot()
    (first, _), _ = bench.take(pilot)
    if done:
        bench.report(pilot, first)
    bench.wait(GONE_SILENT)
    assert bench.tasks(bag) == ("sr" if done else "rw")
    assert [g.tasks for g in groups(bench.exchange(bench.pilot(), want=10))] == ([[1]] if done else [[0], [1]])


def test_pilot_death_is_charged_to_the_running_stage_only(bench: Bench) -> None:
    bag = bench.submit(*stages(1))
    pilot = bench.pilot()
    bench.take(pilot)
    bench.step(e.Gone(0, pilot))
    assert bench.core.state.bags[bag].tasks.np_deaths[:2].tolist() == [1, 0]


def test_a_late_success_of_the_second_stage_counts(bench: Bench) -> None:
    """The report of the second stage may arrive before that of the first."""
    bag = bench.submit(*stages(1))
    pilot = bench.pilot()
    (first, _), (second, _) = bench.take(pilot)
    bench.wait(GONE_SILENT)
    bench.exchange(pilot, held=[first, second])
    bench.report(pilot, second)
    assert bench.tasks(bag) == "rs"
    bench.report(pilot, first)
    assert bench.tasks(bag) == "ss"


def test_a_grant_that_was_lost_is_sent_again_as_it_was(bench: Bench) -> None:
    bench.submit(*stages(4, 2, batch=2))
    pilot = bench.pilot(cores=2)
    first, again = bench.exchange(pilot, want=100), bench.exchange(pilot, ack=0)
    assert first is not None and again is not None
    assert sorted(groups(first), key=lambda g: g.tasks) == sorted(groups(again), key=lambda g: g.tasks)
    assert [g.tasks for g in groups(first)] == [[0, 1], [4, 5], [2, 3], [6, 7]]


def test_a_stage_that_does_not_fit_is_not_taken_along(bench: Bench) -> None:
    big = shape(1, name="big", previous_stage=0, cores=4)
    bag = bench.submit(shape(1), big)
    small = bench.pilot(cores=1)
    ((first, _),) = bench.take(small)
    bench.report(small, first)
    assert bench.tasks(bag) == "sr"
    assert [task for _, task in bench.take(bench.pilot(cores=4))] == [1]


def test_pausing_a_bag_recalls_the_stage_that_has_not_started(bench: Bench) -> None:
    bag = bench.submit(*stages(1))
    pilot = bench.pilot()
    (first, _), (second, _) = bench.take(pilot)
    bench.exchange(pilot, started=[first])
    bench.step(e.Pause(0, bag, True))
    told = bench.exchange(pilot)
    assert told is not None and told.recall == [second]
    bench.report(pilot, second, "returned", "recall")
    assert bench.tasks(bag) == "aw"


def test_granted_pipelines_survive_a_restart(bench: Bench) -> None:
    bag = bench.submit(*stages(3))
    pilot = bench.pilot(cores=2)
    held = bench.take(pilot)
    bench.restart(bench.snapshot())
    bench.report(pilot, held[0][0])
    bench.restart()
    assert bench.tasks(bag) == "saraaw"
    assert bench.core.state.pilots[pilot].load == 2_000


@pytest.mark.parametrize("targets", [
    [shape(2), shape(3, previous_stage=0)],
    [shape(2, previous_stage=1), shape(2)],
    [shape(2), shape(2, previous_stage=0), shape(2, previous_stage=0)],
    [shape(2, batch=2), shape(2, previous_stage=0, batch=3)],
])  # fmt: skip
def test_targets_that_form_no_pipeline_are_refused(bench: Bench, targets: list[f.TargetShape]) -> None:
    event = e.Submit(0, "ann", "bag", "", b"", targets, False, "fcfs", False)
    assert isinstance(bench.do(event), x.Refuse)


def test_a_pipeline_is_not_extended(bench: Bench) -> None:
    bag = bench.submit(*stages(1))
    refused = bench.do(e.Append(0, "ann", bag, 0, 1, "", b"", extends=True))
    assert isinstance(refused, x.Refuse) and "equally many" in refused.message
