"""`windfall logs`: what a task wrote, byte for byte."""

from __future__ import annotations

import argparse
import sys

from .connect import Session, find_bag
from .output import print_json
from .parser import add_bag, task_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    parser.add_argument(
        "task", metavar="TASK", nargs="?", type=task_number, default=0, help="number of the task (default: 0)"
    )
    parser.add_argument("--out", action="store_true", help="standard output only")
    parser.add_argument("--err", action="store_true", help="standard error only")
    parser.add_argument("-f", "--follow", action="store_true", help="go on while the task runs")


def execute(args: argparse.Namespace) -> int:
    streams = [name for name in ("out", "err") if getattr(args, name)] or ["out", "err"]
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        if args.json:
            texts = {
                name: b"".join(session.client.log(bag, args.task, name)).decode("utf-8", "replace") for name in streams
            }
            print_json({"bag": bag, "task": args.task, **texts})
            return 0
        if args.follow and len(streams) > 1:
            streams = ["out"]
        for name in streams:
            target = sys.stderr if name == "err" and len(streams) > 1 else sys.stdout
            for data in session.client.log(bag, args.task, name, args.follow):
                target.buffer.write(data)
                target.flush()
    return 0
