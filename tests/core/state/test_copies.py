"""Copies: where outputs and staged inputs lie, and from where a pilot fetches its inputs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.conftest import granted, shape
from tests.core.data_bench import EDGES, LAN, DataBench, column, data, moves
from windfall.core.messages import events as e


@pytest.fixture
def bench() -> DataBench:
    return DataBench()


def test_input_from_outside_comes_from_home(bench: DataBench) -> None:
    bench.pipelines()
    assert moves(bench.ask(bench.host("a"))) == [(-1, "home", 1_000)]


def test_staged_input_is_not_fetched(bench: DataBench) -> None:
    bench.pipelines(shape_=data(staged=["here"]))
    assert moves(bench.ask(bench.host("a"))) == []


def test_input_is_fetched_from_the_nearest_place_where_it_was_staged(bench: DataBench) -> None:
    for name in ("far", "near"):
        bench.do(e.AddSite(0, name, "ann", "local"))
    bench.do(e.KnowLink(0, "near", "here", *LAN))
    bench.pipelines(shape_=data(staged=["far", "near"]))
    assert moves(bench.ask(bench.host("a"))) == [(-1, "site near", 1_000)]


def test_a_success_leaves_a_copy_where_it_ran(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    assert (bench.run(a), bench.run(b)) == (0, 1)
    assert bench.places(bag, 0) == ["host here a"] and bench.places(bag, 1) == ["host here b"]
    assert moves(bench.ask(b)) == [(0, "host here a", 80_000)]  # fcfs ignores where the data lies
    assert moves(bench.ask(a)) == [(1, "host here b", 80_000)]


def test_hosts_of_a_site_may_share_their_copies(bench: DataBench) -> None:
    bench.do(e.AddSite(0, "cluster", "ann", "local", disk=True))
    bag, a, b = bench.pipelines(), bench.host("a", "cluster"), bench.host("b", "cluster")
    bench.run(a), bench.run(b)
    assert bench.places(bag, 0) == ["site cluster"]
    assert moves(bench.ask(b)) == []


def test_reported_size_of_an_output_counts(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(), bench.host("a"), bench.host("b")
    bench.run(a, left=(5_000, 2))
    bench.run(b)
    (move,) = bench.ask(b).transfers
    assert (move.task, move.size, move.files) == (0, 5_000, 2)
    assert bench.core.state.bags[bag].data is not None


@pytest.mark.parametrize("left", [(-1, 1), (1 << 61, 1), (5, 1 << 31), (5, -1)])
def test_impossible_size_of_an_output_is_ignored(bench: DataBench, left: tuple[int, int]) -> None:
    bench.pipelines()
    a, b = bench.host("a"), bench.host("b")
    bench.run(a, left=left), bench.run(b)
    assert moves(bench.ask(b)) == [(0, "host here a", 80_000)]


def test_transfers_are_counted_until_the_attempt_ends(bench: DataBench) -> None:
    bag, a = bench.pipelines(), bench.host("a")
    ((attempt, _),) = granted(bench.ask(a))
    assert bench.core.state.readers_of == {"home": 1} and attempt in bench.core.state.transfers_of
    bench.report(a, attempt, "failed", "exit", exit=1)
    assert not bench.core.state.readers_of and not bench.core.state.transfers_of
    assert bench.task(bag) == "ready"


def test_a_grant_that_is_sent_again_says_again_what_to_fetch(bench: DataBench) -> None:
    bench.pipelines()
    a = bench.host("a")
    first = bench.ask(a)
    assert moves(bench.ask(a, ack=0)) == moves(first) != []


def test_fetched_input_that_is_kept_is_a_further_copy(bench: DataBench) -> None:
    bag, a, b = bench.pipelines(shape_=data(keeps=True)), bench.host("a"), bench.host("b")
    bench.run(a), bench.run(b)
    assert bench.run(b) == 2
    assert bench.places(bag, 0) == ["host here a", "host here b"]


def test_output_may_be_sent_home(bench: DataBench) -> None:
    bag, a = bench.pipelines(shape_=data(stays=False)), bench.host("a")
    bench.run(a)
    assert bench.places(bag, 0) == ["home"]


def test_least_read_of_equal_copies_is_fetched(bench: DataBench) -> None:
    """Three tasks read the output of task 0; the first of them has kept what it fetched."""
    edges = np.array([(0, 1), (0, 2), (0, 3)], dtype="<i4").tobytes()
    event = e.Submit(0, "ann", "bag", "", b"", [shape(4, expect=3_000)], False, "fcfs", False, edges,
                     data=data(read_files=b"", keeps=True))
    bag = int(bench.do(event).value)
    bench.run(bench.host("a")), bench.run(bench.host("b"))
    assert bench.places(bag, 0) == ["host here a", "host here b"]
    assert moves(bench.ask(bench.host("c"))) == [(0, "host here a", 80_000)]
    assert moves(bench.ask(bench.host("d"))) == [(0, "host here b", 80_000)]


# --- losses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["journal", "snapshot"])
def test_copies_and_transfers_survive_a_restart(bench: DataBench, how: str) -> None:
    bag, a, b = bench.pipelines(shape_=data(keeps=True, staged=["there"])), bench.host("a"), bench.host("b")
    bench.run(a, left=(7, 3)), bench.run(b)
    ((attempt, _),) = granted(bench.ask(b))
    saved = bench.snapshot() if how == "snapshot" else None
    bench.report(b, attempt)
    bench.ask(a)
    bench.do(e.LosePlace(0, "here", "a"))
    bench.restart(saved)
    assert bench.places(bag, 0) == ["host here b"] and bench.core.state.readers_of == {"host here b": 1}


def test_a_bag_without_data_stores_nothing(bench: DataBench) -> None:
    bag = bench.submit(shape(3))
    bench.run(bench.host("a"))
    assert bench.core.state.bags[bag].data is None and len(bench.core.state.places) == 1


def test_columns_of_another_length_are_refused(bench: DataBench) -> None:
    event = e.Submit(0, "ann", "bag", "", b"", [shape(4)], False, "fcfs", False, EDGES,
                     data=data(reads=b"12345678"))
    assert "reads has 8 bytes for 4 tasks" in bench.do(event).message
    event.data = data(leave_files=column("<i4", 1, -1, 0, 0))
    assert "negative" in bench.do(event).message
    assert "bad-input" in bench.do(e.KnowLink(0, "a", "b", 5, 0)).error
