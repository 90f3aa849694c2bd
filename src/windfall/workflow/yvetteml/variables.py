"""A variable after a part of the program that only some instances went through."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from windfall.workflow.yvetteml.edges import pick
from windfall.workflow.yvetteml.frame import Column, Data, Frame, StatementError
from windfall.workflow.yvetteml.values import SPELT

ZERO = {"integer": 0, "real": 0.0, "string": ""}


def merged(name: str, at: int, frame: Frame, column: Column, rows: np.ndarray) -> Column:
    """Return a variable in all instances of `frame`, with its values in `rows` taken from `column`."""
    old = frame.values.get(name)
    if len(rows) == frame.n or column.kind == "broken":
        return column
    if old is not None and old.kind == "broken":
        return old
    kinds = [each.kind for each in (column, old) if _has_values(each)]
    if len(set(kinds)) > 1:
        raise StatementError(
            at, f"'{name}' is {SPELT[kinds[0]]} here, and {SPELT[kinds[1]]} otherwise", "use two names"
        )
    known, gone = old.states(frame.n) if old is not None else (np.zeros(frame.n, bool), np.zeros(frame.n, bool))
    known[rows], gone[rows] = column.states(len(rows))
    if not kinds:
        return Column("lost", 0, known, gone, column.at)
    data = pick(_data(column, kinds[0]), _data(old, kinds[0]), rows, frame.n)
    return Column(kinds[0], data, None if known.all() else known, gone if gone.any() else None, at)


def _has_values(column: Column | None) -> TypeGuard[Column]:
    return column is not None and column.kind in ZERO


def _data(column: Column | None, kind: str) -> Data:
    """Return a variable's data, or the zero of its kind if it has none."""
    return column.data if _has_values(column) else ZERO[kind]
