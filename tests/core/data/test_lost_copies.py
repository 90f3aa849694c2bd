"""Lost copies: tasks whose outputs are gone run again if another task still needs these."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.conftest import GONE_SILENT, Bench, granted, shape
from tests.core.data_bench import EDGES, DataBench, data
from windfall.core.messages import events as e
from windfall.core.messages.facts import DataShape
from windfall.core.messages.lifecycle import CANCELLED, SUCCEEDED
from windfall.core.state.copies import missing


def test_output_lost_with_its_host_is_made_again(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.tasks(bag) == "rswr" and bench.places(bag, 0) == []
    assert bench.run(b) == 0
    assert bench.tasks(bag) == "ssrr" and bench.places(bag, 0) == ["host here b"]


def test_lost_output_that_no_task_needs_is_not_made_again(bench: DataBench) -> None:
    bag, a = bench.pipelines(), bench.host("a")
    for _ in range(4):
        bench.run(a)
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.tasks(bag) == "ssss"


def test_output_with_a_second_copy_is_not_made_again(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(shape_=data(keeps=True)), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    ((attempt, task),) = granted(bench.ask(b))
    held = bench.core.state.bags[bag].data
    assert held is not None and task == 2
    held.add(0, bench.core.state.places["host here b"])
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.task(bag, 0) == "succeeded" and bench.places(bag, 0) == ["host here b"]


def test_lost_site_loses_the_copies_of_all_its_hosts(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    bench.do(e.LosePlace(0, "here"))
    assert bench.tasks(bag) == "rrww"


def test_failed_fetch_proves_that_the_copy_is_gone(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    ((attempt, task),) = granted(bench.ask(b))
    bench.report(b, attempt, "returned", "input")
    assert task == 2 and bench.tasks(bag) == "rswr"
    assert [bench.run(b), bench.run(b), bench.run(b)] == [0, 2, 3]
    assert bench.tasks(bag) == "ssss"


def test_running_task_goes_on_when_its_input_is_lost(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    ((attempt, _),) = granted(bench.ask(b))
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.tasks(bag) == "rsar"
    bench.report(b, attempt)
    assert bench.task(bag, 2) == "succeeded"


def test_failed_task_waits_for_its_lost_input(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    ((attempt, _),) = granted(bench.ask(b))
    bench.do(e.LosePlace(0, "here", "a"))
    bench.report(b, attempt, "failed", "exit", exit=1)
    assert bench.tasks(bag) == "rswr"


def test_retried_task_has_its_lost_input_made_again(bench: DataBench) -> None:
    """No task needed the copy when it was lost; the task that the user retries needs it again."""
    bag, a = bench.pipelines(), bench.host("a")
    bench.run(a), bench.run(a)
    bench.do(e.Cancel(0, bag, [2]))
    bench.run(a)
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.tasks(bag) == "sscs"
    bench.do(e.Retry(0, bag, [2]))
    assert bench.tasks(bag) == "rsws"


def test_late_result_of_an_older_generation_changes_nothing(bench: DataBench) -> None:
    bag, a = bench.pipelines(), bench.host("a")
    ((attempt, _),) = granted(bench.ask(a))
    bench.now += GONE_SILENT
    bench.step()
    b = bench.host("b")
    assert bench.run(b) == 0
    bench.do(e.LosePlace(0, "here", "b"))
    assert bench.task(bag) == "ready"
    bench.report(a, attempt)
    assert bench.task(bag) == "ready"


def test_target_waits_again_when_its_input_is_lost(bench: DataBench) -> None:
    first, second = shape(2, expect=3_000), shape(2, name="parse", after=[0], expect=600)
    event = e.Submit(0, "ann", "bag", "", b"", [first, second], False, "fcfs", False, EDGES, data=data())
    bag = int(bench.do(event).value)
    a, b = bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    assert bench.core.state.bags[bag].targets[1].pending == 0
    bench.do(e.LosePlace(0, "here", "a"))
    assert bench.core.state.bags[bag].targets[1].pending == 1
    assert [bench.run(b) for _ in range(3)] == [0, 2, 3]
    assert bench.tasks(bag) == "ssss"


def test_missing_outputs_of_a_long_chain_are_found_in_one_pass(bench: Bench) -> None:
    n = 200_000
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1).astype("<i4").tobytes()
    files = DataShape(leaves=np.ones(n, "<i8").tobytes(), leave_files=np.ones(n, "<i4").tobytes())
    event = e.Submit(9, "ann", "bag", "", b"", [shape(n)], False, "fcfs", False, edges, data=files)
    bench.core.step(bench.now, [event])
    found = bench.core.state.bags[1]
    found.tasks.np_state[: n - 1] = SUCCEEDED
    found.tasks.np_state[n // 2] = CANCELLED  # no task needs the outputs before it
    assert missing(found).tolist() == list(range(n // 2 + 1, n - 1))


@pytest.fixture
def bench() -> DataBench:
    return DataBench()
