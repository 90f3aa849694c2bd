"""`windfall compile`: check an application and show what it needs.  Run nothing, and ask no server."""

from __future__ import annotations

import argparse
from typing import Any

from windfall.cli.present.output import duration, print_json, print_table, say
from windfall.cli.submission import application
from windfall.model.units import plural

EXAMPLES = """examples:
  windfall compile product.query
  windfall compile product.query --components components/ --set div=4
  windfall compile product.query --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    application.add_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    program = application.compiled(args)
    from windfall.workflow.graphs import report
    from windfall.workflow.yvetteml.program import Program

    found = report.requirements(program) if isinstance(program, Program) else program.requirements()
    if args.json:
        print_json(found)
        return 0
    _tell(found)
    for doubt in found["doubts"]:
        say(f"warning: {doubt}")
    return 0


def _tell(found: dict[str, Any]) -> None:
    edges = "" if found["edges"] is None else f", {plural(found['edges'], 'edge')}"
    print(f"{found['application']}: {plural(found['tasks'], 'task')}{edges}, depth {found['depth']:,}, "
          f"width {found['width']:,}")
    if runs := found["critical_path"]["components"]:
        print(f"longest chain: {_chain(runs)}")
    recorded = bool(found["critical_path"].get("seconds"))
    if recorded:
        print(f"recorded: {_seconds(found['critical_path'])} along the chain that takes longest")
    if found["components"]:
        _print_components(found["components"], recorded)
    if found["sections"]:
        _print_sections(found["sections"])


def _chain(runs: list[dict[str, Any]]) -> str:
    shown = (f"{run['component']}{' ×' + format(run['tasks'], ',') if run['tasks'] > 1 else ''}" for run in runs[:12])
    return " → ".join([*shown, *(["…"] if len(runs) > 12 else [])])


def _print_components(components: list[dict[str, Any]], recorded: bool) -> None:
    print()
    rows = [[each["component"], f"{each['tasks']:,}", _bytes(each["bytes_in"]), _bytes(each["bytes_out"]),
             *([_seconds(each)] if recorded else [])] for each in components]
    header = ["component", "tasks", "bytes in", "bytes out", "recorded"]
    print_table(header[: len(rows[0])], rows, right=(1, 2, 3, 4))


def _print_sections(sections: list[dict[str, Any]]) -> None:
    print()
    rows = [[f"line {each['line']}", each["kind"], "" if each["parent"] is None else f"in {each['parent']}",
             f"{each['branches']:,}", f"{each['tasks']:,}"] for each in sections]
    numbered = ([str(number), *row] for number, row in enumerate(rows))
    print_table(["section", "par at", "kind", "", "side by side", "tasks"], numbered, right=(0, 4, 5))


def _seconds(recorded: dict[str, Any]) -> str:
    return duration(round(recorded["seconds"] * 1000))


def _bytes(size: int | None) -> str:
    """Format a size; the size of a user's own type is unknown unless it is declared."""
    if size is None:
        return "?"
    from windfall.model.units import format_size

    return format_size(size)
