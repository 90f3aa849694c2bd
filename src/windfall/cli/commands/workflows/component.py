"""`windfall component add | ls | show | rm`: manage the catalogue of components in `$WINDFALL_HOME/components`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.present.output import print_json, print_json_rows, print_table
from windfall.cli.submission.application import catalogue
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.workflow.components.catalogue import Catalogue, Entry

EXAMPLES = """examples:
  windfall component add components/*.query
  windfall component ls
  windfall component show MatrixProduct
  windfall component rm MatrixProduct@2"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "ls", "show", "rm"),
                        help="add: take in the components of files; ls: list them; show: print one; rm: remove one")
    parser.add_argument("names", metavar="FILE|NAME", nargs="*", help="add: files; show, rm: NAME, or NAME@VERSION")


def execute(args: argparse.Namespace) -> int:
    if bool(args.names) != (args.action != "ls"):
        takes = {"add": "files", "ls": "no name"}.get(args.action, "the name of a component")
        raise BadInput(f"'windfall component {args.action}' takes {takes}")
    return {"add": _add, "ls": _list, "show": _show, "rm": _remove}[args.action](args)


def _add(args: argparse.Namespace) -> int:
    entries = [entry for name in args.names for entry in catalogue().add(Path(name))]
    if args.json:
        print_json_rows(map(_as_json, entries))
    else:
        for entry in entries:
            print(f"{entry.component.name}, version {entry.version}{'' if entry.new else ', is there already'}")
    return 0


def _list(args: argparse.Namespace) -> int:
    known = catalogue()
    entries = [_entry(known, name) for name in known]
    if args.json:
        print_json_rows(map(_as_json, entries))
    elif not entries:
        print("no components yet; 'windfall component add FILE' adds some")
    else:
        print_table(["component", "version", "type", "parameters", "description"], map(_row, entries), right=(1,))
    return 0


def _entry(known: Catalogue, name: str) -> Entry:
    """Return the entry of a component; the description of a damaged one says so."""
    from windfall.workflow.components.catalogue import Entry
    from windfall.workflow.components.files import Component

    try:
        return known.entry(name)
    except BadInput as error:
        text = f"{error.message}; 'windfall component rm {name}', then add it again"
        return Entry(Component(name, "damaged", description=text), known.versions(name)[-1])


def _row(entry: Entry) -> list[str]:
    component = entry.component
    takes = ", ".join(f"{each.mode} {each.name}" for each in component.params)
    if component.implementation is not None:
        takes = f"{component.implementation.lang} for {component.abstract}"
    return [component.name, str(entry.version), component.kind, takes, component.description]


def _as_json(entry: Entry) -> dict[str, Any]:
    component = entry.component
    return {
        "component": component.name, "version": entry.version, "type": component.kind, "new": entry.new,
        "description": component.description, "abstract": component.abstract or None,
        "language": component.implementation.lang if component.implementation else None,
        "parameters": [{"name": each.name, "type": each.type, "mode": each.mode, "collection": each.collection,
                        "size": each.size} for each in component.params],
    }  # fmt: skip


def _named(text: str) -> tuple[str, int | None]:
    name, at, version = text.partition("@")
    if at and not (version.isdecimal() and len(version) < 10):
        raise BadInput(f"'{text}' is not NAME or NAME@VERSION", "as in MatrixProduct@2")
    return name, int(version) if at else None


def _show(args: argparse.Namespace) -> int:
    known = catalogue()
    entries = [known.entry(*_named(name)) for name in args.names]
    if args.json:
        print_json_rows({**_as_json(entry), "versions": known.versions(entry.component.name)} for entry in entries)
        return 0
    for entry in entries:
        sys.stdout.write(known.path(entry.component.name, entry.version).read_text(errors="replace"))
    return 0


def _remove(args: argparse.Namespace) -> int:
    known = catalogue()
    gone = [(name, known.remove(*_named(name))) for name in args.names]
    if args.json:
        print_json([{"component": name.partition("@")[0], "versions": versions} for name, versions in gone])
    else:
        for name, versions in gone:
            print(f"{name.partition('@')[0]}: removed version{'s' * (len(versions) > 1)} "
                  f"{', '.join(map(str, versions))}")
    return 0
