"""`windfall retry`: run again what failed, was cancelled or quarantined."""

from __future__ import annotations

import argparse

from .connect import Session, find_bag
from .output import plural, print_json, say
from .parser import add_bag, add_tasks, task_numbers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    add_tasks(parser, "only these")


def execute(args: argparse.Namespace) -> int:
    tasks = task_numbers(args.tasks)
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        count = session.client.retry(bag, tasks)
    if args.json:
        print_json({"bag": bag, "count": count})
    else:
        print(f"bag {bag}: {plural(count, 'task')} to run again")
        if count:
            say(f"  watch: windfall wait {bag}")
    return 0
