"""A summary of an ended bag: how many tasks succeeded, why the others failed, which commands to type next."""

from __future__ import annotations

from typing import Any

from windfall.cli.present.causes import options, says
from windfall.cli.present.output import counts_of, duration, shown
from windfall.model.units import plural

MOST_CAUSES = 12
MOST_TASKS = 3  # named with a cause


def lines(bag: dict[str, Any], elapsed_ms: int, causes: list[dict[str, Any]]) -> list[str]:
    tasks, succeeded, failed, cancelled = counts_of(bag)
    number = bag["bag"]
    parts = [f"{succeeded:,} succeeded"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{cancelled:,} cancelled"] if cancelled else []
    text = [
        f"bag {number} '{shown(bag['name'])}': {plural(tasks, 'task')}: {', '.join(parts)} in {duration(elapsed_ms)}"
    ]
    if failed:
        text += _why(causes, number)
        text.append(f"  retry all of them: windfall retry {number}; then: windfall wait {number}")
        text.append(f"  if you have mended their files: windfall rerun {number} --failed")
    return text


def _why(causes: list[dict[str, Any]], bag: int) -> list[str]:
    text = []
    for cause in causes[:MOST_CAUSES]:
        tasks = cause["tasks"][:MOST_TASKS]
        named = ", ".join(map(str, tasks)) + (", …" if cause["count"] > len(tasks) else "")
        text.append(f"  {cause['count']:>6,} × {says(cause)}  (task {named})")
        text.append(f"           windfall logs {bag} {tasks[0]}    {_retry(cause, causes, bag)}")
    if len(causes) > MOST_CAUSES:
        rest = sum(cause["count"] for cause in causes[MOST_CAUSES:])
        text.append(f"  {rest:>6,} × {len(causes) - MOST_CAUSES} other causes: windfall results {bag} --state failed")
    return text


def _retry(cause: dict[str, Any], causes: list[dict[str, Any]], bag: int) -> str:
    return f"windfall retry {bag} {options(cause, causes)}"


def as_json(causes: list[dict[str, Any]], bag: int) -> list[dict[str, Any]]:
    return [
        {
            "count": cause["count"],
            "says": says(cause),
            **cause["retry"],
            "tasks": cause["tasks"],
            "retry": _retry(cause, causes, bag),
        }
        for cause in causes
    ]
