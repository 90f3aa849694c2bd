"""All instances of a block at once.

A block inside loops is not walked once per iteration: a frame holds a column for each variable, with one value for
every instance, or a single one where all have the same.  Taking a step of the language is then an operation on arrays.
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
    """One for each, also where all share one."""
    return data if isinstance(data, np.ndarray) else np.full(n, data, object if isinstance(data, str) else None)


class StatementError(Exception):
    """This statement cannot be followed further; `said` is empty where that was told before."""

    def __init__(self, at: int, *said: str) -> None:
        super().__init__(*said)
        self.at, self.said = at, said


@dataclass(frozen=True, slots=True)
class Column:
    """A variable.  Kind "lost": no instance has a value, since a `par` assigned it; "broken": after a mistake."""

    kind: str  # integer, real, string, condition, lost, broken
    data: Data
    known: np.ndarray | None = None  # which instances have a value; None: all, unless it is lost
    lost: np.ndarray | None = None  # which have lost it; None: none, or all if it is lost
    at: int = 0  # where it was lost

    @property
    def costs(self) -> bool:
        """Is there a number for each instance?"""
        return self.known is not None or self.lost is not None or isinstance(self.data, np.ndarray)

    def take(self, rows: Rows) -> Column:
        return Column(self.kind, take(self.data, rows), take(self.known, rows), take(self.lost, rows), self.at)

    def states(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Which instances have a value, and which have lost it; the others were never assigned."""
        gone = self.kind == "lost"
        known = np.full(n, not gone) if self.known is None else np.array(self.known)
        return known, np.full(n, gone) if self.lost is None else np.array(self.lost)


@dataclass(frozen=True, slots=True)
class Ref:
    """Data: a name, of some scope, and its indices."""

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
    scope: int = 0  # which call of a graph component; 0 is the application
    lead: Data = 0  # which instance of that call
    entry: Data = 0  # the node after which each instance begins
    section: int = -1

    def take(self, rows: Rows, n: int, names: Collection[str] | None = None) -> Frame:
        """Some instances, or some several times; with `names`, no other variables but those that cost nothing."""
        values = {name: column.take(rows) for name, column in self.values.items()
                  if names is None or name in names or name in self.iterators or not column.costs}
        refs = {name: ref.take(rows) for name, ref in self.refs.items()}
        return replace(self, n=n, values=values, refs=refs, lead=take(self.lead, rows), entry=take(self.entry, rows))

    def only(self, names: Collection[str]) -> Frame:
        """To be kept: with these variables, and those that say which instance it is."""
        values = {name: column for name, column in self.values.items() if name in names or name in self.iterators}
        refs = {name: ref for name, ref in self.refs.items() if name in names}
        return replace(self, values=values, refs=refs, entry=0)

    def copy(self, **changes: Any) -> Frame:
        return replace(self, values=dict(self.values), **changes)

    def none(self) -> Frame:
        """No instance at all: what is never reached is still checked."""
        return self.take(slice(0, 0), 0)

    def where(self, row: int) -> str:
        """Which instance it is, for people: `where i = 2, j = 5`; nothing for what is no instance."""
        shown = []
        for name in self.iterators if row < self.n else ():
            column = self.values.get(name)
            if column is not None and column.kind == "integer":
                shown.append(f"{name} = {take(column.data, row)}")
        return " where " + ", ".join(shown) if shown else ""


def first(mask: np.ndarray) -> int:
    return int(np.argmax(mask))
