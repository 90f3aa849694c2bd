"""Compile an application named on the command line: its file, its components, its parameters."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from windfall.cli.present.output import say
from windfall.client.profile import home
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.model.bagfile.reader import Parsed
    from windfall.workflow.components.catalogue import Catalogue
    from windfall.workflow.graphs.named_graph import NamedGraph
    from windfall.workflow.yvetteml.program import ComponentLibrary, Program

KINDS = (".query", ".xml", ".yml")
Adds = argparse._ActionsContainer  # a parser, or a group of one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("application", metavar="APP", type=Path,
                        help="an application's file (XML), a bare graph, WfFormat 1.5 (.json), or a DAG file (.dag)")
    _add_shared(parser)


def _add_shared(parser: Adds) -> None:
    parser.add_argument("--components", metavar="PATH", type=Path, action="append", default=[],
                        help="a file or a folder with components; they come before the catalogue's")
    parser.add_argument("--set", metavar="NAME=VALUE", dest="given", action="append", default=[],
                        help="the value of a parameter of the application, or of a constant that its graph uses")


def add_options(parser: Adds) -> None:
    """Add the options of commands that run an application."""
    _add_shared(parser)
    parser.add_argument("--data", metavar="NAME=FILE", action="append", default=[],
                        help="data for one of its parameters, 'mat=FILE' or 'mat[1][2]=FILE'; may be repeated")


def catalogue() -> Catalogue:
    from windfall.workflow.components.catalogue import Catalogue

    return Catalogue(home() / "components")


def compiled(args: argparse.Namespace) -> Program | NamedGraph:
    if args.application.suffix.lower() in (".json", ".dag"):
        return _foreign_graph(args)
    return read(args, args.application)[0]


def read(args: argparse.Namespace, path: Path) -> tuple[Program, ComponentLibrary]:
    from windfall.workflow.components.catalogue import gather
    from windfall.workflow.components.files import load
    from windfall.workflow.yvetteml.program import ComponentLibrary, compile_application

    file = load(path)
    if file.application is None:
        raise BadInput(f"{path} holds components, but no application", f"'windfall component add {path}' adds them")
    for note in file.notes:
        say(f"{note}")
    own = {component.name: component for component in file.components}
    shelf = ComponentLibrary(own, gather(args.components), catalogue())
    return compile_application(file.application, shelf, _given(args.given)), shelf


def parsed(args: argparse.Namespace, path: Path) -> Parsed:
    """Read an application's file and build its bag."""
    import msgspec

    from windfall.model.bagfile.reader import Parsed
    from windfall.model.checks.bag import validate
    from windfall.workflow.build.builder import Landing, build

    program, shelf = read(args, path)
    if not program.tasks:
        raise BadInput(f"{path}: the application has no 'compute' statement",
                       "each 'compute' in its graph makes a task")
    for doubt in program.doubts:
        say(f"warning: {doubt}")
    built = build(program, shelf, {name: Path(file) for name, file in _given(args.data, "data").items()})
    for name in shelf.damaged:
        say(f"skipped: '{name}' in the catalogue is damaged; 'windfall component rm {name}', then add it again")
    bag = msgspec.structs.replace(built.bag, name=args.name) if args.name else built.bag
    validate(bag)
    return Parsed(bag, built.uploads, {},
                  Landing(lambda: {(each.task, each.path): each.name for each in built.results}))


def _foreign_graph(args: argparse.Namespace) -> NamedGraph:
    if args.components or args.given:
        raise BadInput("--components and --set are for applications of YvetteML", "WfFormat and DAG files have neither")
    if args.application.suffix.lower() == ".json":
        from windfall.workflow.wfformat import instance

        return instance.load(args.application)
    from windfall.workflow.dagman import jobs, reader

    graph = reader.load(args.application)
    graph.notes = jobs.checked(graph)
    return graph


def _given(texts: list[str], option: str = "set") -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            example = "--set n=8" if option == "set" else "--data mat=matrix.csv"
            raise BadInput(f"--{option} {text}: it takes NAME=VALUE", f"as in {example}")
        found[name] = value
    return found
