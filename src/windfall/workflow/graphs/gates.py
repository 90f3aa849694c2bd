"""Edges between tasks alone: a gate's place is taken by edges from all before it to all after it.

Where that would be far too many, as between two wide sections, or between many of middling width, the gate stays: as a
task that does nothing.
"""

from __future__ import annotations

import numpy as np

from windfall.workflow.graphs.dag import Dag

GATES = "join-sections"  # their target; no component can be called so
TIMES = 4  # as many edges as it has may a gate always become
FEW = 1_000  # edges that it may become while there are not too many in all
MOST = 2_000_000  # such edges in all


def without_gates(dag: Dag, tasks: int) -> tuple[np.ndarray, int]:
    """Edges as rows (before, after), and how many gates are left: they are numbered after the tasks."""
    plain = (dag.src < tasks) & (dag.dst < tasks)
    before: dict[int, set[int]] = {}
    after: dict[int, set[int]] = {}
    for src, dst in zip(dag.src[~plain].tolist(), dag.dst[~plain].tolist(), strict=True):
        after.setdefault(src, set()).add(dst)
        before.setdefault(dst, set()).add(src)
    made: list[tuple[int, int]] = []
    kept: list[int] = []
    left = MOST
    for gate in range(tasks, dag.nodes):
        ins, outs = before.pop(gate, set()), after.pop(gate, set())
        count = len(ins) * len(outs)
        dear = count > TIMES * (len(ins) + len(outs))
        if not dear or count <= min(FEW, left):
            left -= count if dear else 0
            _bypass(gate, ins, outs, before, after, tasks, made)
        else:
            kept.append(gate)
            before[gate], after[gate] = ins, outs
    numbers = {gate: tasks + place for place, gate in enumerate(kept)}
    for gate in kept:
        made += [(numbers.get(each, each), numbers[gate]) for each in before[gate]]
        made += [(numbers[gate], each) for each in after[gate] if each < tasks]
    pairs = np.concatenate([np.stack([dag.src[plain], dag.dst[plain]], 1),
                            np.array(made, np.int64).reshape(-1, 2)]).astype(np.int64)
    return np.unique(pairs, axis=0), len(kept)


def _bypass(
    gate: int, ins: set[int], outs: set[int], before: dict[int, set[int]], after: dict[int, set[int]], tasks: int,
    made: list[tuple[int, int]],
) -> None:
    """Its neighbours meet; those that are gates themselves are told."""
    for src in ins:
        if src >= tasks:
            after[src].discard(gate)
            after[src] |= outs
    for dst in outs:
        if dst >= tasks:
            before[dst].discard(gate)
            before[dst] |= ins
    made += [(src, dst) for src in ins if src < tasks for dst in outs if dst < tasks]
