"""No program keeps the compiler busy for long: what unrolling costs is counted on the way, and bounded.

A statement costs by the instances it has, times the size of its expressions, and something for being reached at all.
A million tasks in a few loops are a small part of the whole; what goes beyond would take longer than half a minute.
"""

from __future__ import annotations

from . import ast
from .frame import Frame
from .scope import inside, values_of
from .text import Source

MOST = 1_000_000_000
STATEMENT = 4_000  # in operations on one number


class Enough(Exception):
    """All of it ends here."""

    def __init__(self, source: Source, at: int) -> None:
        super().__init__(at)
        self.source, self.at = source, at


class Effort:
    def __init__(self) -> None:
        self.spent = 0
        self._sizes: dict[int, tuple[int, int]] = {}

    def spend(self, node: ast.Statement, frame: Frame) -> None:
        if id(node) not in self._sizes:
            self._sizes[id(node)] = (sum(map(_size, values_of(node))), _whole(node))
        own, whole = self._sizes[id(node)]
        self.spent += STATEMENT + 20 * whole + frame.n * (own + 4)
        if self.spent > MOST:
            raise Enough(frame.source, node.at)


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
