"""Graphs in the formats of other systems, and applications: `run` and `submit` make bags of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from windfall.cli.submission import application
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.model.bagfile.reader import Parsed
    from windfall.workflow.dagman.nodes import Graph

KINDS = (".json", ".dag", *application.KINDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    graph = parser.add_argument_group("graphs of other systems (WfFormat: FILE.json, DAGMan: FILE.dag)")
    graph.add_argument("--stand-ins", action="store_true",
                       help="instead of each task, sleep for as long as it once took (WfFormat)")
    graph.add_argument("--scale", type=float, metavar="FACTOR",
                       help="multiply the times of stand-ins: 0.01 is a hundred times as fast")
    graph.add_argument("--fresh", action="store_true", help="ignore rescue files: run done nodes again (DAGMan)")
    application.add_options(parser.add_argument_group("applications (YvetteML: FILE.query, FILE.xml or FILE.yml)"))
    parser.set_defaults(given=[], components=[], data=[])


def check(args: argparse.Namespace, graph: str | None) -> None:
    """Do the options fit what was given?"""
    kind = Path(graph).suffix if graph else ""
    if args.scale is not None and not args.stand_ins:
        raise BadInput("--scale goes with --stand-ins", "only stand-ins have times that can be scaled")
    if args.stand_ins and kind != ".json":
        raise BadInput("--stand-ins needs a recorded workflow (WfFormat)", "as in windfall run FILE.json --stand-ins")
    if args.fresh and kind != ".dag":
        raise BadInput("--fresh is for DAG files", "as in windfall run FILE.dag --fresh")


def parsed(args: argparse.Namespace, file: str) -> Parsed:
    if file.endswith(application.KINDS):
        return application.parsed(args, Path(file))
    import msgspec

    from windfall.model.checks.bag import validate

    found = _dag(args, Path(file)) if Path(file).suffix == ".dag" else _recorded(args, Path(file))
    if args.name:
        found = found._replace(bag=msgspec.structs.replace(found.bag, name=args.name))
    validate(found.bag)
    return found


def _recorded(args: argparse.Namespace, file: Path) -> Parsed:
    from windfall.model.bagfile.reader import Parsed
    from windfall.workflow.wfformat import instance, recorded, sleep_tasks

    workflow = instance.load(file)
    if not args.stand_ins:
        return recorded.parsed(workflow, file.parent)
    return Parsed(sleep_tasks.stand_ins(workflow, 1.0 if args.scale is None else args.scale), {}, {})


def _stays_here(args: argparse.Namespace, graph: Graph) -> None:
    """Refuse -o where a retried node reads files of earlier nodes: they come home beside the DAG file."""
    if graph.attended and args.directory and Path(args.directory).resolve() != graph.base.resolve():
        raise BadInput("-o does not go with $RETRY, or with RETRY of a SUBDAG", "files come home beside the DAG file")


def _dag(args: argparse.Namespace, file: Path) -> Parsed:
    """Read a DAG file.  `run` gets an attendant in its arguments; `submit` refuses DAGs that need one."""
    from windfall.cli.watch.dagman_run import attendant, rescued
    from windfall.workflow.dagman import bag, reader

    graph = reader.load(file)
    rescued(graph, args.fresh)
    found = bag.parsed(graph)
    if hasattr(args, "dry_run"):
        args.attendant = attendant(graph)
        _stays_here(args, graph)
    elif graph.final is not None or graph.attended or graph.aborts:
        raise BadInput("'windfall submit' does not know FINAL, ABORT-DAG-ON, $RETRY and the RETRY of a SUBDAG",
                       f"they need a command that watches the DAG: windfall run {file}")
    return found
