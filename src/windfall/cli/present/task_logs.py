"""The output of many tasks: each task's below a line with its number, or with the number before each line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING, NamedTuple

from windfall.cli.present.causes import words as cause
from windfall.cli.present.output import Bytes, print_json_rows, say
from windfall.errors import NotFound
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.client.types import Row

FEW = 10  # tasks whose output `run` prints, if it is short
SHORT = 16 << 10  # bytes of all of it
BAD = ("failed", "quarantined")


class Wanted(NamedTuple):
    """The tasks and streams to print."""

    tasks: list[int] | None  # None: all
    failed: bool
    streams: list[str]


def print_logs(client: Client, bag: int, wanted: Wanted, tag: bool) -> int:
    """Print what tasks have written, in the order of their numbers."""
    printed = 0
    for row in _rows(client, bag, wanted):
        if text := b"".join(_with_line_end(_log(client, bag, row, name)) for name in wanted.streams):
            Bytes(sys.stdout).write(_tagged(row["task"], text) if tag else _header(row) + text, final=True)
            printed += 1
    if not printed:
        say("none of the tasks has written anything")
    if more := _not_ended(client, bag, wanted):
        say(f"{plural(more, 'task')} of bag {bag} have not ended; to follow them: windfall logs -f {bag}")
    return 0


def print_few(client: Client, bag: int) -> bool:
    """Print what the tasks of a small bag have written, like one task's output; return False if it is too much."""
    rows = list(client.results(bag))
    if sum(row["out_size"] + row["err_size"] for row in rows) > SHORT:
        return False
    for row in rows:
        for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
            Bytes(stream).write(_with_line_end(_log(client, bag, row, name)), final=True)
    return True


def print_logs_as_json(client: Client, bag: int, wanted: Wanted) -> int:
    print_json_rows(
        {"task": row["task"], "state": row["state"],
         **{name: _log(client, bag, row, name).decode("utf-8", "replace") for name in wanted.streams}}
        for row in _rows(client, bag, wanted))
    return 0


def _rows(client: Client, bag: int, wanted: Wanted) -> Iterator[Row]:
    """Yield the results of the wanted tasks that have ended."""
    chosen = dict.fromkeys(wanted.tasks or ())
    if wanted.failed:
        found = merge(*(client.results(bag, state) for state in BAD), key=lambda row: row["task"])
        yield from (row for row in found if wanted.tasks is None or row["task"] in chosen)
        return
    if wanted.tasks is None:
        yield from client.results(bag)
        return
    last = max(chosen)
    for row in client.results(bag, after=min(chosen) - 1):
        if row["task"] > last:
            return
        if row["task"] in chosen:
            yield row


def _log(client: Client, bag: int, row: Row, stream: str) -> bytes:
    if not row["err_size" if stream == "err" else "out_size"]:
        return b""
    try:
        return b"".join(client.log(bag, row["task"], stream))
    except NotFound:
        return b""  # the task runs again


def _header(row: Row) -> bytes:
    why = "" if row["state"] == "succeeded" else f", {row['state']}: {cause(dict(row))}"
    return f"==> task {row['task']}{why} <==\n".encode()


def _tagged(task: int, text: bytes) -> bytes:
    return b"".join(b"%d: %s\n" % (task, line) for line in text.removesuffix(b"\n").split(b"\n"))


def _with_line_end(text: bytes) -> bytes:
    return text if not text or text.endswith(b"\n") else text + b"\n"


def _not_ended(client: Client, bag: int, wanted: Wanted) -> int:
    """Count the bag's tasks that have not ended, where all are wanted."""
    if wanted.failed or wanted.tasks is not None:
        return 0
    counts = client.bag(bag)["counts"]
    return sum(counts.get(state, 0) for state in ("ready", "active", "validating", "waiting"))
