"""A program as columns and edges to run, with as few gates as it takes.

Task k is node k.  Gates come after the tasks; the plan drops a gate that waits for a single node, or that a single node
waits for, since it adds nothing.  A node may begin when its `pending` is zero; when a task has succeeded, or a gate is
reached, the nodes after it count down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windfall.workflow.graphs.dag import Dag, distinct
from windfall.workflow.yvetteml.program import Program

ROUNDS = 8  # rounds of dropping gates; a gate left over is harmless


@dataclass(frozen=True)
class Plan:
    dag: Dag  # the nodes of tasks come first
    tasks: int
    components: list[str]
    component: np.ndarray  # task → place in `components`
    section: np.ndarray  # task → section, or -1
    unit: np.ndarray  # task → number of the graph component's instance, or -1


def plan(program: Program) -> Plan:
    components = list(dict.fromkeys(call.component.name for call in program.calls))
    places = {name: place for place, name in enumerate(components)}
    counts = [call.n for call in program.calls]
    units = [np.broadcast_to(call.frame.lead if call.frame.scope else -1, call.n) for call in program.calls]
    return Plan(
        dag=_renumbered(program, *_fewer_gates(program.dag)), tasks=program.tasks, components=components,
        component=_repeated([places[call.component.name] for call in program.calls], counts),
        section=_repeated([call.frame.section for call in program.calls], counts),
        unit=np.concatenate([np.zeros(0, np.int64), *units]),
    )  # fmt: skip


def _repeated(values: list[int], counts: list[int]) -> np.ndarray:
    return np.repeat(np.array(values, np.int32), counts)


def _fewer_gates(dag: Dag) -> tuple[np.ndarray, np.ndarray]:
    src, dst = dag.src, dag.dst
    for _ in range(ROUNDS):
        before = len(src)
        src, dst = _without_single(dag, src, dst)
        dst, src = _without_single(dag, dst, src)  # gates with at most one edge out
        src, dst = _once(dag.nodes, src, dst)
        if len(src) == before:
            break
    return src, dst


def _without_single(dag: Dag, before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop gates with at most one edge from `before`: the nodes after such a gate come after that edge's begin."""
    count = np.bincount(after, minlength=dag.nodes)
    gone = ~dag.task & (count <= 1)
    stands = np.arange(dag.nodes)
    single = gone[after]
    stands[gone] = -1  # no node before the gate
    stands[after[single]] = before[single]
    while True:  # a chain of such gates halves in every step
        further = np.where(stands >= 0, stands[stands], -1)
        if np.array_equal(further, stands):
            break
        stands = further
    before, kept = stands[before], ~gone[after]
    kept &= before >= 0
    return before[kept], after[kept]


def _once(nodes: int, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pairs = distinct(src.astype(np.int64) * nodes + dst)
    return pairs // nodes, pairs % nodes


def _renumbered(program: Program, src: np.ndarray, dst: np.ndarray) -> Dag:
    used = np.zeros(program.dag.nodes, bool)
    used[src] = used[dst] = True
    gates = np.flatnonzero(used & ~program.dag.task)
    numbers = np.full(program.dag.nodes, -1, np.int64)
    numbers[program.nodes] = np.arange(program.tasks)
    numbers[gates] = program.tasks + np.arange(len(gates))
    task = np.arange(program.tasks + len(gates)) < program.tasks
    return Dag(len(task), numbers[src].astype(np.int32), numbers[dst].astype(np.int32), task)
