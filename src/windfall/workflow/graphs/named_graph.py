"""A graph whose tasks have names and kinds: the common part of DAGMan's and WfFormat's workflows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from windfall.workflow.graphs.dag import Dag, DagShape, chain, reduction
from windfall.workflow.graphs.report import MAX_REDUCED, runs_of


class NamedGraph:
    """A workflow as a graph: task k is node k + 1, node 0 is the start."""

    title: str
    names: list[str]
    kinds: list[str]
    dag: Dag
    shape: DagShape

    @property
    def tasks(self) -> int:
        return self.dag.nodes - 1

    @cached_property
    def levels(self) -> np.ndarray:
        return np.asarray(self.shape.level[1:] - 1)

    def requirements(self) -> dict[str, Any]:
        """Return the workflow's requirements, under the same keys as an application's."""
        levels, counts = self.levels, Counter(self.kinds)
        return {
            "application": self.title,
            "tasks": self.tasks,
            "edges": reduction(self.dag, self.shape)[0] if self.tasks <= MAX_REDUCED else None,
            "depth": int(levels.max()) + 1 if self.tasks else 0,
            "width": int(np.bincount(levels).max()) if self.tasks else 0,
            "critical_path": self._critical(),
            "components": [{"component": kind, "tasks": count, "bytes_in": None, "bytes_out": None}
                           for kind, count in counts.items()],
            "sections": [], "units": [], "parameters": [], "doubts": [],
        }  # fmt: skip

    def _critical(self) -> dict[str, Any]:
        if not self.tasks:
            return {"tasks": 0, "components": []}
        names = [self.kinds[node - 1] for node in chain(self.shape, int(np.argmax(self.levels)) + 1)]
        return {"tasks": len(names), "components": runs_of(names)}


def dag_of(tasks: int, pairs: Iterable[tuple[int, int]]) -> Dag:
    """Make a graph from `pairs` of tasks, counted from 0."""
    edges = np.array(sorted(set(pairs)), np.int32).reshape(-1, 2) + 1
    nodes = np.ones(tasks + 1, bool)
    nodes[0] = False
    return Dag(len(nodes), edges[:, 0], edges[:, 1], nodes)
