"""Parts: tasks appended with edges to earlier tasks, in whatever state, or to each other."""

from __future__ import annotations

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import TASK_STATES


def states(bench: Bench, bag: int) -> list[str]:
    found = bench.core.state.bags[bag]
    return [TASK_STATES[state] for state in found.tasks.np_state[: found.size]]


def end(bench: Bench, pilot: int, outcome: str = "succeeded", want: int = 1) -> list[int]:
    """Let the pilot take so many tasks and report them with this outcome; return the tasks."""
    taken = bench.take(pilot, want=want)
    why = "" if outcome == "succeeded" else "exit"
    bench.exchange(pilot, reports=[e.Report(attempt, outcome, why) for attempt, _ in taken])
    return [task for _, task in taken]


def test_appended_tasks_wait_for_a_running_one(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1), open=True), bench.pilot()
    ((attempt, _),) = bench.take(pilot)
    done = bench.part(bag, (0, 2), edges=[(0, 1), (1, 2)])
    assert (done.value, done.extra) == (1, 2)
    assert states(bench, bag) == ["active", "waiting", "waiting"]
    bench.exchange(pilot, reports=[e.Report(attempt)])
    assert states(bench, bag) == ["succeeded", "ready", "waiting"]
    assert end(bench, pilot) == [1] and end(bench, pilot) == [2]
    bench.do(e.Close(0, bag))
    assert bench.core.state.bags[bag].ended


def test_appended_task_does_not_wait_for_a_succeeded_one(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1), open=True), bench.pilot()
    end(bench, pilot)
    bench.part(bag, (0, 1), edges=[(0, 1)])
    assert states(bench, bag) == ["succeeded", "ready"]
    assert end(bench, pilot) == [1]


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_appended_tasks_behind_a_failed_one_are_cancelled_and_no_other(bench: Bench, how: str) -> None:
    bag, pilot = bench.submit(shape(1, retries=0), open=True), bench.pilot()
    if how == "failed":
        end(bench, pilot, "failed")
    else:
        bench.do(e.Cancel(0, bag, [0]))
    bench.part(bag, (0, 3), edges=[(0, 1), (1, 2)])
    assert states(bench, bag) == [how, "cancelled", "cancelled", "ready"]
    cancelled = [fact for fact in bench.facts if isinstance(fact, f.TasksCancelled)]
    assert [fact.why for fact in cancelled] == ["upstream"] and cancelled[0].runs == [(1, 2)]


def test_cancelled_part_runs_after_a_retry(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1, retries=0), open=True), bench.pilot()
    end(bench, pilot, "failed")
    bench.part(bag, (0, 1), edges=[(0, 1)])
    bench.do(e.Retry(0, bag, None))
    assert states(bench, bag) == ["ready", "waiting"]
    assert end(bench, pilot) == [0] and end(bench, pilot) == [1]


def test_a_part_has_tasks_of_several_targets(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(2), shape(0, name="b"), open=True), bench.pilot()
    bench.part(bag, (0, 2), (1, 3), edges=[(0, 2), (2, 4), (4, 3), (1, 6)])
    found = bench.core.state.bags[bag]
    assert [found.locate(task) for task in range(7)] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]
    assert [target.count for target in found.targets] == [4, 3]
    assert states(bench, bag) == ["ready", "ready", "waiting", "waiting", "waiting", "ready", "waiting"]
    seen = []
    while more := end(bench, pilot):
        seen += more
    assert sorted(seen) == list(range(7))
    assert seen.index(0) < seen.index(2) < seen.index(4) < seen.index(3) and seen.index(1) < seen.index(6)


def test_the_same_key_appends_once_and_another_body_is_refused(bench: Bench) -> None:
    bag = bench.submit(shape(1), open=True)
    done = bench.part(bag, (0, 2), edges=[(0, 1)], key="k")
    assert (bench.part(bag, (0, 2), edges=[(0, 1)], key="k", first=1).value, bench.facts) == (done.value, [])
    assert bench.part(bag, (0, 2), edges=[(0, 2)], key="k", first=1).error == "conflict"
    bench.restart(bench.snapshot())
    assert bench.part(bag, (0, 2), edges=[(0, 1)], key="k", first=1).value == done.value
    assert bench.core.state.bags[bag].size == 3


@pytest.mark.parametrize("pieces, edges, first, error", [
    ([(0, 1)], [], 0, "conflict"),  # another part was appended first
    ([(0, 1)], [(1, 0)], 1, "bad-input"),  # an earlier task cannot wait for a new one
    ([(0, 1)], [(2, 1)], 1, "bad-input"),
    ([(0, 1)], [(-1, 1)], 1, "bad-input"),
    ([(0, 1)], [(1, 1)], 1, "bad-input"),
    ([(7, 1)], [], 1, "bad-input"),
    ([(0, 0)], [], 1, "bad-input"),
    ([(0, -5), (0, 9)], [], 1, "bad-input"),
    ([], [], 1, "bad-input"),
])  # fmt: skip
def test_malformed_part_is_refused(bench: Bench, pieces: list, edges: list, first: int, error: str) -> None:
    bag = bench.submit(shape(1), open=True)
    assert bench.part(bag, *pieces, edges=edges, first=first).error == error
    assert bench.facts == [] and bench.core.state.bags[bag].size == 1


def test_closed_bag_takes_no_part(bench: Bench) -> None:
    assert bench.part(bench.submit(shape(1)), (0, 1)).error == "conflict"


def test_plain_appends_may_come_between_parts(bench: Bench) -> None:
    """The graph of a bag learns of plain tasks, which wait for no other."""
    bag = bench.submit(shape(1), open=True)
    bench.append(bag, 2)
    bench.part(bag, (0, 1), edges=[(2, 3)])
    bench.append(bag, 1)
    bench.part(bag, (0, 2), edges=[(4, 5), (3, 6)])
    assert states(bench, bag) == ["ready", "ready", "ready", "waiting", "ready", "waiting", "waiting"]
    assert bench.core.state.bags[bag].graph.after(2) == [3] and bench.core.state.bags[bag].graph.after(1) == []
    assert "waits for 1 other" in bench.explain(bag, 6)


def test_explain_says_that_an_idle_open_bag_may_take_more_tasks(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1), open=True), bench.pilot()
    end(bench, pilot)
    assert "may append more" in bench.explain(bag) and f"windfall cancel {bag} closes it" in bench.explain(bag)
    bench.do(e.Cancel(0, bag, None))
    assert bench.explain(bag) == "all tasks have ended" and bench.core.state.bags[bag].ended
