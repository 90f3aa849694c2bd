"""`windfall logs`: print what tasks wrote: one, byte for byte, or many with their numbers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.connect import Session, find_bag
from windfall.cli.parser import add_bag, add_tasks, task_numbers
from windfall.cli.present.causes import words as cause
from windfall.cli.present.output import Bytes, print_json, say
from windfall.client.waiting import FINAL
from windfall.errors import BadInput, NotFound
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.client.client import Client


EXAMPLES = """examples:
  windfall logs 7                      all tasks, each below a line with its number
  windfall logs 7 12                   task 12 alone, byte for byte
  windfall logs 7 3..9 --tag           these tasks, the number before each line
  windfall logs 7 --failed --err       the messages of those that failed
  windfall logs -f 7                   all tasks, while they write"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    add_tasks(parser, "only these tasks; a bag's only task, or one number, is printed byte for byte")
    parser.add_argument("--failed", action="store_true", help="only tasks that failed")
    parser.add_argument("--tag", action="store_true", help="put the task's number before each line, as -f does")
    parser.add_argument("--out", action="store_true", help="standard output only")
    parser.add_argument("--err", action="store_true", help="standard error only")
    parser.add_argument("--scratch", metavar="DIR", help="unpack the failed task's directory, if it was kept, to DIR")
    parser.add_argument("-f", "--follow", action="store_true", help="go on printing while the task, or the bag, runs")


def execute(args: argparse.Namespace) -> int:
    tasks = task_numbers(args.tasks)
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        args.task = tasks[0] if tasks else 0
        if args.scratch:
            return _scratch(session.client, bag, args)
        if args.follow and not args.json and (tasks is None or len(tasks) > 1 or args.failed):
            return _all(session, bag, tasks, args)
        if args.failed or args.tag or not _is_one(session.client, bag, tasks):
            return _many(session.client, bag, tasks, args)
        return _one(session.client, bag, args)


def _is_one(client: Client, bag: int, tasks: list[int] | None) -> bool:
    """Is one task meant?  Raise NotFound where a number is none of the bag's."""
    if tasks is not None and len(tasks) == 1:
        return True
    count = client.bag(bag)["tasks"]
    if tasks is not None and max(tasks) >= count:
        raise NotFound(f"bag {bag} has {plural(count, 'task')}, numbered from 0")
    return tasks is None and count <= 1


def _many(client: Client, bag: int, tasks: list[int] | None, args: argparse.Namespace) -> int:
    from windfall.cli.present.task_logs import Wanted, print_logs, print_logs_as_json

    wanted = Wanted(tasks, args.failed, _streams(args))
    return print_logs_as_json(client, bag, wanted) if args.json else print_logs(client, bag, wanted, args.tag)


def _one(client: Client, bag: int, args: argparse.Namespace) -> int:
    try:
        written = (_print_json if args.json else _print)(client, bag, args)
    except NotFound:
        return _absent(client, bag, args.task, args.json)
    if not written:
        _say_nothing_came(client, bag, args.task)
    return 0


def _streams(args: argparse.Namespace) -> list[str]:
    return [name for name in ("out", "err") if getattr(args, name)] or ["out", "err"]


def _all(session: Session, bag: int, tasks: list[int] | None, args: argparse.Namespace) -> int:
    """Follow a bag; of one that has ended, print what its tasks wrote."""
    from windfall.cli.present.task_logs import Wanted, print_logs
    from windfall.cli.watch.follow_logs import follow

    stream = _streams(args)[0]
    if session.client.bag(bag)["state"] in FINAL:
        return print_logs(session.client, bag, Wanted(tasks, args.failed, [stream]), tag=True)
    if tasks is not None or args.failed:
        raise BadInput("-f follows one task, or all tasks of a bag", f"windfall logs -f {bag}")
    if session.embedded is not None:
        raise BadInput(f"bag {bag} is not running: no server is", f"to run it here: windfall wait {bag}")
    follow(session.client, bag, stream)
    return 0


def _scratch(client: Client, bag: int, args: argparse.Namespace) -> int:
    from windfall.cli.retry_here import fetch_inputs, scratch_of
    from windfall.client.files.archive import unpack

    kept = scratch_of(client.task(bag, args.task))
    if kept is None:
        raise NotFound(f"the server has not kept the directory of task {args.task}",
                       'put scratch = "failed" under [task] to keep those of failed tasks')
    count, left_out = unpack(client, *kept, Path(args.scratch))
    inputs = fetch_inputs(client, client.task_spec(bag, args.task), Path(args.scratch), missing=True)
    if args.json:
        found = {"bag": bag, "task": args.task, "directory": args.scratch, "files": count, "left_out": left_out,
                 "inputs": inputs}
        print_json(found)
    else:
        print(f"{plural(count, 'file')} in {args.scratch}/" + (f", and {plural(inputs, 'input')}" if inputs else ""))
        if left_out:
            say(f"{plural(left_out, 'link')} left out")
    return 0


def _print_json(client: Client, bag: int, args: argparse.Namespace) -> int:
    texts = {name: b"".join(client.log(bag, args.task, name)).decode("utf-8", "replace") for name in _streams(args)}
    print_json({"bag": bag, "task": args.task, **texts})
    return sum(map(len, texts.values()))


def _print(client: Client, bag: int, args: argparse.Namespace) -> int:
    """Print the streams; return how many bytes they had."""
    streams = _streams(args)
    if args.follow and len(streams) > 1:
        streams = ["out"]
    written = 0
    for name in streams:
        target = Bytes(sys.stderr if name == "err" and len(streams) > 1 else sys.stdout)
        for data in client.log(bag, args.task, name, args.follow):
            target.write(data)
            written += len(data)
    return written


def _absent(client: Client, bag: int, number: int, as_json: bool) -> int:
    """Say where a task stands of which no attempt has ended; raise NotFound if there is no such task."""
    task = client.task(bag, number)
    row = _row(client, bag, number)
    if as_json:
        print_json({"bag": bag, "task": number, "state": task["state"]})
    if row is not None:
        say(f"task {number} never ran: {row['state']} ({cause(row)})")
    elif task["state"] == "active":
        say(f"task {number} has not ended; to follow it: windfall logs -f {bag} {number}")
    else:
        say(f"task {number} has not run yet; why: windfall explain {bag} {number}")
    return 1


def _say_nothing_came(client: Client, bag: int, number: int) -> None:
    row = _row(client, bag, number)
    if row is not None and row["state"] != "succeeded":
        say(f"task {number} wrote nothing; {row['state']}: {cause(row, 10_000)}")


def _row(client: Client, bag: int, number: int) -> dict[str, Any] | None:
    """Return the row of the task's result, if it has one."""
    row = next(client.results(bag, after=number - 1, page=1), None)
    return row if row is not None and row["task"] == number else None
