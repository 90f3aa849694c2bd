"""The end of a bag, in a few lines: what came out, why the rest failed, what to type next."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from ..client.client import Client
from .causes import Group, grouped
from .output import counts_of, duration, plural, shown

MOST_ROWS = 200_000  # failures looked at to find the causes
MOST_CAUSES = 12


def failed_rows(client: Client, bag: int) -> Iterator[dict[str, Any]]:
    return chain.from_iterable(client.results(bag, state=state) for state in ("failed", "quarantined"))


def causes(client: Client, bag: int) -> list[Group]:
    return grouped(islice(failed_rows(client, bag), MOST_ROWS))


def lines(bag: dict[str, Any], elapsed_ms: int, groups: list[Group]) -> list[str]:
    tasks, succeeded, failed, cancelled = counts_of(bag)
    number = bag["bag"]
    parts = [f"{succeeded:,} succeeded"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{cancelled:,} cancelled"] if cancelled else []
    text = [
        f"bag {number} '{shown(bag['name'])}': {plural(tasks, 'task')}: {', '.join(parts)} in {duration(elapsed_ms)}"
    ]
    if failed:
        text += _why(groups, number)
        text.append(f"  all of them again: windfall retry {number}; then: windfall wait {number}")
        if failed > MOST_ROWS:
            text.append(f"  (causes of the first {MOST_ROWS:,} failures)")
    return text


def _why(groups: list[Group], bag: int) -> list[str]:
    text = []
    for group in groups[:MOST_CAUSES]:
        named = ", ".join(map(str, group.tasks)) + (", …" if group.count > len(group.tasks) else "")
        text.append(f"  {group.count:>6,} × {group.text}  (task {named})")
        text.append(f"           windfall logs {bag} {group.tasks[0]}    windfall retry {bag} {group.cause.options()}")
    if len(groups) > MOST_CAUSES:
        rest = sum(group.count for group in groups[MOST_CAUSES:])
        text.append(f"  {rest:>6,} × {len(groups) - MOST_CAUSES} other causes: windfall results {bag} --state failed")
    return text


def as_json(groups: list[Group], bag: int) -> list[dict[str, Any]]:
    return [
        {
            "count": group.count,
            "says": group.text,
            **{key: value for key, value in group.cause._asdict().items() if value not in (None, "")},
            "tasks": group.tasks,
            "retry": f"windfall retry {bag} {group.cause.options()}",
        }
        for group in groups
    ]
