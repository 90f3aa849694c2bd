"""`windfall doctor`: check a home, and mend what is damaged as the user decides."""

from __future__ import annotations

import argparse
from pathlib import Path

from windfall.cli.present.output import print_json
from windfall.client.profile import make_home
from windfall.errors import BadInput

EXAMPLES = """examples:
  windfall doctor              what is damaged, and what can be done; changes nothing
  windfall doctor --repair     mend what can be mended without loss
  windfall doctor --cut        end a damaged journal at its last good commit, and list what is lost"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", type=Path, metavar="DIR", help="where the data lies (default: $WINDFALL_HOME)")
    orders = parser.add_mutually_exclusive_group()
    orders.add_argument("--repair", action="store_true", help="mend what can be mended without loss")
    orders.add_argument("--cut", action="store_true",
                        help="end a damaged journal at its last good commit; the damaged files are kept")


def execute(args: argparse.Namespace) -> int:
    from windfall.server import doctor
    from windfall.server.local.data_folder import Home

    where = args.home or make_home()
    if not where.is_dir():
        raise BadInput(f"there is no directory {where}", "--home, or WINDFALL_HOME, says where the data lies")
    home = Home(where)
    if args.repair or args.cut:
        return _say_outcome(doctor.mend(home, args.cut), args.json)
    findings = doctor.examine(home)
    if args.json:
        print_json([{"part": each.part, "says": each.says, "remedy": each.remedy} for each in findings])
    else:
        for each in findings:
            print(f"{each.part}: {each.says}")
            if each.remedy:
                print(f"  {each.remedy}")
    return int(any(each.remedy for each in findings))


def _say_outcome(outcome: object, as_json: bool) -> int:
    from windfall.server.doctor import Outcome

    assert isinstance(outcome, Outcome)
    if as_json:
        print_json({"did": outcome.did, "lost": outcome.lost, "kept": outcome.kept})
        return 0
    for line in outcome.did:
        print(line)
    if outcome.lost:
        print("lost:")
        for line in outcome.lost:
            print(f"  {line}")
    if outcome.kept:
        print(f"a copy of the files as they were is in {outcome.kept}")
    return 0
