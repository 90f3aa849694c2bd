"""`windfall cancel`: cancel a bag, or some of its tasks."""

from __future__ import annotations

import argparse

from windfall.cli.connect import Session, find_bag
from windfall.cli.parser import add_bag, add_tasks, task_numbers
from windfall.cli.present.output import print_json
from windfall.model.units import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    add_tasks(parser, "only these tasks")


def execute(args: argparse.Namespace) -> int:
    tasks = task_numbers(args.tasks)
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        count = session.client.cancel(bag, tasks)
    if args.json:
        print_json({"bag": bag, "count": count})
    else:
        print(f"bag {bag}: {plural(count, 'task')} cancelled")
    return 0
