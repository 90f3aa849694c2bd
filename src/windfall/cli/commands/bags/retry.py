"""`windfall retry`: run failed, cancelled and quarantined tasks again: all, or some by number or by cause."""

from __future__ import annotations

import argparse

from windfall.cli.connect import Session, find_bag
from windfall.cli.parser import add_bag, add_tasks, task_numbers
from windfall.cli.present import causes
from windfall.cli.present.output import files_of, print_json, say
from windfall.errors import BadInput
from windfall.model.units import plural

EXAMPLES = """examples:
  windfall retry 7                     all failed, cancelled and quarantined tasks
  windfall retry 7 12 20..29           these tasks
  windfall retry 7 --why exit --exit 3
  windfall retry 7 --why output --note 'the file out-#.txt is missing'
  windfall retry 7 --state quarantined
  windfall retry 7 12 --here           that task, on this machine, in task-7-12/"""

MOST_NAMED = 5  # causes that a message names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    add_tasks(parser, "only these tasks")
    causes.add_arguments(parser)
    parser.add_argument("--here", action="store_true", help="run the one task in a new directory on this machine")
    parser.add_argument("-o", dest="directory", metavar="DIR", help="with --here: the name of that directory")


def execute(args: argparse.Namespace) -> int:
    tasks, by_cause = task_numbers(args.tasks), causes.chosen(args)
    if tasks is not None and by_cause is not None:
        raise BadInput("choose tasks by number or by cause, not by both")
    if args.here:
        return _run_here(args, tasks)
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        count = session.client.retry(bag, tasks, cause=by_cause)
        found = session.client.failures(bag) if by_cause and not count else []
        info = session.client.bag(bag)
    if args.json:
        print_json({"bag": bag, "count": count})
    else:
        print(f"bag {bag}: {plural(count, 'task')} to run again")
        if count:
            say(f"  with the files {files_of(info)}; with the files as they are now: windfall rerun {bag} --failed")
            say(f"  watch: windfall wait {bag}")
        elif found:
            others = "; ".join(causes.options(cause, found) for cause in found[:MOST_NAMED])
            say(f"  no task failed for this cause; the bag's causes are: {others}")
    return 0


def _run_here(args: argparse.Namespace, tasks: list[int] | None) -> int:
    from windfall.cli.retry_here import run_here

    if tasks is None or len(tasks) != 1:
        raise BadInput("--here takes one task", f"windfall retry {args.bag} TASK --here")
    with Session() as session:
        return run_here(session.client, find_bag(session.client, args.bag), tasks[0], args.directory, args.json)
