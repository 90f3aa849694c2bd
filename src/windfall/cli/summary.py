"""The end of a bag, in a few lines: what came out, why the rest failed, what to type next."""

from __future__ import annotations

from itertools import islice
from typing import Any

from ..client.client import Client
from .output import counts_of, duration, plural, shown

MOST_ROWS = 100_000  # failures looked at to find the causes
MOST_CAUSES = 12

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
}


def cause(row: dict[str, Any], most: int = 80) -> str:
    """Why a task failed, in words that are the same for all that failed the same way; `most` characters of a note."""
    why = row.get("why") or ""
    if row.get("state") == "quarantined":
        return "was there when pilots died, again and again"
    if why == "exit":
        return f"exit {row.get('exit')}"
    if why == "signal":
        return f"killed by signal {row.get('signal')}"
    if why in ("start", "output") and row.get("note"):
        return f"{REASONS[why]}: {shown(row['note'], most)}"
    return REASONS.get(why) or shown(row.get("note") or why or row.get("outcome") or "unknown", most)


def failures(client: Client, bag: int) -> list[tuple[str, int, list[int]]]:
    """Cause, how many, the first tasks; most frequent first."""
    groups: dict[str, tuple[int, list[int]]] = {}
    for state in ("failed", "quarantined"):
        for row in islice(client.results(bag, state=state), MOST_ROWS):
            count, tasks = groups.setdefault(cause(row), (0, []))
            if len(tasks) < 5:
                tasks.append(row["task"])
            groups[cause(row)] = (count + 1, tasks)
    found = [(text, count, tasks) for text, (count, tasks) in groups.items()]
    return sorted(found, key=lambda group: (-group[1], group[0]))


def lines(client: Client, bag: dict[str, Any], elapsed_ms: int) -> list[str]:
    tasks, succeeded, failed, cancelled = counts_of(bag)
    number = bag["bag"]
    parts = [f"{succeeded:,} succeeded"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{cancelled:,} cancelled"] if cancelled else []
    text = [
        f"bag {number} '{shown(bag['name'])}': {plural(tasks, 'task')}: {', '.join(parts)} in {duration(elapsed_ms)}"
    ]
    if failed:
        text += _why(failures(client, number), number)
        text.append(f"  again: windfall retry {number}; then: windfall wait {number}")
    return text


def _why(groups: list[tuple[str, int, list[int]]], bag: int) -> list[str]:
    text = []
    for reason, count, tasks in groups[:MOST_CAUSES]:
        named = ", ".join(map(str, tasks)) + (", …" if count > len(tasks) else "")
        text.append(f"  {count:>6,} × {reason}  (task {named})  windfall logs {bag} {tasks[0]}")
    if len(groups) > MOST_CAUSES:
        rest = sum(count for _, count, _ in groups[MOST_CAUSES:])
        text.append(f"  {rest:>6,} × {len(groups) - MOST_CAUSES} other causes: windfall results {bag} --state failed")
    return text
