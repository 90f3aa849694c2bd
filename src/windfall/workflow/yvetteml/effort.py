"""A bound on the effort of unrolling, so that no program keeps the compiler busy for long.

A statement costs its number of instances times the size of its expressions, plus a fixed cost each time the compiler
reaches it.  A million tasks in a few loops cost a small part of the bound; a program at the bound takes half a minute.
"""

from __future__ import annotations

from windfall.workflow.text import Source
from windfall.workflow.yvetteml import ast
from windfall.workflow.yvetteml.frame import Frame
from windfall.workflow.yvetteml.scope import inside, occurring, values_of

MOST = 1_000_000_000
STATEMENT = 4_000  # in operations on one number
VARIABLE = 100  # cost per variable in scope of a statement, unless it only assigns one
MAX_CELLS = 100_000_000  # numbers in the variables of one block, over all its instances


class EffortExceeded(Exception):
    """The program costs too much to unroll."""

    def __init__(self, source: Source, at: int) -> None:
        super().__init__(at)
        self.source, self.at = source, at


class Effort:
    def __init__(self) -> None:
        self.spent = 0
        self._sizes: dict[int, tuple[int, int]] = {}
        self._names: dict[int, frozenset[str]] = {}

    def names(self, node: ast.Statement) -> frozenset[str]:
        """Return the names that occur in a statement: its blocks need no others."""
        if id(node) not in self._names:
            self._names[id(node)] = frozenset(occurring(node))
        return self._names[id(node)]

    def copy(self, node: ast.Statement, frame: Frame, rows: int) -> None:
        """Count the copy of a statement's variables for `rows` instances, before it is made."""
        names = self.names(node)
        cells = rows * sum(column.costs for name, column in frame.values.items()
                           if name in names or name in frame.iterators)
        self.spent += cells
        if cells > MAX_CELLS or self.spent > MOST:
            raise EffortExceeded(frame.source, node.at)

    def spend(self, node: ast.Statement, frame: Frame) -> None:
        if id(node) not in self._sizes:
            self._sizes[id(node)] = (sum(map(_size, values_of(node))), _whole(node))
        own, whole = self._sizes[id(node)]
        variables = 0 if isinstance(node, ast.Assign) else len(frame.values)
        self.spent += STATEMENT + VARIABLE * variables + 20 * whole + frame.n * (own + 4)
        if self.spent > MOST:
            raise EffortExceeded(frame.source, node.at)


def _size(value: ast.Value) -> int:
    if isinstance(value, ast.Name):
        return 1 + sum(map(_size, value.indices))
    if isinstance(value, ast.Unary):
        return 1 + _size(value.operand)
    if isinstance(value, ast.Compare):
        return 1 + _size(value.left) + _size(value.right)
    if isinstance(value, ast.Chain):
        return _size(value.first) + sum(1 + _size(operand) for _, operand in value.rest)
    return 1


def _whole(node: ast.Statement) -> int:
    return sum(map(_size, values_of(node))) + 1 + sum(_whole(each) for block in inside(node) for each in block)
