"""`windfall submit`: give a bag to the server and return."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from windfall.cli.commands.bags import policy
from windfall.cli.present.output import print_json, say
from windfall.cli.submission import arguments, send_parts
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.cli.connect import Session
    from windfall.model.bagfile.reader import Parsed

TAKES_VECTOR = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    parsed = arguments.parsed(args)
    from windfall.cli.connect import Session

    with Session() as session:
        if args.extend:
            return _extend(session, parsed, args)
        answer = _submitted(session, parsed)
        if args.json:
            print_json(answer)
        else:
            number, tasks = answer["bag"], plural(answer["tasks"], "task")
            print(number)
            say(f"bag {number} '{parsed.bag.name}': {tasks}; watch it: windfall wait {number}")
        policy.warn_of(session.client, answer["bag"], parsed.bag.policy)
        if session.embedded and not args.json:
            say("  no server is running here: the tasks start with 'windfall wait' or 'windfall serve --pilot'")
    return 0


def _submitted(session: Session, parsed: Parsed) -> Any:
    """Submit the bag; the first tasks of a large one run while the rest is sent."""
    from windfall.model.templates.render import source_count

    sent, total = send_parts.submit(session, parsed), sum(source_count(target.source) for target in parsed.bag.targets)
    send_parts.feed(session, sent, total)
    return {"bag": sent.bag, "tasks": total, "position": session.client.bag(sent.bag).get("position", 0)}


def _extend(session: Session, parsed: Parsed, args: argparse.Namespace) -> int:
    bag, new = arguments.extended(session.client, parsed, args.extend)
    if args.json:
        print_json({"bag": bag, "tasks": new})
    else:
        print(bag)
        say(f"bag {bag} '{parsed.bag.name}': {plural(new, 'new task')}; watch it: windfall wait {bag}")
    return 0
