"""The shape of graphs: both ways of walking one, cycles, and the edges that count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from windfall.workflow.graphs import dag as dags
from windfall.workflow.graphs.dag import Dag, chain, cycle, distinct, reduction, shape


@st.composite
def graphs(draw: st.DrawFn) -> Dag:
    n = draw(st.integers(1, 25))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=50))
    forward = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    edges = np.array(forward, np.int32).reshape(-1, 2)
    return Dag(n, edges[:, 0], edges[:, 1], np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))))


def walked(graph: Dag, one_by_one: bool) -> dags.Shape:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dags, "PATIENCE", 1 if one_by_one else 1 << 30)
        patch.setattr(dags, "ENOUGH", 1 << 30)
        return shape(graph)


@settings(max_examples=200, deadline=None)
@given(graphs(), st.booleans())
def test_levels_chains_and_edges_agree_with_a_plain_walk(graph: Dag, one_by_one: bool) -> None:
    found = walked(graph, one_by_one)
    assert sorted(found.order.tolist()) == list(range(graph.nodes))
    before: list[set[int]] = [set() for _ in range(graph.nodes)]
    levels = [0] * graph.nodes
    for node in range(graph.nodes):  # edges lead to larger numbers
        direct = graph.src[graph.dst == node].tolist()
        before[node] = set(direct).union(*(before[each] for each in direct))
        levels[node] = int(graph.task[node]) + max((levels[each] for each in direct), default=0)
    assert found.level.tolist() == levels
    tasks = [{each for each in all_before if graph.task[each]} for all_before in before]
    pairs = {(a, b) for b in range(graph.nodes) if graph.task[b]
             for a in tasks[b] if not any(a in tasks[c] for c in tasks[b])}
    count, told = reduction(graph, found, pairs=True)
    assert set(told) == pairs and count == len(pairs)
    node = int(np.argmax(found.level))
    assert sum(bool(graph.task[each]) for each in chain(found, node)) == max(levels)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_cycle_is_found(one_by_one: bool) -> None:
    edges = np.array([(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)], np.int32)
    graph = Dag(5, edges[:, 0], edges[:, 1], np.ones(5, bool))
    found = walked(graph, one_by_one)
    assert found.order.tolist() == [0]
    around = cycle(graph, found)
    assert sorted(around) == [1, 2, 3]
    assert all((a, b) in {(1, 2), (2, 3), (3, 1)} for a, b in zip(around, [*around[1:], around[0]], strict=True))


def test_many_tasks_are_reduced_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = np.array([(a, b) for a in range(8) for b in range(a + 1, 8)], np.int32)
    graph = Dag(8, edges[:, 0], edges[:, 1], np.ones(8, bool))
    monkeypatch.setattr(dags, "BLOCK", 3)
    assert reduction(graph, shape(graph), pairs=True) == (7, [(k, k + 1) for k in range(7)])


@given(st.lists(st.integers(-5, 5)))
def test_distinct_returns_each_number_once_in_order(numbers: list[int]) -> None:
    assert distinct(np.array(numbers, np.int64)).tolist() == sorted(set(numbers))
