"""A variable after a part of the program that only some instances went through."""

from __future__ import annotations

import numpy as np

from windfall.workflow.yvetteml.edges import pick
from windfall.workflow.yvetteml.frame import Column, Frame, StatementError
from windfall.workflow.yvetteml.values import SPELT

ZERO = {"integer": 0, "real": 0.0, "string": ""}


def merged(name: str, at: int, frame: Frame, column: Column, rows: np.ndarray) -> Column:
    """Return a variable in all instances of `frame`, with its values in `rows` taken from `column`."""
    old = frame.values.get(name)
    if len(rows) == frame.n or column.kind == "broken":
        return column
    if old is not None and old.kind == "broken":
        return old
    kinds = [each.kind for each in (column, old) if each is not None and each.kind in ZERO]
    if len(set(kinds)) > 1:
        raise StatementError(
            at, f"'{name}' is {SPELT[kinds[0]]} here, and {SPELT[kinds[1]]} otherwise", "use two names"
        )
    known, gone = old.states(frame.n) if old is not None else (np.zeros(frame.n, bool), np.zeros(frame.n, bool))
    known[rows], gone[rows] = column.states(len(rows))
    if not kinds:
        return Column("lost", 0, known, gone, column.at)
    data = pick(column.data if column.kind in ZERO else ZERO[kinds[0]],
                old.data if old is not None and old.kind in ZERO else ZERO[kinds[0]], rows, frame.n)
    return Column(kinds[0], data, None if known.all() else known, gone if gone.any() else None, at)
