"""Collect the nodes and edges of a program while it is unrolled.

A node is a task or a gate.  A gate costs nothing and holds back the nodes after it: the end of a parallel section, a
wait, an event.  With gates the number of edges grows with the tasks, not with the products of sections.  Node 0 is the
start, before everything; edges from it are not kept.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from windfall.errors import TooLarge
from windfall.workflow.yvetteml.frame import Data, Frame, spread

MAX_NODES = 20_000_000
START = 0


@dataclass(frozen=True, slots=True)
class StatementNodes:
    """The nodes of one statement, one for each instance of its frame."""

    first: int
    n: int
    what: str  # description for people
    at: int
    frame: Frame


class Wiring:
    def __init__(self) -> None:
        self.nodes = 1
        self.groups: list[StatementNodes] = []
        self._src: list[np.ndarray] = []
        self._dst: list[np.ndarray] = []

    def new(self, n: int, what: str, at: int, frame: Frame) -> np.ndarray:
        if self.nodes + n > MAX_NODES:
            raise TooLarge(f"the program unrolls to more than {MAX_NODES:,} tasks and gates", "split it")
        self.groups.append(StatementNodes(self.nodes, n, what, at, frame))
        self.nodes += n
        return np.arange(self.nodes - n, self.nodes, dtype=np.int32)

    def edge(self, before: Data, after: np.ndarray) -> None:
        """Let `after[k]` wait for `before[k]`, or all of them for a single node."""
        if isinstance(before, np.ndarray) or before != START:
            self._src.append(spread(before, len(after)).astype(np.int32, copy=False))
            self._dst.append(after.astype(np.int32, copy=False))

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return where each edge begins and ends, without the edges from the start."""
        none = [np.zeros(0, np.int32)]
        src, dst = np.concatenate(self._src or none), np.concatenate(self._dst or none)
        self._src, self._dst = [src], [dst]
        kept = src != START
        return (src, dst) if kept.all() else (src[kept], dst[kept])

    def group(self, node: int) -> StatementNodes | None:
        at = bisect_right(self.groups, node, key=lambda group: group.first) - 1
        return self.groups[at] if at >= 0 and node < self.groups[at].first + self.groups[at].n else None


def place(group: StatementNodes, node: int) -> str:
    """Describe a node to people: statement, line and instance."""
    line, _ = group.frame.source.place(group.at)
    return f"{group.what}, line {line}{group.frame.where(node - group.first)}"


def pick(data: Data, other: Data, rows: np.ndarray, n: int) -> Data:
    """Return `other` with the given rows replaced by `data`, one value per row."""
    if not isinstance(data, np.ndarray) and not isinstance(other, np.ndarray) and data == other:
        return other
    result = np.array(spread(other, n))
    result[rows] = data
    return result


