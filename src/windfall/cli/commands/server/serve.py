"""`windfall serve`: run a server until it is stopped."""

from __future__ import annotations

import argparse
from pathlib import Path

from windfall.client.profile import make_home

EXAMPLES = """examples:
  windfall serve --pilot                   for this account on this machine, over a Unix socket
  windfall serve --listen 0.0.0.0:8765     for pilots elsewhere too, over TLS"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", metavar="ADDRESS:PORT", help="also listen here, with TLS (default: a Unix socket only)"
    )
    parser.add_argument(
        "--name", action="append", default=[], metavar="HOST", help="a name under which pilots reach it (repeatable)"
    )
    parser.add_argument("--pilot", action="store_true", help="also serve this machine's cores")
    parser.add_argument("--home", type=Path, metavar="DIR", help="where the data lies (default: $WINDFALL_HOME)")
    parser.add_argument("--keep", metavar="AGE", help="remove bags this long after their end, as 30d (default: never)")
    parser.add_argument("--quota", metavar="SIZE",
                        help="limit of the size of each user's files, as 200GB (default: none)")
    parser.add_argument("--lease", type=float, metavar="SECONDS", help=argparse.SUPPRESS)  # for tests
    parser.add_argument("--idle", type=float, metavar="SECONDS", help=argparse.SUPPRESS)


def execute(args: argparse.Namespace) -> int:
    from windfall.model.units import parse_duration, parse_size
    from windfall.server.main import serve

    where = args.home or make_home()
    keep = parse_duration(args.keep, "--keep") if args.keep else 0
    quota = parse_size(args.quota, "--quota") if args.quota else 0
    return int(serve(
        where, args.listen, names=tuple(args.name), pilot=args.pilot, lease=args.lease, keep=keep, quota=quota,
        idle=args.idle))
