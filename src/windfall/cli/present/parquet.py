"""Write rows to a Parquet file while they arrive.

A Parquet file is a series of row groups, each with one chunk per column, and a footer that locates the chunks, so a
writer for flat tables is a page of code; `docs/decisions/0004-parquet.md` says why we have our own.  Columns are
optional, plain and gzipped, which every reader knows.

The type of a parameter or of a captured value is certain only after the last row.  The writer takes it from the first
group of rows, and begins the file again with a wider type when a later value does not fit.
"""

from __future__ import annotations

import os
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from windfall import __version__
from windfall.errors import BadInput

ROWS = 50_000  # in one group
GROUP_BYTES = 32 << 20  # text in one group
BOOL, INT, DOUBLE, TEXT, MOMENT = "bool", "int", "double", "text", "moment"
_PHYSICAL = {BOOL: 0, INT: 2, DOUBLE: 5, TEXT: 6, MOMENT: 2}
_CONVERTED = {TEXT: 0, MOMENT: 9}  # UTF8, TIMESTAMP_MILLIS
_MAGIC = b"PAR1"
_PLAIN, _RLE, _GZIP, _OPTIONAL = 0, 3, 2, 1
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12

Columns = Sequence[tuple[str, str | None]]  # name, and kind; None: the values decide


class _Widen(Exception):
    """A column has a value that does not fit the kind taken from earlier rows."""


def write(path: str, columns: Columns, rows: Callable[[], Iterable[Sequence[Any]]]) -> int:
    """Write the rows and return how many there are.  The file appears under its name when it is complete."""
    part = f"{path}.{os.getpid()}.part"
    kinds: dict[int, str] = {n: kind for n, (_, kind) in enumerate(columns) if kind}
    try:
        while True:
            try:
                with open(part, "wb") as stream:
                    count = _Writer(stream, [name for name, _ in columns], kinds).write(rows())
                os.replace(part, path)
                return count
            except _Widen:
                continue
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    finally:
        if os.path.exists(part):
            os.unlink(part)


# --- kinds ---------------------------------------------------------------------------------------------------


def kind_of(values: Iterable[object]) -> str | None:
    """Return the narrowest kind that holds all values; None if there is no value."""
    types = {type(value) for value in values}
    types.discard(type(None))
    if not types:
        return None
    if types == {bool}:
        return BOOL
    numbers = [value for value in values if isinstance(value, (int, float))]
    if types == {int} and all(-(2**63) <= value < 2**63 for value in numbers):
        return INT
    return DOUBLE if types in ({float}, {int, float}) and all(map(_is_exact, numbers)) else TEXT


def _is_exact(number: int | float) -> bool:
    """Does a double hold the number exactly?"""
    return isinstance(number, float) or abs(number) <= 2**53


def _wider(one: str, other: str) -> str:
    if one == other or {one, other} == {INT, MOMENT}:
        return one
    return DOUBLE if {one, other} == {INT, DOUBLE} else TEXT


def _text(value: object) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(value).encode("utf-8", "replace")


# --- the file ------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, stream: BinaryIO, names: list[str], kinds: dict[int, str]):
        self._stream, self._names, self._kinds = stream, names, kinds
        self._groups: list[tuple[int, list[tuple[int, int, int]]]] = []  # rows, then (at, raw, packed) per column
        self._at = 0

    def write(self, rows: Iterable[Sequence[Any]]) -> int:
        self._put(_MAGIC)
        total = 0
        for group in _groups(rows):
            self._group(group)
            total += len(group)
        self._footer(total)
        return total

    def _put(self, data: bytes) -> None:
        self._stream.write(data)
        self._at += len(data)

    def _group(self, rows: list[Sequence[Any]]) -> None:
        chunks = []
        for n, values in enumerate(zip(*rows, strict=True)):
            body = _levels(values) + self._values(n, values)
            packed = _gzip(body)
            head = _page_head(len(values), len(body), len(packed))
            chunks.append((self._at, len(head) + len(body), len(head) + len(packed)))
            self._put(head + packed)
        self._groups.append((len(rows), chunks))

    def _values(self, n: int, values: Sequence[Any]) -> bytes:
        found, kind = kind_of(values), self._kinds.get(n)
        if found is None:
            return b""
        if kind is None:
            kind = self._kinds[n] = found
        wide = _wider(kind, found)
        if kind not in (wide, TEXT):
            self._kinds[n] = wide
            raise _Widen
        return _ENCODE[kind]([value for value in values if value is not None])

    def _footer(self, total: int) -> None:
        schema = [_struct([(3, _I32, 0), (4, _BINARY, "results"), (5, _I32, len(self._names))])]
        schema += [self._element(n, name) for n, name in enumerate(self._names)]
        groups = [self._group_meta(count, chunks) for count, chunks in self._groups]
        footer = _struct([
            (1, _I32, 1), (2, _LIST, (_STRUCT, schema)), (3, _I64, total), (4, _LIST, (_STRUCT, groups)),
            (6, _BINARY, f"windfall version {__version__}"),
        ])
        self._put(footer + len(footer).to_bytes(4, "little") + _MAGIC)

    def _element(self, n: int, name: str) -> bytes:
        kind = self._kinds.get(n, TEXT)
        converted = [(6, _I32, _CONVERTED[kind])] if kind in _CONVERTED else []
        return _struct([(1, _I32, _PHYSICAL[kind]), (3, _I32, _OPTIONAL), (4, _BINARY, name), *converted])

    def _group_meta(self, count: int, chunks: list[tuple[int, int, int]]) -> bytes:
        columns = []
        for n, (at, raw, packed) in enumerate(chunks):
            meta = _struct([
                (1, _I32, _PHYSICAL[self._kinds.get(n, TEXT)]),
                (2, _LIST, (_I32, [_zigzag(_PLAIN), _zigzag(_RLE)])),
                (3, _LIST, (_BINARY, [_binary(self._names[n])])),
                (4, _I32, _GZIP), (5, _I64, count), (6, _I64, raw), (7, _I64, packed), (9, _I64, at),
            ])  # fmt: skip
            columns.append(_struct([(2, _I64, at), (3, _STRUCT, meta)]))
        size = sum(raw for _, raw, _ in chunks)
        return _struct([(1, _LIST, (_STRUCT, columns)), (2, _I64, size), (3, _I64, count)])


def _groups(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    group: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(cell) for cell in row if isinstance(cell, str))
        if len(group) >= ROWS or size > GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


# --- values --------------------------------------------------------------------------------------------------


def _numbers(code: str, values: list[Any]) -> bytes:
    data = array(code, values)
    if sys.byteorder == "big":
        data.byteswap()
    return data.tobytes()


def _texts(values: list[Any]) -> bytes:
    texts = map(_text, values)
    return b"".join(part for text in texts for part in (len(text).to_bytes(4, "little"), text))


def _bits(values: Sequence[object]) -> bytes:
    """Pack truth values into bytes, the first value in the lowest bit."""
    word = int("".join("1" if value else "0" for value in reversed(values)) or "0", 2)
    return word.to_bytes((len(values) + 7) // 8, "little")


_ENCODE: dict[str, Callable[[list[Any]], bytes]] = {
    BOOL: _bits,
    INT: lambda values: _numbers("q", values),
    MOMENT: lambda values: _numbers("q", values),
    DOUBLE: lambda values: _numbers("d", values),
    TEXT: _texts,
}


def _levels(values: Sequence[object]) -> bytes:
    """Encode which rows have a value: as one run if all or none have, else as a bit per row."""
    present = [value is not None for value in values]
    if all(present) or not any(present):
        runs = _varint(len(present) << 1) + bytes([present[0]])
    else:
        runs = _varint((len(present) + 7) // 8 << 1 | 1) + _bits(present)
    return len(runs).to_bytes(4, "little") + runs


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


def _page_head(count: int, raw: int, packed: int) -> bytes:
    data = _struct([(1, _I32, count), (2, _I32, _PLAIN), (3, _I32, _RLE), (4, _I32, _RLE)])
    return _struct([(1, _I32, 0), (2, _I32, raw), (3, _I32, packed), (5, _STRUCT, data)])


# --- Thrift's compact form, as far as it is needed ------------------------------------------------------------


def _struct(fields: list[tuple[int, int, Any]]) -> bytes:
    """Encode fields of (number, type, value); the numbers rise by less than sixteen."""
    parts, before = [], 0
    for field, kind, value in fields:
        parts.append(bytes([(field - before) << 4 | kind]))
        parts.append(_encoded(kind, value))
        before = field
    return b"".join(parts) + b"\0"


def _encoded(kind: int, value: Any) -> bytes:
    if kind in (_I32, _I64):
        return _zigzag(value)
    if kind == _BINARY:
        return _binary(value)
    if kind == _LIST:
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
        return head + b"".join(items)
    return bytes(value)


def _binary(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data)) + data


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
