"""Captured texts as the numbers that they spell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from windfall.client.types import Row

_INT = re.compile(r"-?(0|[1-9]\d{0,17})")
_FLOAT = re.compile(r"[+-]?(\d{1,400}\.?\d{0,400}|\.\d{1,400})([eE][+-]?\d{1,4})?|[+-]?inf|nan", re.IGNORECASE)
_PADDED = re.compile(r"[+-]?0\d")


def number(text: object) -> object:
    """Return the number that a captured text spells, as `7` or `1.5e3`; else the text: `007` is a name."""
    if not isinstance(text, str):
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and not _PADDED.match(text):
        return float(text)
    return text


def with_numbers(row: Row) -> Row:
    """Turn a row's captured texts into numbers, in place; return the row."""
    values = row.get("values")
    if values:
        row["values"] = {name: cast("str | int | float", number(text)) for name, text in values.items()}
    return row
