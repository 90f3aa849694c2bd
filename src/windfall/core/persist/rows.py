"""State records as rows of plain values, by the declarations of their durable fields.

A snapshot says once, for every kind of record, which fields its rows have.  A row with fewer fields than today's
record gets the defaults of the others; a row with a field that today's record lacks was written by a newer Windfall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, get_args, get_origin

import msgspec

from windfall.core.messages.facts import TargetShape
from windfall.core.state.fields import durable, hints
from windfall.errors import StoreTooNew

Fields = dict[str, list[str]]  # of each kind of record
Convert = Callable[[Any], Any]
_PLAIN = (int, float, str, bytes, bool)


def lean(shape: TargetShape) -> TargetShape:
    """Return the shape without its costs: they may be many, and have a chunk of their own, which never changes."""
    return msgspec.structs.replace(shape, costs=b"") if shape.costs else shape


# --- to rows -------------------------------------------------------------------------------------------------------


def pack(record: object) -> list[Any]:
    kind: Any = type(record)
    read, converters = _packer(kind)
    row = list(read(record))
    for place, convert in converters:
        row[place] = convert(row[place])
    return row


@cache
def _packer(kind: type) -> tuple[Callable[[object], tuple[Any, ...]], list[tuple[int, Convert]]]:
    found = ((place, _to_row(hints(kind)[name])) for place, name in enumerate(durable(kind)))
    return attrgetter(*durable(kind)), [(place, convert) for place, convert in found if convert is not None]


def _to_row(hint: Any) -> Convert | None:
    if hint is TargetShape:
        return lean
    if is_dataclass(hint):
        return pack
    inner = get_args(hint)[-1] if get_origin(hint) in (dict, list) else None
    if inner is None or not is_dataclass(inner):
        return None
    if get_origin(hint) is dict:
        return lambda value: {key: pack(each) for key, each in value.items()}
    return lambda value: [pack(each) for each in value]


# --- and back ------------------------------------------------------------------------------------------------------


class Reader:
    """Makes records of a snapshot's rows."""

    def __init__(self, fields: Fields, records: Iterable[type]) -> None:
        self._columns = {kind: self._of(kind, fields[kind.__name__]) for kind in records}

    def values(self, kind: type, row: Iterable[Any]) -> dict[str, Any]:
        """Return the fields of the record that a row of the snapshot holds, by name, as the record has them."""
        return {name: value if convert is None else convert(value)
                for (name, convert), value in zip(self._columns[kind], row, strict=True)}

    def read(self, kind: type, row: Iterable[Any]) -> Any:
        return kind(**self.values(kind, row))

    def _of(self, kind: type, names: list[str]) -> list[tuple[str, Convert | None]]:
        known = hints(kind)
        if strange := [name for name in names if name not in known]:
            raise StoreTooNew(f"the snapshot has {kind.__name__}.{strange[0]}, which this Windfall does not know",
                              "start the newer Windfall that wrote it; nothing was changed")
        return [(name, self._from_row(known[name])) for name in names]

    def _from_row(self, hint: Any) -> Convert | None:
        if hint in _PLAIN:
            return None
        if is_dataclass(hint):
            return lambda row: self.read(hint, row)  # type: ignore[arg-type]
        inner = get_args(hint)[-1] if get_origin(hint) in (dict, list) else None
        if inner is None or not is_dataclass(inner):
            return lambda value: msgspec.convert(value, hint)
        if get_origin(hint) is dict:
            key = get_args(hint)[0]
            return lambda rows: {msgspec.convert(k, key): self.read(inner, row)  # type: ignore[arg-type]
                                 for k, row in rows.items()}
        return lambda rows: [self.read(inner, row) for row in rows]  # type: ignore[arg-type]
