"""Why tasks failed: one cause for all that failed the same way, in words and as options of `windfall retry`.

Two tasks have the same cause where the reason, the exit code and the signal are the same and, where a sentence says
more (a missing file, a check), that sentence with the tasks' own parameters and numbers taken out of it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..errors import BadInput
from .output import shown

REASONS = {
    "time": "ran past the time limit",
    "memory": "ran out of memory",
    "disk": "ran out of disk",
    "output": "did not make an output, or failed its check",
    "start": "could not be started",
    "input": "could not get an input",
    "gone": "was lost with its pilot",
    "lease": "was lost in silence",
    "user": "as asked for",
    "upstream": "what it waits for failed",
    "quarantined": "was there when pilots died, again and again",
}
NOTED = ("start", "output", "input")  # reasons of which the note says which one it was
MAX_NOTE = 200
MAX_STARS = 8
_NUMBER = re.compile(r"\d+(\.\d+)?")


class Cause(NamedTuple):
    why: str
    exit: int | None = None
    signal: int | None = None
    note: str = ""  # with `*` for what differs from task to task

    def options(self) -> str:
        """As `windfall retry` takes it."""
        parts = ["--why", self.why or "unknown"]
        for name in ("exit", "signal", "note"):
            value = getattr(self, name)
            parts += [f"--{name}", str(value)] if value not in (None, "") else []
        return " ".join(map(_quoted, parts))


def _quoted(text: str) -> str:
    """For a shell, and for eyes where that can be had."""
    if "'" in text and not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    from shlex import quote

    return quote(text)


def of(row: dict[str, Any]) -> Cause:
    if row.get("state") == "quarantined":
        return Cause("quarantined")
    why = row.get("why") or ""
    if why == "exit":
        return Cause(why, exit=row.get("exit"))
    if why == "signal":
        return Cause(why, signal=row.get("signal"))
    return Cause(why, note=_common(row) if why in NOTED else "")


def _common(row: dict[str, Any]) -> str:
    """The note without what is this task's own."""
    note = shown(row.get("note"), MAX_NOTE).replace("…", "*")
    own = sorted((_text(value) for value in (row.get("params") or {}).values()), key=len, reverse=True)
    for text in own:
        if text:
            note = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "*", note)
    return re.sub(r"\*[*\s]*\*|\*+", "*", _NUMBER.sub("*", note))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def words(row: dict[str, Any], most: int = 80) -> str:
    """Why a task failed; `most` characters of a note."""
    why = of(row).why
    if why == "exit":
        return f"exit {row.get('exit')}"
    if why == "signal":
        return f"killed by signal {row.get('signal')}"
    if why in NOTED and row.get("note"):
        return f"{REASONS[why]}: {shown(row['note'], most)}"
    return REASONS.get(why) or shown(row.get("note") or why or row.get("outcome") or "unknown", most)


class Group:
    """Tasks with one cause."""

    def __init__(self, cause: Cause, row: dict[str, Any]):
        self.cause, self.count = cause, 0
        self.text = words({**row, "note": cause.note or row.get("note")})
        self.tasks: list[int] = []  # the first ones

    def add(self, task: int) -> None:
        self.count += 1
        if len(self.tasks) < 3:
            self.tasks.append(task)


def grouped(rows: Iterable[dict[str, Any]]) -> list[Group]:
    """Most frequent first."""
    groups: dict[Cause, Group] = {}
    for row in rows:
        cause = of(row)
        if cause not in groups:
            groups[cause] = Group(cause, row)
        groups[cause].add(row["task"])
    return sorted(groups.values(), key=lambda group: (-group.count, group.text))


# --- choosing by cause ---------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--why", choices=("exit", "signal", *REASONS, "unknown"), help="only tasks that failed so")
    parser.add_argument("--exit", type=int, metavar="CODE", help="only with this exit code")
    parser.add_argument("--signal", type=int, metavar="N", help="only killed by this signal")
    parser.add_argument("--note", metavar="TEXT", help="only with this reason; * stands for anything")


def chosen(args: argparse.Namespace) -> Selector | None:
    """What the options ask for; None where they ask for nothing."""
    if all(getattr(args, name) is None for name in ("why", "exit", "signal", "note")):
        return None
    if args.note is not None and len(args.note) > 2 * MAX_NOTE:
        raise BadInput("--note is too long", f"{2 * MAX_NOTE} characters at most; * stands for anything")
    return Selector(args.why, args.exit, args.signal, args.note)


class Selector:
    def __init__(self, why: str | None, code: int | None, number: int | None, note: str | None):
        self._why = "" if why == "unknown" else why
        self._exit, self._signal = code, number
        self._note = None if note is None else _pattern(note)

    def __call__(self, row: dict[str, Any]) -> bool:
        cause = of(row)
        if self._why is not None and cause.why != self._why:
            return False
        if self._exit is not None and (cause.why, row.get("exit")) != ("exit", self._exit):
            return False
        if self._signal is not None and (cause.why, row.get("signal")) != ("signal", self._signal):
            return False
        return self._note is None or bool(self._note.fullmatch(shown(row.get("note"), 10_000)))

    def tasks(self, rows: Iterable[dict[str, Any]]) -> Iterator[int]:
        return (row["task"] for row in rows if self(row))


def _pattern(note: str) -> re.Pattern[str]:
    parts = re.split(r"\*+", note)
    if len(parts) > MAX_STARS + 1:  # more would take long to match and say no more
        parts = [*parts[:MAX_STARS], parts[-1]]
    return re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
