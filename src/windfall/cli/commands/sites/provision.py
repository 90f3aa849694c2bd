"""`windfall provision`: start and stop pilots at the user's sites for a server that runs elsewhere."""

from __future__ import annotations

import argparse

from windfall.client.profile import chosen, load, make_home
from windfall.errors import BadInput

EXAMPLES = """examples:
  windfall login https://server.example.org:7430      once
  windfall provision                                   for as long as pilots are to be started"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--landing", type=float, default=30.0, metavar="SECONDS", help=argparse.SUPPRESS)  # for tests


def execute(args: argparse.Namespace) -> int:
    from windfall.provision.main import provision

    file = chosen()
    if file is None:
        raise BadInput("you are not logged in to a server elsewhere; a server on this machine starts pilots itself",
                       "'windfall login' logs in to one, 'windfall serve' runs one here")
    return int(provision(make_home(), load(file), args.landing))
