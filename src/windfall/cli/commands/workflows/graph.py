"""`windfall graph`: draw an application."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from windfall.cli.present.output import print_json, say
from windfall.cli.submission import application
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.workflow.graphs.picture import Picture

EXAMPLES = """examples:
  windfall graph product.query -o product.svg
  windfall graph product.query --components components/ -o product.png
  windfall graph product.query | dot -Tpdf -o product.pdf"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    application.add_arguments(parser)
    parser.add_argument("-o", dest="file", metavar="FILE", type=Path,
                        help="write the picture there: .dot, .svg or .png (default: print DOT)")


def execute(args: argparse.Namespace) -> int:
    kind = args.file.suffix.lower() if args.file else ".dot"
    if kind not in (".dot", ".svg", ".png"):
        raise BadInput(f"-o {args.file}: the name does not end with .dot, .svg or .png",
                       "the ending chooses the format")
    program = application.compiled(args)
    from windfall.workflow.graphs import sheet
    from windfall.workflow.graphs.picture import dot, picture, workflow_picture
    from windfall.workflow.yvetteml.program import Program

    draw = picture if isinstance(program, Program) else workflow_picture
    found = draw(program) if kind == ".dot" else draw(program, sheet.fits)
    if args.json and not args.file:
        print_json({"summary": found.summary, "nodes": [node._asdict() for node in found.nodes],
                    "edges": found.arrows})
    elif not args.file:
        sys.stdout.write(dot(found))
    else:
        data = dot(found).encode() if kind == ".dot" else sheet.draw(found).svg().encode() if kind == ".svg" else (
            sheet.draw(found).png())
        args.file.write_bytes(data)
        _tell_written(args, found)
    return 0


def _tell_written(args: argparse.Namespace, found: Picture) -> None:
    if args.json:
        print_json({"file": str(args.file), "summary": found.summary, "nodes": len(found.nodes)})
    else:
        say(f"{args.file}: {len(found.nodes):,} boxes" + (", each a group of tasks" if found.summary else ""))
