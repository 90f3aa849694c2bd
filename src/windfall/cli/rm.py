"""`windfall rm`: forget a bag that has ended, with its results and files on the server."""

from __future__ import annotations

import argparse

from .connect import Session, find_bag
from .output import print_json
from .parser import add_bag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)


def execute(args: argparse.Namespace) -> int:
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        session.client.remove(bag)
    if args.json:
        print_json({"bag": bag})
    else:
        print(f"bag {bag} is removed")
    return 0
