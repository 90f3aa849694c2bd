"""Prerequisites between tasks: edges as they came, and for every task what waits for it and how much it waits for.

Edges are only ever added, so an appended part costs what it has itself.  The edges that leave a task are a chain: the
task knows its last one, each edge the one before it.  Edges are counted from 1 there, so that rows that nobody touched,
all zeros, end a chain.  12 bytes an edge, 8 a task.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages.lifecycle import SUCCEEDED
from windfall.core.state.columns import Table

Pairs = NDArray[np.int32]  # rows (before, after)


class Edges(Table):
    """The edges, which a snapshot saves; the rest is worked out from them and from the states of the tasks."""

    LAYOUT = (("before", np.int32), ("after", np.int32))
    before: memoryview
    after: memoryview
    np_before: NDArray[np.int32]
    np_after: NDArray[np.int32]

    def pairs(self) -> Pairs:
        return np.stack([self.np_before[: self.rows], self.np_after[: self.rows]], axis=1)


class _Links(Table):
    LAYOUT = (("earlier", np.int32),)  # the edge before this one that leaves the same task
    earlier: memoryview
    np_earlier: NDArray[np.int32]


class _Nodes(Table):
    LAYOUT = (("last", np.int32), ("pending", np.int32))
    last: memoryview
    pending: memoryview
    np_last: NDArray[np.int32]
    np_pending: NDArray[np.int32]


def as_pairs(edges: bytes) -> Pairs:
    return np.frombuffer(edges, dtype="<i4").reshape(-1, 2)


class Graph:
    __slots__ = ("_after", "_earlier", "_last", "_links", "_nodes", "edges", "pending")

    def __init__(self, tasks: int) -> None:
        self.edges, self._links, self._nodes = Edges(0), _Links(0), _Nodes(tasks)
        self._look()

    def _look(self) -> None:
        """At the columns, which move when they grow: a task that ends should not have to search for them."""
        self._after, self._earlier, self._last = self.edges.after, self._links.earlier, self._nodes.last
        self.pending = self._nodes.pending  # of each task, the prerequisites that have not succeeded

    @property
    def np_pending(self) -> NDArray[np.int32]:
        return self._nodes.np_pending[: self._nodes.rows]

    def grow(self, tasks: int) -> None:
        """Add tasks without prerequisites, for which no task waits."""
        self._nodes.grow(tasks)
        self._look()

    def add(self, pairs: Pairs, states: NDArray[np.uint8]) -> None:
        """Add edges.  `states` has the state of every task: a prerequisite that has succeeded does not count."""
        if not len(pairs):
            return
        first, stop = self.edges.rows, self.edges.rows + len(pairs)
        self.edges.grow(len(pairs))
        self._links.grow(len(pairs))
        self._look()
        self.edges.np_before[first:stop], self.edges.np_after[first:stop] = pairs[:, 0], pairs[:, 1]
        self.edges.mark(first, stop - 1)
        self._chain(first, pairs[:, 0])
        waits = pairs[states[pairs[:, 0]] != SUCCEEDED, 1]
        if len(waits):
            least = int(waits.min())
            tally = np.bincount(waits - least)
            self._nodes.np_pending[least : least + len(tally)] += tally.astype(np.int32)

    def _chain(self, first: int, before: NDArray[np.int32]) -> None:
        order = np.argsort(before, kind="stable")
        tasks, numbers = before[order], (order + (first + 1)).astype(np.int32)
        begins = np.ones(len(tasks) + 1, dtype=bool)  # where another task's edges begin, or would
        begins[1:-1] = tasks[1:] != tasks[:-1]
        earlier = np.empty(len(tasks), dtype=np.int32)
        earlier[1:] = numbers[:-1]
        starts = begins[:-1]
        earlier[starts] = self._nodes.np_last[tasks[starts]]
        self._links.np_earlier[numbers - 1] = earlier
        self._nodes.np_last[tasks[begins[1:]]] = numbers[begins[1:]]

    def after(self, task: int) -> list[int]:
        """Tasks that wait for this one."""
        found: list[int] = []
        edge = self._last[task]
        if edge:
            after, earlier = self._after, self._earlier
            while edge:
                found.append(after[edge - 1])
                edge = earlier[edge - 1]
            found.reverse()
        return found

    def waits(self, task: int) -> bool:
        """Has it open prerequisites?"""
        return bool(self.pending[task])

    def blocked(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the tasks of a run with open prerequisites, counted from `first`."""
        return np.flatnonzero(self._nodes.np_pending[first:stop])


def graph_of(pairs: Pairs, states: NDArray[np.uint8]) -> Graph:
    """Return the graph of as many tasks as there are states."""
    graph = Graph(len(states))
    graph.add(pairs, states)
    return graph
