"""Graphs of others as bags: what `run` and `submit` make of a file that is no bag file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput
from . import application

if TYPE_CHECKING:
    from ..model.bagfile import Parsed

KINDS = (".json", *application.KINDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    graph = parser.add_argument_group("workflows of others (WfFormat: FILE.json)")
    graph.add_argument("--stand-ins", action="store_true", help="tasks only take as long as they once did")
    graph.add_argument("--scale", type=float, metavar="FACTOR", help="of their times: 0.01 is a hundred times as fast")


    application.add_options(parser.add_argument_group("applications (YvetteML: FILE.query or FILE.xml)"))
    parser.set_defaults(given=[], components=[], data=[])


def check(args: argparse.Namespace, graph: bool) -> None:
    if args.scale is not None and not args.stand_ins:
        raise BadInput("--scale goes with --stand-ins", "only their times are known beforehand")
    if args.stand_ins and not graph:
        raise BadInput("--stand-ins are for a workflow that was recorded", "as in windfall run FILE.json --stand-ins")


def parsed(args: argparse.Namespace, file: str) -> Parsed:
    import msgspec

    from ..model.bagfile import Parsed
    from ..model.check import validate
    from ..workflow import standins, wfformat

    if file.endswith(application.KINDS):
        return application.parsed(args, Path(file))
    workflow = wfformat.load(Path(file))
    if not args.stand_ins:
        raise BadInput("the commands of a recorded workflow are not run yet", "--stand-ins take their time instead")
    bag = standins.stand_ins(workflow, 1.0 if args.scale is None else args.scale)
    if args.name:
        bag = msgspec.structs.replace(bag, name=args.name)
    validate(bag)
    return Parsed(bag, {}, {})
