"""`windfall rm`: remove bags that have ended, with their results and files on the server."""

from __future__ import annotations

import argparse
import time
from typing import Any

from windfall.cli.connect import Session, find_bag
from windfall.cli.present.output import clock, print_json, print_table
from windfall.client.waiting import FINAL
from windfall.errors import BadInput
from windfall.model.units import format_size, parse_duration, plural

EXAMPLES = """examples:
  windfall rm 7
  windfall rm --older 30d --dry-run
  windfall rm --older 2d --state failed"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bags", metavar="BAG", nargs="*", help="numbers or names (the latest of that name)")
    parser.add_argument("--older", metavar="AGE", help="all bags that ended longer ago than this, such as 30d")
    parser.add_argument("--state", choices=FINAL, help="only bags that ended in this state")
    parser.add_argument("-n", "--dry-run", action="store_true", help="list the bags; remove nothing")


def execute(args: argparse.Namespace) -> int:
    if bool(args.bags) == bool(args.older or args.state):
        raise BadInput("rm takes either bags, or --older and --state", "windfall rm 7, or windfall rm --older 30d")
    age = parse_duration(args.older) if args.older else 0
    with Session() as session:
        if args.bags:
            found = [session.client.bag(find_bag(session.client, bag)) for bag in args.bags]
        else:
            found = chosen(session.client.bags(), age, args.state or "", int(time.time() * 1000))
        if args.dry_run:
            _list(found, session.client.usage()["bags"], args.json)
        else:
            for bag in found:
                session.client.remove(bag["bag"])
            _say(found, session.client.free() if found else 0, args.json)
    return 0


def chosen(bags: list[dict[str, Any]], age: int, state: str, now: int) -> list[dict[str, Any]]:
    """Return the bags that ended at least `age` ms ago, in `state` if it is given."""
    ended = [bag for bag in bags if bag["state"] in FINAL and bag.get("ended")]
    return [bag for bag in ended if now - bag["ended"] >= age and state in ("", bag["state"])]


def _list(found: list[dict[str, Any]], sizes: dict[str, int], as_json: bool) -> None:
    if as_json:
        print_json({"bags": [bag["bag"] for bag in found], "removed": False})
        return
    if not found:
        print("no bag to remove")
        return
    rows = ([bag["bag"], bag["name"], bag["state"], f"{bag['tasks']:,}", format_size(sizes.get(str(bag["bag"]), 0)),
             clock(bag.get("ended"))] for bag in found)
    print_table(["bag", "name", "state", "tasks", "results", "ended"], rows, right=(0, 3, 4))


def _say(found: list[dict[str, Any]], freed: int, as_json: bool) -> None:
    numbers = [bag["bag"] for bag in found]
    if as_json:
        print_json({"bags": numbers, "removed": True, "freed": freed})
        return
    room = f"; {format_size(freed)} freed" if freed else "; it had no files of its own" if len(numbers) == 1 else ""
    if len(numbers) == 1:
        print(f"bag {numbers[0]} is removed{room}")
    else:
        listed = f": {', '.join(map(str, numbers[:20]))}" if numbers else ""
        print(f"{plural(len(numbers), 'bag')} removed{listed}{room}")
