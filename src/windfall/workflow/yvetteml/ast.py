"""The tree of a graph.

Equality of nodes ignores `at`, their place in the text.  Chains of operators of one strength (`a + b - c`) are flat:
`first`, then pairs of operator and operand.
"""

from __future__ import annotations

from dataclasses import dataclass, field


def _at() -> int:
    return field(default=0, compare=False, repr=False)


# --- values --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Integer:
    value: int
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Real:
    value: float
    at: int = _at()


@dataclass(frozen=True, slots=True)
class String:
    value: str
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, an event, or data; indexed or not."""

    name: str
    indices: tuple[Value, ...] = ()
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Unary:
    op: str  # "-" or "not"
    operand: Value
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Compare:
    op: str
    left: Value
    right: Value
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Chain:
    first: Value
    rest: tuple[tuple[str, Value], ...]  # operators of one strength
    at: int = _at()


Value = Integer | Real | String | Name | Unary | Compare | Chain

STRENGTH = {
    "or": 1, "and": 2, "not": 3,
    "eq": 4, "neq": 4, "lt": 4, "le": 4, "gt": 4, "ge": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "%": 6,
}  # fmt: skip
SIGN = 7  # of a unary minus
ATOM = 8


# --- statements ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    target: Name
    value: Value
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Wait:
    condition: Value
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Notify:
    events: tuple[Name, ...]
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Compute:
    component: str
    arguments: tuple[Value, ...]
    at: int = _at()  # of the component's name


@dataclass(frozen=True, slots=True)
class Par:
    branches: tuple[Block, ...]
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Iterator:
    name: str
    low: Value
    high: Value  # included
    at: int = _at()


@dataclass(frozen=True, slots=True)
class Loop:
    parallel: bool
    iterators: tuple[Iterator, ...]
    excludes: tuple[tuple[Value, ...], ...]  # one condition, or a value for each iterator
    body: Block
    at: int = _at()


@dataclass(frozen=True, slots=True)
class If:
    condition: Value
    then: Block
    otherwise: Block = ()
    at: int = _at()


Statement = Assign | Wait | Notify | Compute | Par | Loop | If
Block = tuple[Statement, ...]
