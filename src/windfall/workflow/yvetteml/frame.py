"""All instances of a block at once.

The compiler does not walk a loop's body once per iteration: a frame holds a column for each variable, with one value
per instance, or a single value that all instances share.  Each step of the language is then an operation on arrays.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from windfall.workflow.components.files import Parameter
from windfall.workflow.text import Source

Data = Any  # an int, float, bool or str that all instances share, or an array with one for each
Rows = Any  # an array of row numbers, or a slice


def take(data: Data, rows: Rows) -> Data:
    return data[rows] if isinstance(data, np.ndarray) else data


def spread(data: Data, n: int) -> np.ndarray:
    """Return an array with a value for each instance, repeating a shared value."""
    return data if isinstance(data, np.ndarray) else np.full(n, data, object if isinstance(data, str) else None)


class StatementError(Exception):
    """A statement with a mistake; `report`, message and hint, is empty if the mistake was reported before."""

    def __init__(self, at: int, *report: str) -> None:
        super().__init__(*report)
        self.at, self.report = at, report


@dataclass(frozen=True, slots=True)
class Column:
    """A variable.  Kind "lost": a `par` assigned it, so no instance has a value; "broken": a mistake assigned it."""

    kind: str  # integer, real, string, condition, lost, broken
    data: Data
    known: np.ndarray | None = None  # the instances that have a value; None: all, or none if the kind is "lost"
    lost: np.ndarray | None = None  # the instances that have lost it; None: none, or all if the kind is "lost"
    at: int = 0  # place of the assignment that lost it

    @property
    def costs(self) -> bool:
        """Does the column hold a value for each instance?"""
        return self.known is not None or self.lost is not None or isinstance(self.data, np.ndarray)

    def take(self, rows: Rows) -> Column:
        return Column(self.kind, take(self.data, rows), take(self.known, rows), take(self.lost, rows), self.at)

    def states(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the instances that have a value and those that have lost it; the others were never assigned."""
        gone = self.kind == "lost"
        known = np.full(n, not gone) if self.known is None else np.array(self.known)
        return known, np.full(n, gone) if self.lost is None else np.array(self.lost)


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to data or an event: a name in a scope, and its indices."""

    key: tuple[int, str]
    indices: tuple[Data, ...] = ()

    def take(self, rows: Rows) -> Ref:
        return Ref(self.key, tuple(take(each, rows) for each in self.indices))


@dataclass(slots=True)
class Frame:
    source: Source
    n: int = 1
    values: dict[str, Column] = field(default_factory=dict)
    refs: dict[str, Ref] = field(default_factory=dict)  # parameters that stand for the caller's data
    declared: dict[str, Parameter] = field(default_factory=dict)
    iterators: tuple[str, ...] = ()
    scope: int = 0  # number of the call of a graph component; 0: the application
    lead: Data = 0  # instance of that call
    entry: Data = 0  # the node after which each instance begins
    section: int = -1

    def take(self, rows: Rows, n: int, names: Collection[str] | None = None) -> Frame:
        """Return a frame of some instances, perhaps repeated; `names` drops other variables with a value each."""
        values = {name: column.take(rows) for name, column in self.values.items()
                  if names is None or name in names or name in self.iterators or not column.costs}
        refs = {name: ref.take(rows) for name, ref in self.refs.items()}
        return replace(self, n=n, values=values, refs=refs, lead=take(self.lead, rows), entry=take(self.entry, rows))

    def only(self, names: Collection[str]) -> Frame:
        """Return a frame to keep, with these variables and the iterators, which tell the instances apart."""
        values = {name: column for name, column in self.values.items() if name in names or name in self.iterators}
        refs = {name: ref for name, ref in self.refs.items() if name in names}
        return replace(self, values=values, refs=refs, entry=0)

    def copy(self, **changes: Any) -> Frame:
        return replace(self, values=dict(self.values), **changes)

    def none(self) -> Frame:
        """Return a frame without instances, to check statements that are never reached."""
        return self.take(slice(0, 0), 0)

    def where(self, row: int) -> str:
        """Describe an instance to people: ` where i = 2, j = 5`, or "" if there is no such instance."""
        shown = []
        for name in self.iterators if row < self.n else ():
            column = self.values.get(name)
            if column is not None and column.kind == "integer":
                shown.append(f"{name} = {take(column.data, row)}")
        return " where " + ", ".join(shown) if shown else ""


def first(mask: np.ndarray) -> int:
    return int(np.argmax(mask))
