"""What people and programs get to see: tables, JSON, sentences."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from windfall.model.units import format_duration

_SPELT = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}  # but tab and newline
LOOK_AHEAD = 1000  # rows read before the widths of a table are settled


def harmless(text: str) -> str:
    """What tasks and pilots wrote must not steer a terminal: control characters are spelt out."""
    return text.translate(_SPELT)


def say(text: str) -> None:
    """To the person; standard output belongs to the results, and what went there before is seen before."""
    sys.stdout.flush()
    print(harmless(text), file=sys.stderr, flush=True)


class Screen:
    """Standard output where it is a terminal; a file or a pipe gets every byte as it is."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._stream.write(harmless(text))
        return len(text)


class Bytes:
    """What a task wrote, on its way to one of our streams."""

    def __init__(self, stream: Any) -> None:
        from codecs import getincrementaldecoder

        self._stream = stream
        self._decoder = getincrementaldecoder("utf-8")("replace") if stream.isatty() else None

    def write(self, data: bytes, final: bool = False) -> None:
        if self._decoder is None:
            self._stream.flush()
            self._stream.buffer.write(data)
        else:
            self._stream.write(harmless(self._decoder.decode(data, final).replace("\r\n", "\n")))
        self._stream.flush()


def print_json(value: object) -> None:
    import json

    print(json.dumps(value, ensure_ascii=False, default=str))


def print_json_rows(rows: Iterable[object]) -> None:
    """One JSON array, one row per line: a single document for a parser, lines for grep, and it streams."""
    import json

    write = sys.stdout.write
    separator = "[\n"
    for row in rows:
        write(separator + json.dumps(row, ensure_ascii=False, default=str))
        separator = ",\n"
    write("[]\n" if separator == "[\n" else "\n]\n")


def print_table(header: list[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()) -> None:
    """Columns as wide as the first thousand rows need; numbers on the right."""
    iterator: Iterator[list[str]] = ([shown(cell) for cell in row] for row in rows)
    first = list(islice(iterator, LOOK_AHEAD))
    widths = [max(map(len, column)) for column in zip(header, *first, strict=True)]
    right = set(right)
    for row in chain([header], first, iterator):
        cells = [
            cell.rjust(width) if n in right else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def shown(cell: object, most: int = 60) -> str:
    """One line that does nothing to the terminal, whatever a task put into it."""
    text = "" if cell is None else str(cell)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "?" if c != "\n" else " " for c in text)
    return text if len(text) <= most else text[: most - 1] + "…"


def clock(ms: int | None) -> str:
    """A moment, as short as is clear: time today, else date and time."""
    if not ms:
        return ""
    moment = time.localtime(ms / 1000)
    today = time.localtime()[:3] == moment[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", moment)


def duration(ms: int | None) -> str:
    return "" if ms is None else format_duration(int(ms))


def quota_line(usage: dict[str, Any]) -> str:
    """How much of the quota is used; empty where there is none."""
    if not usage["quota"]:
        return ""
    from windfall.model.units import format_size

    return f"your files here take {format_size(usage['used'])} of {format_size(usage['quota'])}"


def counts_of(bag: dict[str, Any]) -> tuple[int, int, int, int]:
    """Tasks, succeeded, failed (quarantined ones too), cancelled."""
    counts = bag["counts"]
    failed = counts.get("failed", 0) + counts.get("quarantined", 0)
    return bag["tasks"], counts.get("succeeded", 0), failed, counts.get("cancelled", 0)
