"""The product of unrolling: calls, sections and units, each with all its instances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from windfall.workflow.components.files import Component
from windfall.workflow.yvetteml import ast
from windfall.workflow.yvetteml.frame import Frame


class Library(Protocol):
    def find(self, name: str) -> Component | None: ...

    def names(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Call:
    """A `compute`, in all its instances: tasks `first` to `first + n`, nodes from `node` on."""

    component: Component
    arguments: tuple[ast.Value, ...]
    at: int
    frame: Frame
    first: int
    node: int

    @property
    def n(self) -> int:
        return self.frame.n


@dataclass(slots=True)
class Section:
    """A `par` of the program, with its branches and instances."""

    at: int
    frame: Frame
    parent: int
    loop: bool
    branches: int = 0  # branches or iterations, over all instances
    instances: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """A call of a graph component: tasks that belong together."""

    component: str
    at: int
    frame: Frame  # the caller's
    first: int  # number of its first instance
    scope: int


@dataclass
class Unrolled:
    calls: list[Call] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    tasks: int = 0
    instances: int = 0  # instances of graph components
