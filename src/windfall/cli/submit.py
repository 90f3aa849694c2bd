"""`windfall submit`: hand a bag to the server and return."""

from __future__ import annotations

import argparse

from . import bagargs
from .output import plural, print_json, say

TAKES_VECTOR = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    bagargs.add_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    parsed = bagargs.parsed(args)
    from .connect import Session

    with Session() as session:
        answer = session.client.submitted(parsed.bag, parsed.uploads)
        if args.json:
            print_json(answer)
        else:
            number, tasks = answer["bag"], plural(answer["tasks"], "task")
            print(number)
            say(f"bag {number} '{parsed.bag.name}': {tasks}; watch it: windfall wait {number}")
            if session.embedded:
                say("  no server is running here, so nothing runs before 'windfall wait' or 'windfall serve --pilot'")
    return 0
