"""Standard Workload Format: logs of real batch systems, a job per line, eighteen numbers each (Feitelson's archive).

Times are seconds since the log's start.  -1 stands for an unknown number; lines that begin with ";" are the header.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from windfall.errors import BadInput

FIELDS = 18
MAX_LINE = 10_000
MAX_HEADER = 10_000  # lines
MAX_JOBS = 20_000_000
BROKEN = (OSError, EOFError, zlib.error)


class LogJob(NamedTuple):
    """A job of the log, with the numbers that a batch queue needs."""

    number: int
    submit: float
    run: float
    procs: int
    estimate: float  # the run time that the user asked for; if unknown, the real one


def read(path: str | Path) -> list[LogJob]:
    """Return the jobs of a log, plain or gzipped, by time of submission, then number; leave out jobs that never ran."""
    jobs = list(parse(_lines(path), str(path)))
    jobs.sort(key=lambda job: (job.submit, job.number))
    return jobs


def processors(path: str | Path) -> int | None:
    """Return the number of the machine's processors, or else of its nodes, by the log's header."""
    header: dict[str, int] = {}
    for number, line in enumerate(_lines(path)):
        if not line.startswith(";") or number > MAX_HEADER:
            break
        key, _, value = line[1:].partition(":")
        if value.strip().isdecimal() and len(value) < 20:
            header.setdefault(key.strip(), int(value))
    return header.get("MaxProcs") or header.get("MaxNodes") or None


def _lines(path: str | Path) -> Iterator[str]:
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8", errors="replace") as file:
            while line := str(file.readline(MAX_LINE + 1)):
                yield line
    except (*BROKEN, ValueError) as error:
        raise BadInput(f"cannot read {path}: {error}") from error


def parse(lines: Iterable[str], name: str) -> Iterator[LogJob]:
    for number, line in enumerate(lines, 1):
        if number > MAX_JOBS:
            raise _broken(name, number, "", f"a log of more than {MAX_JOBS:,} lines is too long")
        text = line.strip()
        if not text or text.startswith(";"):
            continue
        job = _job(text, name, number)
        if job is not None:
            yield job


def _numbers(text: str, name: str, number: int) -> list[float]:
    fields = text.split() if len(text) < MAX_LINE else []
    if len(fields) != FIELDS:
        raise _broken(name, number, text, f"a line of SWF has {FIELDS} numbers, this has {len(fields)}")
    try:
        values = [float(field) for field in fields]
    except ValueError as error:
        raise _broken(name, number, text, f"a line of SWF has numbers only: {error}") from None
    if not all(-1e15 < value < 1e15 for value in values):
        raise _broken(name, number, text, "a number is out of bounds")
    return values


def _job(text: str, name: str, number: int) -> LogJob | None:
    ident, submit, _, run, used, _, _, asked, estimate = _numbers(text, name, number)[:9]
    procs = int(asked if asked > 0 else used)
    if submit < 0:
        raise _broken(name, number, text, "the time of submission is negative")
    if run < 0 or procs <= 0:
        return None  # the job was cancelled before it started, or its run time or width is unknown
    return LogJob(int(ident), submit, run, procs, estimate if estimate > 0 else run)


def _broken(name: str, number: int, text: str, what: str) -> BadInput:
    hint = "see the format's definition at the Parallel Workloads Archive"
    return BadInput(what, hint, f"{name}:{number}", text[:80])
