"""`windfall ls`: the bags, newest first."""

from __future__ import annotations

import argparse
from typing import Any

from .connect import Session
from .output import clock, counts_of, print_json_rows, print_table, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", type=int, default=0, metavar="N", help="only the latest N")


def execute(args: argparse.Namespace) -> int:
    with Session() as session:
        bags = sorted(session.client.bags(), key=lambda bag: -bag["bag"])
    if args.n > 0:
        bags = bags[: args.n]
    if args.json:
        print_json_rows(bags)
    elif not bags:
        say("no bags yet; 'windfall run' makes one")
    else:
        print_table(
            ["bag", "name", "state", "tasks", "done", "failed", "submitted", "ended"],
            map(_row, bags),
            right=(0, 3, 4, 5),
        )
    return 0


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
