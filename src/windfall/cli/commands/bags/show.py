"""`windfall show`: show a bag, or one task with its attempts or its story."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from windfall.cli.connect import Session, find_bag
from windfall.cli.parser import add_bag, task_number
from windfall.cli.present.causes import words as cause
from windfall.cli.present.output import (
    clock,
    duration,
    print_json,
    print_json_rows,
    print_table,
    quota_line,
    say,
    shown,
)
from windfall.cli.present.policy_hints import warnings
from windfall.errors import BadInput
from windfall.model.checks.bag import USUAL
from windfall.model.units import format_size, plural

if TYPE_CHECKING:
    from windfall.client.types import StoryLine

MOST_RUNNING = 1_000  # running tasks that are counted
FULL = 100_000  # characters of a reason


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    parser.add_argument("task", metavar="TASK", nargs="?", type=task_number, help="number of a task")
    parser.add_argument("--story", action="store_true", help="every fact that touched the task, from the journal")


def execute(args: argparse.Namespace) -> int:
    if args.story and args.task is None:
        raise BadInput("--story is about one task", "name it: windfall show BAG TASK --story")
    hints: list[str] = []
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        if args.story:
            _print_story(session.client.story(bag, args.task), args.json)
            return 0
        found = session.client.bag(bag) if args.task is None else session.client.task(bag, args.task)
        if args.task is None:
            found["policy"] = session.client.policy(bag)
            found["statistics"] = session.client.statistics(bag)
            found["running"] = len(session.client.running(bag, MOST_RUNNING)) if found["counts"]["active"] else 0
            found["usage"] = session.client.usage(bags=False)
            hints = [] if found.get("ended") else warnings(session.client, found["policy"])
    if args.json:
        print_json(found)
    elif args.task is None:
        _print_bag(found, hints)
    else:
        _print_task(found)
    return 0


def _print_story(lines: Iterable[StoryLine], json: bool) -> None:
    if json:
        print_json_rows(lines)
    else:
        for line in lines:
            where = [f"attempt {line['attempt']}"] * bool(line["attempt"])
            where += [f"host {shown(line['host'])}"] * bool(line["host"])
            where += [f"site {shown(line['site'])}"] * bool(line["site"])
            print(f"{clock(line['at'])}  {shown(line['text'], FULL)}" + (f"  [{', '.join(where)}]" if where else ""))


def _print_bag(bag: dict[str, Any], hints: list[str]) -> None:
    owner = shown(bag.get("owner"))
    print(f"bag {bag['bag']} '{shown(bag['name'])}': {bag['state']}, {bag['tasks']:,} tasks, owner {owner}")
    print(f"submitted {clock(bag.get('submitted'))}" + (f", ended {clock(bag['ended'])}" if bag.get("ended") else ""))
    if bag.get("tail"):
        print(_tail_line(bag))
    if bag.get("problem"):
        print(f"nothing more starts: {shown(bag['problem'], 500)}")
    for key, text in bag["policy"]["policy"].items():
        if (key, text) != ("replicate", USUAL):
            print(f"{key} = {shown(text, 500)}")
    for text in hints:
        say(text)
    held = bag["counts"]["active"] - bag["running"]
    if held > 0 and bag["running"] < MOST_RUNNING:
        print(f"of the active tasks {bag['running']:,} run; pilots hold {held:,} until they have room")
    _print_targets(bag)
    _print_statistics(bag["statistics"])
    stored = bag["statistics"]["stored"]
    sizes = [f"files of its results: {format_size(stored)}" if stored else "", quota_line(bag["usage"])]
    if line := "; ".join(filter(None, sizes)):
        print(line)


def _tail_line(bag: dict[str, Any]) -> str:
    expected = f", expected to end {clock(bag['expected'])}" if bag.get("expected") else ""
    late = f"; {plural(bag['late'], 'task')} should have ended by now" if bag.get("late") else ""
    return f"in its last round{expected}{late}"


def _print_targets(bag: dict[str, Any]) -> None:
    states = ("waiting", "ready", "active", "validating", "succeeded", "failed", "cancelled", "quarantined")
    used = [
        state for state in states if any(t["counts"].get(state) for t in bag["targets"]) or bag["counts"].get(state)
    ]
    rows = [
        [
            target["name"],
            str(target["count"]),
            ", ".join(target.get("after") or []),
            *(f"{target['counts'].get(state, 0):,}" for state in used),
        ]
        for target in bag["targets"]
    ]
    print_table(["target", "tasks", "after", *used], rows, right=(1, *range(3, 3 + len(used))))


def _print_statistics(found: dict[str, Any]) -> None:
    """Print how long attempts took, and why some failed (S11); nothing before the first attempt has ended."""
    if not found["attempts"]:
        return
    print(
        f"attempts {found['attempts']:,}, queued {duration(round(found['queuing_average']))} on average, "
        f"{duration(found['queuing_longest'])} at most"
    )
    print(
        f"real time {duration(found['real'])}, redundant {duration(found['redundant'])}, "
        f"wall clock {duration(found['wall_clock'])}, speed-up {found['speed_up']:.2f}"
    )
    failed = ", ".join(f"{why} {count:,}" for why, count in found["failures"].items())
    if failed:
        print(f"failed attempts: {failed}")
    rows = ([site["name"], site["attempts"], site["accepted"], duration(site["wall"])] for site in found["sites"])
    print_table(["site", "attempts", "accepted", "time"], rows, right=(1, 2, 3))


def _print_task(task: dict[str, Any]) -> None:
    from windfall.model.templates.template import quote_bare

    command = task.get("command")
    print(f"task {task['task']} of {task.get('target', 'main')}: {task['state']}")
    for name, value in (task.get("params") or {}).items():
        print(f"  {name} = {shown(value)}")
    print("  " + shown(" ".join(map(quote_bare, command)) if isinstance(command, list) else command, 500))
    ended = task.get("attempts") or []
    if rows := [*map(_ended_row, ended), *map(_unended_row, task.get("in_play") or [])]:
        print_table(["attempt", "outcome", "why", "site", "host", "started", "wall"], rows, right=(0, 6))
    for row in ended:
        if reason := _full_reason(row):
            print(f"attempt {row.get('attempt')}: {reason}")


def _ended_row(row: dict[str, Any]) -> list[Any]:
    return [
        str(row.get("attempt", "")),
        row.get("outcome") or row.get("state") or "",
        "" if row.get("outcome") in (None, "succeeded") else cause(row),
        row.get("site"),
        row.get("host"),
        clock(row.get("started")),
        duration(row.get("wall")),
    ]


def _unended_row(attempt: dict[str, Any]) -> list[Any]:
    due = f"to end {clock(attempt['expected'])}" if attempt.get("expected") else ""
    state = {"started": "running", "granted": "handed out"}.get(attempt["state"], attempt["state"])
    return [str(attempt["attempt"]), state, due, attempt["site"], attempt["host"], clock(attempt.get("started")), ""]


def _full_reason(row: dict[str, Any]) -> str:
    """Say why an attempt failed if the table has cut its reason short; else ""."""
    why = cause(row, FULL)
    if row.get("note") and row["note"] not in why and row.get("why") not in ("exit", "signal"):
        why += f": {shown(row['note'], FULL)}"
    return "" if row.get("outcome") in (None, "succeeded") or why == shown(cause(row)) else why
