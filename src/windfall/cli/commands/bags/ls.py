"""`windfall ls`: list the bags, newest first."""

from __future__ import annotations

import argparse
from typing import Any

from windfall.cli.connect import Session
from windfall.cli.present.output import clock, counts_of, print_json_rows, print_table, quota_line, say

LATEST = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", type=int, default=0, metavar="N",
                        help="list the latest N (default: 20; with --json all)")
    parser.add_argument("-a", "--all", action="store_true", help="list all bags")


def execute(args: argparse.Namespace) -> int:
    with Session() as session:
        bags = sorted(session.client.bags(), key=lambda bag: -bag["bag"])
        usage = session.client.usage(bags=args.json)
    known = len(bags)
    if args.n > 0 or not (args.all or args.json):
        bags = bags[: args.n if args.n > 0 else LATEST]
    if args.json:
        print_json_rows({**bag, **_file_sizes(bag, usage)} for bag in bags)
    elif not bags:
        say("no bags yet; 'windfall run' makes one")
    else:
        print_table(
            ["bag", "name", "state", "tasks", "done", "failed", "submitted", "ended"],
            map(_row, bags),
            right=(0, 3, 4, 5),
        )
        if known > len(bags):
            say(f"  and {known - len(bags):,} older: windfall ls --all")
    if not args.json and (line := quota_line(usage)):
        say(f"  {line}")
    return 0


def _file_sizes(bag: dict[str, Any], usage: dict[str, Any]) -> dict[str, int]:
    """Return the bytes of the bag's files; under a quota, also the quota and the bytes of all bags' files."""
    own = {"bytes": usage["bags"].get(str(bag["bag"]), 0)}
    return {**own, "used": usage["used"], "quota": usage["quota"]} if usage["quota"] else own


def _row(bag: dict[str, Any]) -> list[str]:
    tasks, succeeded, failed, _ = counts_of(bag)
    return [
        str(bag["bag"]),
        str(bag["name"]),
        str(bag["state"]),
        f"{tasks:,}",
        f"{succeeded:,}",
        f"{failed:,}",
        clock(bag.get("submitted")),
        clock(bag.get("ended")),
    ]
