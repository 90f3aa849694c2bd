"""Why tasks failed, in words, and as options of `windfall retry`.

The server sums failures up while they come in and says which tasks have the same cause; nothing is counted here, so a
bag of ten million tasks costs no more than one of ten.  A note is named by its pattern: `#` stands for any number.
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
    "output": "did not make an output, or failed its check",
    "start": "could not be started",
    "input": "could not get an input",
    "gone": "was lost with its pilot",
    "lease": "was lost in silence",
    "user": "as asked for",
    "upstream": "what it waits for failed",
    "gather": "the files that it takes cannot be brought to it",
    "quarantined": "was there when pilots died, again and again",
    "other": "for reasons that are too many to name",
}
NOTED = ("start", "output", "input", "gather")  # reasons of which the note says which one it was
FIELDS = ("state", "why", "exit", "signal", "note")


def words(row: dict[str, Any], most: int = 80) -> str:
    """Why a task failed; `most` characters of a note."""
    why, note = row.get("why") or "", row.get("note")
    if row.get("state") == "quarantined":
        return REASONS["quarantined"]
    if why == "exit" and (row.get("exit") or not note):
        return f"exit {row.get('exit') or 0}"
    if why == "signal":
        return f"killed by signal {row.get('signal')}"
    if why in NOTED and note:
        return f"{REASONS[why]}: {shown(note, most)}"
    return REASONS.get(why) or shown(note or why or row.get("outcome") or "unknown", most)


def says(cause: dict[str, Any]) -> str:
    """Why all tasks of one cause failed: their pattern, where a single note would say too much."""
    return words({**cause, "note": cause["retry"]["note"] or cause["note"]})


def options(cause: dict[str, Any], causes: list[dict[str, Any]]) -> str:
    """As `windfall retry` takes it: as short as tells this cause from the others."""
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
    """For a shell, and for eyes where that can be had."""
    if "'" in text and not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    from shlex import quote

    return quote(text)


# --- choosing by cause ---------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", choices=("failed", "quarantined"), help="only tasks that stand so")
    parser.add_argument("--why", metavar="REASON", help="only tasks that failed so: exit, signal, time, memory, …")
    parser.add_argument("--exit", type=int, metavar="CODE", help="only with this exit code")
    parser.add_argument("--signal", type=int, metavar="N", help="only killed by this signal")
    parser.add_argument("--note", metavar="TEXT", help="only with this sentence, # for every number in it")


def chosen(args: argparse.Namespace) -> dict[str, Any] | None:
    """What the options ask for; None where they ask for nothing."""
    return {name: value for name in FIELDS if (value := getattr(args, name)) is not None} or None
