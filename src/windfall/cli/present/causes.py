"""Causes of failures, in words and as options of `windfall retry`.

The server sums failures up while they come in and says which tasks share a cause.  The command line counts nothing, so
a bag of ten million tasks costs no more than a bag of ten.  In a cause's note, `#` stands for any number.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from windfall.cli.present.output import shown

REASONS = {
    "time": "ran past the time limit",
    "memory": "ran out of memory",
    "disk": "ran out of disk",
    "output": "brought no valid output home",
    "start": "could not be started",
    "program": "has no program to run",
    "input": "could not get an input",
    "gone": "was lost with its pilot",
    "lease": "was lost: its pilot stopped reporting",
    "user": "on request",
    "upstream": "a task that it waits for failed",
    "gather": "could not get the files of another target",
    "quarantined": "ran when pilots died, again and again",
    "other": "various other causes",
}
NOTED = ("start", "output", "input", "gather")  # reasons whose note names the file or the program
FIELDS = ("state", "why", "exit", "signal", "note")


def words(row: dict[str, Any], most: int = 80) -> str:
    """Say why a task failed, with at most `most` characters of its note."""
    if row.get("state") == "quarantined":
        return REASONS["quarantined"]
    return _by_reason(row, most) or shown(row.get("note") or row.get("why") or row.get("outcome") or "unknown", most)


def _by_reason(row: dict[str, Any], most: int) -> str:
    why, note = row.get("why") or "", row.get("note")
    if why == "exit" and (row.get("exit") or not note):
        return f"exit {row.get('exit') or 0}"
    if why == "signal":
        return f"killed by signal {row.get('signal')}"
    if why == "program" and note:
        return shown(note, 2 * most)
    if why in NOTED and note:
        return f"{REASONS[why]}: {shown(note, most)}"
    return REASONS.get(why, "")


def says(cause: dict[str, Any]) -> str:
    """Say why all tasks of one cause failed; the pattern of their notes replaces a single task's note."""
    note = cause["note"] if cause["retry"]["why"] == "program" else cause["retry"]["note"] or cause["note"]
    return words({**cause, "note": note})


def options(cause: dict[str, Any], causes: list[dict[str, Any]]) -> str:
    """Return the options of `windfall retry` that choose this cause: only those that tell it from the other causes."""
    full = cause["retry"]
    kept = {name: full[name] for name in FIELDS if full[name] or name == "why"}
    if kept["state"] == "failed":
        del kept["state"]
    for name in FIELDS:
        if name not in kept and any(_fits(other["retry"], kept) and other["retry"][name] != full[name]
                                    for other in causes):  # fmt: skip
            kept[name] = full[name]
    return " ".join(f"--{name} {_quoted(str(kept[name]))}" for name in FIELDS if name in kept)


def _fits(full: dict[str, Any], selector: dict[str, Any]) -> bool:
    return all(full[name] == value for name, value in selector.items())


def _quoted(text: str) -> str:
    """Quote text for a shell: in double quotes, which are easier to read, where the shell leaves the text alone."""
    if "'" in text and not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    from shlex import quote

    return quote(text)


# --- options that choose a cause -----------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", choices=("failed", "quarantined"), help="only tasks in this state")
    parser.add_argument("--why", metavar="REASON",
                        help="only tasks that failed for this reason: exit, signal, time, memory, …")
    parser.add_argument("--exit", type=int, metavar="CODE", help="only tasks that ended with this exit code")
    parser.add_argument("--signal", type=int, metavar="N", help="only tasks that this signal killed")
    parser.add_argument("--note", metavar="TEXT", help="only tasks with this note; # stands for any number")


def chosen(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the cause that the options choose; None if they choose none."""
    return {name: value for name in FIELDS if (value := getattr(args, name)) is not None} or None
