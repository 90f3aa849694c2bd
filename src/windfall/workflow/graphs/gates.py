"""Replace gates by edges from all nodes before a gate to all nodes after it.

If that would make far too many edges, as between two wide sections, or between many of middling width, the gate stays
as a task that does nothing.
"""

from __future__ import annotations

import numpy as np

from windfall.workflow.graphs.dag import Dag

GATES = "join-sections"  # the target of kept gates; no component can have this name
TIMES = 4  # a gate with n edges may always become TIMES * n edges
FEW = 1_000  # edges that a gate may become beyond that, while all such edges are at most MOST
MOST = 2_000_000


def without_gates(dag: Dag, tasks: int) -> tuple[np.ndarray, int]:
    """Return edges as rows (before, after), and the number of kept gates, which are numbered after the tasks."""
    plain = (dag.src < tasks) & (dag.dst < tasks)
    near = _Neighbours(tasks, dag.src[~plain].tolist(), dag.dst[~plain].tolist())
    kept: list[int] = []
    left = MOST
    for gate in range(tasks, dag.nodes):
        ins, outs = near.before.pop(gate, set()), near.after.pop(gate, set())
        count = len(ins) * len(outs)
        dear = count > TIMES * (len(ins) + len(outs))
        if not dear or count <= min(FEW, left):
            left -= count if dear else 0
            near.bypass(gate, ins, outs)
        else:
            kept.append(gate)
            near.before[gate], near.after[gate] = ins, outs
    made = near.joined
    numbers = {gate: tasks + place for place, gate in enumerate(kept)}
    for gate in kept:
        made += [(numbers.get(each, each), numbers[gate]) for each in near.before[gate]]
        made += [(numbers[gate], each) for each in near.after[gate] if each < tasks]
    pairs = np.concatenate([np.stack([dag.src[plain], dag.dst[plain]], 1),
                            np.array(made, np.int64).reshape(-1, 2)]).astype(np.int64)
    return np.unique(pairs, axis=0), len(kept)


class _Neighbours:
    """The nodes before and after each node, along the edges that begin or end at a gate."""

    def __init__(self, tasks: int, sources: list[int], ends: list[int]) -> None:
        self.tasks = tasks  # nodes from this number on are gates
        self.before: dict[int, set[int]] = {}
        self.after: dict[int, set[int]] = {}
        self.joined: list[tuple[int, int]] = []  # edges between tasks in place of bypassed gates
        for src, dst in zip(sources, ends, strict=True):
            self.after.setdefault(src, set()).add(dst)
            self.before.setdefault(dst, set()).add(src)

    def bypass(self, gate: int, ins: set[int], outs: set[int]) -> None:
        """Join a gate's neighbours directly; a neighbour that is a gate updates its sets, two tasks get an edge."""
        for src in ins:
            if src >= self.tasks:
                self.after[src].discard(gate)
                self.after[src] |= outs
        for dst in outs:
            if dst >= self.tasks:
                self.before[dst].discard(gate)
                self.before[dst] |= ins
        self.joined += [(src, dst) for src in ins if src < self.tasks for dst in outs if dst < self.tasks]
