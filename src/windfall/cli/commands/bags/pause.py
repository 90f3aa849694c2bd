"""`windfall pause`: start no more tasks of a bag; running tasks go on."""

from __future__ import annotations

import argparse

from windfall.cli.connect import Session, find_bag
from windfall.cli.parser import add_bag
from windfall.cli.present.output import print_json

VERB = "pause"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)


def execute(args: argparse.Namespace, verb: str = VERB) -> int:
    with Session() as session:
        bag = getattr(session.client, verb)(find_bag(session.client, args.bag))
    if args.json:
        print_json(bag)
    else:
        print(f"bag {bag['bag']}: {bag['state']}")
    return 0
