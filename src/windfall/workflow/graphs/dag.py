"""The shape of a graph: order, levels, the longest chain, and the number of edges in its transitive reduction.

A task's level is the length of the longest chain of tasks up to it; gates count nothing.  Wide graphs are peeled level
by level with arrays; graphs like a chain, of which a round takes off few nodes, are walked node by node.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

PATIENCE = 512  # rounds of peeling by arrays, after which the nodes per round are compared with ENOUGH
ENOUGH = 256  # nodes per round that make peeling by arrays worth while


@dataclass(frozen=True)
class Dag:
    """Node k may begin when all nodes with an edge to it have ended: `pending[k]` of them."""

    nodes: int
    src: np.ndarray
    dst: np.ndarray
    task: np.ndarray  # node → is it a task?

    def pending(self) -> np.ndarray:
        return np.bincount(self.dst, minlength=self.nodes).astype(np.int32)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return compressed rows: the nodes after node k are `after[start[k]:start[k + 1]]`."""
        order = np.argsort(self.src, kind="stable")
        start = np.zeros(self.nodes + 1, np.int64)
        np.cumsum(np.bincount(self.src, minlength=self.nodes), out=start[1:])
        return start, self.dst[order]


@dataclass(frozen=True)
class DagShape:
    level: np.ndarray  # node → tasks on the longest chain up to it, itself included
    via: np.ndarray  # node → the node before it on that chain, or -1
    order: np.ndarray  # nodes, each after all it waits for; shorter than the graph if there is a cycle


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers sorted, each once.  `np.unique` may hash, and numbers packed from two collide."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def shape(dag: Dag) -> DagShape:
    walk = _Walk(dag)
    walk.peel()
    return DagShape(walk.level, walk.via, np.concatenate([np.zeros(0, np.int64), *walk.done]))


class _Walk:
    def __init__(self, dag: Dag) -> None:
        self.start, self.after = dag.rows()
        self.pending = dag.pending()
        self.weight = dag.task.astype(np.int32)
        self.level = self.weight.copy()
        self.via = np.full(dag.nodes, -1, np.int32)
        self.done: list[np.ndarray] = []

    def peel(self) -> None:
        front = np.flatnonzero(self.pending == 0)
        rounds = nodes = 0
        while len(front):
            self.done.append(front)
            rounds, nodes = rounds + 1, nodes + len(front)
            if rounds >= PATIENCE and nodes < rounds * ENOUGH:
                self._one_by_one(front)
                return
            front = self._round(front)

    def _round(self, front: np.ndarray) -> np.ndarray:
        starts, counts = self.start[front], self.start[front + 1] - self.start[front]
        places = np.arange(int(counts.sum())) + np.repeat(starts - np.cumsum(counts) + counts, counts)
        after, before = self.after[places], np.repeat(front, counts)
        levels = self.level[before] + self.weight[after]
        np.maximum.at(self.level, after, levels)
        best = (levels == self.level[after]) & (levels > 0)
        self.via[after[best]] = before[best]
        np.subtract.at(self.pending, after, 1)
        return distinct(after[self.pending[after] == 0]).astype(np.int64)

    def _one_by_one(self, front: np.ndarray) -> None:
        """Walk the rest node by node through views of the arrays; lists of as many numbers would take gigabytes."""
        start, after, weight = self.start.data, self.after.data, self.weight.data
        pending, level, via = self.pending.data, self.level.data, self.via.data
        ready = array("q", front.tolist())
        for node in ready:  # `ready` grows while the loop runs
            mine = level[node]
            for place in range(start[node], start[node + 1]):
                other = after[place]
                if mine + weight[other] > level[other] or via[other] < 0:
                    level[other], via[other] = mine + weight[other], node
                pending[other] -= 1
                if not pending[other]:
                    ready.append(other)
        self.done.append(np.array(ready[len(front) :], np.int64))


def chain(found: DagShape, node: int) -> list[int]:
    """Return the longest chain that ends in `node`, from its beginning."""
    via, nodes = found.via.tolist(), []
    while node >= 0:
        nodes.append(node)
        node = via[node]
    return nodes[::-1]


def cycle(dag: Dag, found: DagShape) -> list[int]:
    """Return nodes that wait for each other in a circle, in the order in which they would have to run."""
    left = np.ones(dag.nodes, bool)
    left[found.order] = False
    inside = left[dag.src] & left[dag.dst]
    before = dict(zip(dag.dst[inside].tolist(), dag.src[inside].tolist(), strict=True))
    node = int(np.argmax(left))
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        node = before[node]
    return [each for each, number in seen.items() if number >= seen[node]][::-1]


# --- transitive reduction --------------------------------------------------------------------------------------------

BLOCK = 16_384  # predecessors compared at a time, as bits of one number


def reduction(dag: Dag, found: DagShape, pairs: bool = False) -> tuple[int, list[tuple[int, int]]]:
    """Count the pairs of tasks that follow each other directly, with no task between; `pairs` lists them, too.

    Two sets of tasks are kept for every node: `near`, the tasks before it with only gates between, and `far`, the tasks
    before a near one.  A near task that is far, too, is no direct predecessor.
    """
    tasks = [node for node in found.order.tolist() if dag.task[node]]
    count, told = 0, []
    for begin in range(0, len(tasks), BLOCK):
        some = tasks[begin : begin + BLOCK]
        for node, direct in _direct(dag, found, {each: 1 << bit for bit, each in enumerate(some)}):
            count += direct.bit_count()
            if pairs:
                told += [(some[bit], node) for bit in _bits(direct)]
    return count, told


def _bits(number: int) -> list[int]:
    return [bit for bit, digit in enumerate(reversed(bin(number)[2:])) if digit == "1"]


def _direct(dag: Dag, found: DagShape, bits: dict[int, int]) -> list[tuple[int, int]]:
    """Return every task's direct predecessors among the tasks of `bits`."""
    start, after = (each.tolist() for each in dag.rows())
    task, result = dag.task.tolist(), []
    near: dict[int, int] = {}
    far: dict[int, int] = {}
    for node in found.order.tolist():
        mine, before = near.pop(node, 0), far.pop(node, 0)
        if task[node]:
            if mine & ~before:
                result.append((node, mine & ~before))
            mine, before = bits.get(node, 0), mine | before
        if mine or before:
            for other in after[start[node] : start[node + 1]]:
                near[other] = near[other] | mine if near.get(other) else mine
                far[other] = far[other] | before if far.get(other) else before
    return result
