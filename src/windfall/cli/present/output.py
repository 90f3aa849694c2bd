"""Output for people and programs: tables, JSON, sentences."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from windfall.model.units import format_duration

# all control characters except tab and newline
_SPELT = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
LOOK_AHEAD = 1000  # rows read before the columns of a table get their widths


def harmless(text: str) -> str:
    """Spell out control characters, so that the text of a task or pilot cannot steer a terminal."""
    return text.translate(_SPELT)


def say(text: str) -> None:
    """Print a message for the person on standard error, after all earlier output; standard output is for results."""
    sys.stdout.flush()
    print(harmless(text), file=sys.stderr, flush=True)


class Screen:
    """Standard output on a terminal, with control characters spelt out.  Files and pipes get every byte unchanged."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._stream.write(harmless(text))
        return len(text)


class Bytes:
    """A stream that prints what a task wrote: unchanged to a file or pipe, harmless text to a terminal."""

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
    """Print the rows as they come, as one JSON array with a row per line: a document for parsers, lines for grep."""
    import json

    write = sys.stdout.write
    separator = "[\n"
    for row in rows:
        write(separator + json.dumps(row, ensure_ascii=False, default=str))
        separator = ",\n"
    write("[]\n" if separator == "[\n" else "\n]\n")


def print_table(header: list[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()) -> None:
    """Print a table whose columns fit the first thousand rows; columns with an index in `right` are aligned right."""
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
    """Return a cell as one printable line of at most `most` characters, whatever a task put into it."""
    text = "" if cell is None else str(cell)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "?" if c != "\n" else " " for c in text)
    return text if len(text) <= most else text[: most - 1] + "…"


def clock(ms: int | None) -> str:
    """Format a moment: the time if it is today, else date and time."""
    if not ms:
        return ""
    moment = time.localtime(ms / 1000)
    today = time.localtime()[:3] == moment[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", moment)


def files_of(bag: Mapping[str, Any]) -> str:
    """Say of when the files are that a bag's tasks get."""
    return f"as read again at {clock(bag['revised'])}" if bag.get("revised") else "as submitted"


def duration(ms: int | None) -> str:
    return "" if ms is None else format_duration(int(ms))


def quota_line(usage: dict[str, Any]) -> str:
    """Say how much of their quota the user's files take; return "" without a quota."""
    if not usage["quota"]:
        return ""
    from windfall.model.units import format_size

    return f"your files on the server take {format_size(usage['used'])} of {format_size(usage['quota'])}"


def counts_of(bag: dict[str, Any]) -> tuple[int, int, int, int]:
    """Count the bag's tasks: all, succeeded, failed or quarantined, cancelled."""
    counts = bag["counts"]
    failed = counts.get("failed", 0) + counts.get("quarantined", 0)
    return bag["tasks"], counts.get("succeeded", 0), failed, counts.get("cancelled", 0)
