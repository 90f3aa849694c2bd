"""`windfall experiment`: run one of the papers' studies, and print its numbers beside ours.

Exit code 1: a number of ours lies outside its required range.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.present.output import print_json, print_table, say
from windfall.errors import BadInput
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.sim.experiments.base import Cell, Experiment, StudyResult

EXAMPLES = """examples:
  windfall experiment --list
  windfall experiment s-f2
  windfall experiment t-6.6 --seeds 5 -o plots"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", help="which study")
    parser.add_argument("--list", action="store_true", help="list the studies")
    parser.add_argument("--seeds", metavar="N", type=int, help="number of seeds; the result is their mean")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="the first seed (1)")
    parser.add_argument("-o", dest="directory", metavar="DIR", type=Path, help="write tables and plots there")


def execute(args: argparse.Namespace) -> int:
    if args.list:
        return _list(args.json)
    if args.id is None:
        raise BadInput("which experiment?", "'windfall experiment --list' lists them")
    if args.seeds is not None and not 1 <= args.seeds <= 100_000:
        raise BadInput(f"--seeds must be from 1 to 100,000, not {args.seeds:,}")
    from windfall.sim.experiments import find
    from windfall.sim.experiments.base import Options

    found = find(args.id)
    outcome = found.run(Options(args.seeds, args.seed, (lambda _text: None) if args.json else say))
    if args.directory is not None:
        _write(outcome, args.directory)
    if args.json:
        print_json(_as_json(found, outcome))
    else:
        _tell(found, outcome)
    return 1 if _missed(outcome) else 0


def _list(as_json: bool) -> int:
    from windfall.sim.experiments import STUDIES

    if as_json:
        print_json([{"id": name, "title": study.title, "here": study.here} for name, study in STUDIES.items()])
    else:
        width = max(map(len, STUDIES))
        for name, study in STUDIES.items():
            print(f"{name:{width}}  {study.title}{'' if study.here else ' (not there yet)'}")
    return 0


def _write(outcome: StudyResult, directory: Path) -> None:
    from windfall.sim.pages import OutputFolder, write_figures

    OutputFolder(directory).rows("cells.csv", ("name", "paper", "ours", "unit", "low", "high"), outcome.cells)
    write_figures(outcome.figures, directory)


def _missed(outcome: StudyResult) -> list[Cell]:
    return [cell for cell in outcome.cells if cell.asked and not cell.holds]


def _as_json(found: Experiment, outcome: StudyResult) -> dict[str, Any]:
    return {
        "id": found.id, "title": found.title, "source": found.source,
        "cells": [{**cell._asdict(), "holds": cell.holds if cell.asked else None} for cell in outcome.cells],
        "notes": outcome.notes,
    }


def _tell(found: Experiment, outcome: StudyResult) -> None:
    print(f"{found.id}: {found.title}\n{found.source}\n")
    print_table(["", "paper", "ours", "", "difference", "asked", "holds"], map(_row, outcome.cells), right=(1, 2, 4))
    for note in outcome.notes:
        print(f"\n{note}")
    asked, missed = sum(cell.asked for cell in outcome.cells), _missed(outcome)
    if asked:
        print(f"\n{asked - len(missed)} of {plural(asked, 'number')} with a required range lie in it")


def _row(cell: Cell) -> list[str]:
    holds = ("yes" if cell.holds else "NO") if cell.asked else ""
    return [cell.name, _number(cell.paper), _number(cell.ours), cell.unit, _difference(cell), _range(cell), holds]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _difference(cell: Cell) -> str:
    """Return the difference in percent of the paper's number; the difference of two percentages in points."""
    if cell.paper is None:
        return ""
    off = cell.ours - cell.paper
    if cell.unit == "%":
        return f"{off:+.1f} points"
    return f"{off / abs(cell.paper):+.1%}" if cell.paper else f"{off:+.4g}"


def _range(cell: Cell) -> str:
    if cell.low == cell.high:
        return _number(cell.low)
    if cell.low is None:
        return f"at most {_number(cell.high)}"
    return f"at least {_number(cell.low)}" if cell.high is None else f"{_number(cell.low)} … {_number(cell.high)}"
