"""Columns: the values of a parameter of a sweep, and their texts, for given task numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from windfall.model.spec import Range, Value
from windfall.model.templates import template as tpl
from windfall.model.templates.sample import Draw
from windfall.model.templates.shell import QUOTING
from windfall.model.templates.table import TableRows

Template = list[tpl.Piece]


def text_of(value: Value) -> str:
    """Return a value's text in commands: 3, 0.5, true, a text unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _decimals(value: int | float) -> int:
    """Return the digits after the point in the shortest text of a number: 0.1 has one, 2.5e-7 has eight."""
    mantissa, _, exponent = repr(value).partition("e")
    return max(0, len(mantissa.partition(".")[2]) - int(exponent or 0))


class Digit:
    """The digit of the task number that selects an axis's value."""

    def __init__(self, stride: int, size: int, whole: bool):
        self.stride, self.size, self.whole = stride, size, whole

    def of(self, indices: Iterable[int]) -> Iterable[int]:
        stride, size = self.stride, self.size
        if self.whole:
            return indices
        if stride == 1:
            return [i % size for i in indices]
        return [i // stride % size for i in indices]


class Column:
    """A parameter: its values and their texts for given task numbers."""

    def values(self, indices: Sequence[int]) -> list[Any]:
        raise NotImplementedError

    def texts(self, indices: Sequence[int]) -> list[str]:
        return list(map(text_of, self.values(indices)))

    def quoted(self, indices: Sequence[int], quote: Callable[[str], str]) -> list[str]:
        return list(map(quote, self.texts(indices)))


class RangeColumn(Column):
    def __init__(self, axis: Range, digit: Digit):
        self.first, self.step, self.digit = axis.first, axis.step, digit
        self.exact = all(isinstance(n, int) for n in (axis.first, axis.last, axis.step))
        self.decimals = max(_decimals(axis.first), _decimals(axis.step))

    def values(self, indices: Sequence[int]) -> list[Any]:
        first, step = self.first, self.step
        if self.exact:
            return [first + d * step for d in self.digit.of(indices)]
        values = [float(first + d * step) for d in self.digit.of(indices)]
        # In 0..1:0.1 the user means 0.3, where adding gives 0.30000000000000004.
        return [round(v, self.decimals) for v in values] if self.decimals <= 15 else values

    def texts(self, indices: Sequence[int]) -> list[str]:
        return list(map(repr, self.values(indices)))

    def quoted(self, indices: Sequence[int], quote: Callable[[str], str]) -> list[str]:
        return self.texts(indices)  # numbers need no quotes


class ListColumn(Column):
    def __init__(self, values: list[Value], digit: Digit):
        self.all, self.digit = values, digit
        self._texts: dict[object, list[str]] = {}  # quoting function → the whole list's texts, made when first needed

    def values(self, indices: Sequence[int]) -> list[Any]:
        every = self.all
        return [every[d] for d in self.digit.of(indices)]

    def texts(self, indices: Sequence[int]) -> list[str]:
        return self._pick(indices, None)

    def quoted(self, indices: Sequence[int], quote: Callable[[str], str]) -> list[str]:
        return self._pick(indices, quote)

    def _pick(self, indices: Sequence[int], quote: Callable[[str], str] | None) -> list[str]:
        every = self._texts.get(quote)
        if every is None:
            texts = map(text_of, self.all)
            every = self._texts[quote] = list(texts if quote is None else map(quote, texts))
        return [every[d] for d in self.digit.of(indices)]


class DrawnColumn(Column):
    def __init__(self, draw: Draw, digit: Digit):
        self.draw, self.digit = draw, digit

    def values(self, indices: Sequence[int]) -> list[Any]:
        return list(map(self.draw, self.digit.of(indices)))


class TableColumn(Column):
    def __init__(self, rows: TableRows, at: int, digit: Digit):
        self.rows, self.at, self.digit = rows, at, digit

    def values(self, indices: Sequence[int]) -> list[Any]:
        at = self.at
        return [row[at] for row in self.rows.rows(list(self.digit.of(indices)))]

    texts = values


class JoinedColumn(Column):
    """A parameter of an extended sweep: each part of the task numbers has its own column."""

    def __init__(self, first: Column):
        self.starts = [0]
        self.columns = [first]

    def add(self, start: int, column: Column) -> None:
        """Add a part; the column first, so that another thread finds a column for every start."""
        self.columns.append(column)
        self.starts.append(start)

    def values(self, indices: Sequence[int]) -> list[Any]:
        return self._each(indices, lambda column, numbers: column.values(numbers))

    def texts(self, indices: Sequence[int]) -> list[str]:
        return self._each(indices, lambda column, numbers: column.texts(numbers))

    def quoted(self, indices: Sequence[int], quote: Callable[[str], str]) -> list[str]:
        return self._each(indices, lambda column, numbers: column.quoted(numbers, quote))

    def _each(self, indices: Sequence[int], ask: Callable[[Column, list[int]], list[Any]]) -> list[Any]:
        """Ask the columns in the order of the indices, neighbours of one part together."""
        found: list[Any] = []
        for part, run in groupby(indices, lambda index: bisect_right(self.starts, index) - 1):
            start = self.starts[part]
            found += ask(self.columns[part], [index - start for index in run])
        return found


class DerivedColumn(Column):
    def __init__(self, template: Template, columns: dict[str, Column]):
        self.template, self.columns = template, columns

    def values(self, indices: Sequence[int]) -> list[Any]:
        return fill(self.template, self.columns, indices, shell=False)

    texts = values


def fill(template: Template, columns: dict[str, Column], indices: Sequence[int], shell: bool) -> list[str]:
    """Return a template's text for each index."""
    slots = [piece for piece in template if isinstance(piece, tpl.Slot)]
    if not slots:
        return ["".join(map(str, template))] * len(indices)
    if shell:
        filled = [columns[slot.name].quoted(indices, QUOTING[slot.context]) for slot in slots]
    else:
        filled = [columns[slot.name].texts(indices) for slot in slots]
    if len(template) == 1:
        return filled[0]
    pattern = "".join("%s" if isinstance(piece, tpl.Slot) else piece.replace("%", "%%") for piece in template)
    return [pattern % texts for texts in (zip(*filled, strict=True) if len(filled) > 1 else filled[0])]
