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
  windfall doctor --cut        end a damaged journal at its last good commit, and list what is lost
  windfall doctor --clock      this machine's clock is right, whatever the journal says"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", type=Path, metavar="DIR", help="where the data lies (default: $WINDFALL_HOME)")
    orders = parser.add_mutually_exclusive_group()
    orders.add_argument("--repair", action="store_true", help="mend what can be mended without loss")
    orders.add_argument("--cut", action="store_true",
                        help="end a damaged journal at its last good commit; the damaged files are kept")
    orders.add_argument("--clock", action="store_true",
                        help="say that this machine's clock is right, and the time of the journal is not")


def execute(args: argparse.Namespace) -> int:
    from windfall.server.local import doctor

    where = args.home or make_home()
    if not where.is_dir():
        raise BadInput(f"there is no directory {where}", "--home, or WINDFALL_HOME, says where the data lies")
    home = doctor.Home(where)
    if args.clock:
        return _say_outcome(doctor.set_clock(home), args.json)
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
    from windfall.server.local.doctor import Outcome

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
