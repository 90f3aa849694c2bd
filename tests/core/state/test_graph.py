"""The graph of a bag: edges between tasks, which grow with appended parts."""

from __future__ import annotations

import random

import numpy as np

from windfall.core.messages.lifecycle import CANCELLED, READY, SUCCEEDED, WAITING
from windfall.core.state.graph import Graph, graph_of


def test_grown_graph_equals_one_made_at_once() -> None:
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
