"""`windfall wait`: watch a bag until it has ended; if no server runs, run the bag here."""

from __future__ import annotations

import argparse
from pathlib import Path

from windfall.cli.commands.bags.run import Home, attend, finish
from windfall.cli.connect import Session, find_bag
from windfall.cli.parser import add_bag
from windfall.cli.present.fetch_outputs import OutputPlace, add_files
from windfall.cli.watch import departure, notify
from windfall.cli.watch.progress import Progress
from windfall.errors import BadInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    parser.add_argument("-o", dest="directory", metavar="DIR", help="fetch the output files to DIR at the end")
    add_files(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    departure.add_arguments(parser)
    notify.add_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    if args.files and not args.directory:
        raise BadInput("--files needs a directory for the files", "give one with -o DIR")
    whom = notify.wanted(args)
    with Session(needs_pilot=True) as session:
        number = find_bag(session.client, args.bag)
        bag = session.client.bag(number)
        directory = Path(args.directory) if args.directory else None
        with departure.deadline(args.timeout):
            final = attend(session, number, Progress(bag["name"], bag["tasks"], args.quiet or args.json), directory)
        home = Home(OutputPlace(directory, args.files) if directory else None)
        code = finish(session, final, None, home, args.json)
        notify.tell(whom, final)
        return code
