"""An application on the command line: its file, its components, its parameters → a program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..client.profile import home
from ..errors import BadInput
from .output import say

if TYPE_CHECKING:
    from ..workflow.catalogue import Catalogue
    from ..workflow.program import Program
    from ..workflow.wfformat import Workflow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("application", metavar="APP", type=Path,
                        help="an application's file (XML), a bare graph, or WfFormat 1.5 (.json)")
    parser.add_argument("--components", metavar="PATH", type=Path, action="append", default=[],
                        help="a file or a folder with components; they go before those of the catalogue")
    parser.add_argument("--set", metavar="NAME=VALUE", dest="given", action="append", default=[],
                        help="the value of one of the application's parameters")


def catalogue() -> Catalogue:
    from ..workflow.catalogue import Catalogue

    return Catalogue(home() / "components")


def compiled(args: argparse.Namespace) -> Program | Workflow:
    if args.application.suffix.lower() == ".json":
        return _of_others(args)
    from ..workflow.catalogue import gather
    from ..workflow.files import load
    from ..workflow.program import Shelf, compile_application

    file = load(args.application)
    if file.application is None:
        raise BadInput(f"{args.application} holds components, and no application",
                       f"'windfall component add {args.application}' adds them")
    for note in file.notes:
        say(f"{note}")
    own = {component.name: component for component in file.components}
    shelf = Shelf(own, gather(args.components), catalogue())
    return compile_application(file.application, shelf, _given(args.given))


def _of_others(args: argparse.Namespace) -> Workflow:
    from ..workflow import wfformat

    if args.components or args.given:
        raise BadInput("--components and --set are for applications of YvetteML", "WfFormat has neither")
    return wfformat.load(args.application)


def _given(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(f"--set {text}: a name and a value are asked for", "as in --set n=8")
        found[name] = value
    return found
