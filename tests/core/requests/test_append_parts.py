"""Tasks that are appended with what they wait for: earlier ones, whatever became of them, or each other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.core.conftest import Bench, shape
from windfall.core.decide.exchange import stranded
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import CANCELLED, READY, SUCCEEDED, TASK_STATES, WAITING
from windfall.core.state.columns import CHUNK
from windfall.core.state.graph import Graph, graph_of


def states(bench: Bench, bag: int) -> list[str]:
    found = bench.core.state.bags[bag]
    return [TASK_STATES[state] for state in found.tasks.np_state[: found.size]]


def end(bench: Bench, pilot: int, outcome: str = "succeeded", want: int = 1) -> list[int]:
    """Take so many, and end them so; the tasks."""
    taken = bench.take(pilot, want=want)
    why = "" if outcome == "succeeded" else "exit"
    bench.exchange(pilot, reports=[e.Report(attempt, outcome, why) for attempt, _ in taken])
    return [task for _, task in taken]


def test_they_wait_for_what_runs(bench: Bench) -> None:
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


def test_what_has_succeeded_is_not_waited_for(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1), open=True), bench.pilot()
    end(bench, pilot)
    bench.part(bag, (0, 1), edges=[(0, 1)])
    assert states(bench, bag) == ["succeeded", "ready"]
    assert end(bench, pilot) == [1]


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_what_waits_for_a_failure_is_cancelled_and_nothing_else(bench: Bench, how: str) -> None:
    bag, pilot = bench.submit(shape(1, retries=0), open=True), bench.pilot()
    if how == "failed":
        end(bench, pilot, "failed")
    else:
        bench.do(e.Cancel(0, bag, [0]))
    bench.part(bag, (0, 3), edges=[(0, 1), (1, 2)])
    assert states(bench, bag) == [how, "cancelled", "cancelled", "ready"]
    cancelled = [fact for fact in bench.facts if isinstance(fact, f.TasksCancelled)]
    assert [fact.why for fact in cancelled] == ["upstream"] and cancelled[0].runs == [(1, 2)]


def test_all_of_them_can_be_retried(bench: Bench) -> None:
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
    ([(0, 1)], [], 0, "conflict"),  # somebody else was there first
    ([(0, 1)], [(1, 0)], 1, "bad-input"),  # a task that was there cannot wait any more
    ([(0, 1)], [(2, 1)], 1, "bad-input"),
    ([(0, 1)], [(-1, 1)], 1, "bad-input"),
    ([(0, 1)], [(1, 1)], 1, "bad-input"),
    ([(7, 1)], [], 1, "bad-input"),
    ([(0, 0)], [], 1, "bad-input"),
    ([(0, -5), (0, 9)], [], 1, "bad-input"),
    ([], [], 1, "bad-input"),
])  # fmt: skip
def test_what_cannot_be_is_refused(bench: Bench, pieces: list, edges: list, first: int, error: str) -> None:
    bag = bench.submit(shape(1), open=True)
    assert bench.part(bag, *pieces, edges=edges, first=first).error == error
    assert bench.facts == [] and bench.core.state.bags[bag].size == 1


def test_a_closed_bag_takes_none(bench: Bench) -> None:
    assert bench.part(bench.submit(shape(1)), (0, 1)).error == "conflict"


def test_plain_tasks_may_come_between(bench: Bench) -> None:
    """A graph that was made before knows of tasks that wait for nothing."""
    bag = bench.submit(shape(1), open=True)
    bench.append(bag, 2)
    bench.part(bag, (0, 1), edges=[(2, 3)])
    bench.append(bag, 1)
    bench.part(bag, (0, 2), edges=[(4, 5), (3, 6)])
    assert states(bench, bag) == ["ready", "ready", "ready", "waiting", "ready", "waiting", "waiting"]
    assert bench.core.state.bags[bag].graph.after(2) == [3] and bench.core.state.bags[bag].graph.after(1) == []
    assert "waits for 1 other" in bench.explain(bag, 6)


def test_an_open_bag_that_has_nothing_to_do_says_so(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1), open=True), bench.pilot()
    end(bench, pilot)
    assert "may append more" in bench.explain(bag) and f"windfall cancel {bag} closes it" in bench.explain(bag)
    bench.do(e.Cancel(0, bag, None))
    assert bench.explain(bag) == "all tasks have ended" and bench.core.state.bags[bag].ended


def test_only_new_edges_are_saved_again(bench: Bench) -> None:
    bag = bench.submit(shape(1), open=True)
    bench.part(bag, (0, CHUNK), edges=[(0, task) for task in range(1, CHUNK + 1)])
    _, chunks, _ = bench.core.snapshot()
    bench.core.saved()
    assert f"b{bag}/e0" in chunks and f"b{bag}/e1" not in chunks
    bench.part(bag, (0, 1), edges=[(1, CHUNK + 1)])
    _, chunks, _ = bench.core.snapshot()
    assert [name for name in chunks if "/e" in name] == [f"b{bag}/e1"]
    bench.core.saved()
    bench.do(e.Cancel(0, bag, None))
    bench.do(e.Remove(0, bag))
    assert {f"b{bag}/e0", f"b{bag}/e1"} <= set(bench.core.snapshot()[2])


def test_a_graph_that_grew_is_the_one_that_was_made_at_once() -> None:
    r = random.Random(7)
    for _ in range(50):
        sizes = [r.randrange(1, 9) for _ in range(5)]
        graph, had = Graph(0), np.zeros(0, np.uint8)
        pairs: list[tuple[int, int]] = []
        for size in sizes:
            first = len(had)
            had = np.concatenate([had, np.full(size, READY, np.uint8)])
            had[:first] = [r.choice((READY, SUCCEEDED, WAITING, CANCELLED)) for _ in range(first)]
            graph.grow(size)
            end = first + size
            new = [(b, a) for a in range(first, end) for b in range(end) if b != a and r.random() < 0.3]
            graph.add(np.array(new, np.int32).reshape(-1, 2), had)
            pairs += new
        whole = graph_of(np.array(pairs, np.int32).reshape(-1, 2), had)
        expected: dict[int, list[int]] = {}
        for before, after in pairs:
            expected.setdefault(before, []).append(after)
        assert all(graph.after(task) == whole.after(task) == expected.get(task, []) for task in range(len(had)))
        assert graph.edges.pairs().tolist() == [list(pair) for pair in pairs]


def test_after_a_failure_what_failed_before_is_not_walked_from_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a hundred thousand failures would cost more than the one before it."""
    fronts: list[int] = []
    walk = stranded.stranded_tasks
    monkeypatch.setattr(stranded, "stranded_tasks", lambda graph, states, front: (
        fronts.extend(front), walk(graph, states, front))[1])
    pairs = np.array([(task, 30 + task) for task in range(30)], "<i4").tobytes()
    bag, pilot = bench.submit(shape(30, retries=0), shape(30), edges=pairs), bench.pilot(cores=30)
    for attempt, task in bench.take(pilot, want=30):
        fronts.clear()
        bench.exchange(pilot, reports=[e.Report(attempt, "failed", "exit")])
        assert task in fronts and set(fronts) <= {task, 30 + task}
    assert bench.core.state.bags[bag].counts[CANCELLED] == 30
