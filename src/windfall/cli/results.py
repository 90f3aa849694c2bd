"""`windfall results`: one row per ended task.

--json prints one JSON array with a row per line; --jsonl the rows alone.  CSV has times in milliseconds and sizes in
bytes, as the API has them; the table has them as people write them.  A parameter called as a column is goes by
`param_NAME` in CSV and table; JSON has the parameters apart, in `params`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model.units import format_size
from .connect import Session, find_bag
from .output import clock, duration, print_json, print_json_rows, print_table
from .parser import add_bag
from .summary import cause

if TYPE_CHECKING:
    from ..model.spec import Bag

FIELDS = (
    *("state", "exit", "signal", "why", "attempt", "site", "host"),
    *("granted", "started", "ended", "wall", "cpu", "rss", "out_size", "err_size", "note"),
)
TAKEN = frozenset(("task", "target", "memory", *FIELDS))
STATES = ("succeeded", "failed", "cancelled", "quarantined")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    parser.add_argument("--state", choices=STATES, help="only tasks that ended so")
    parser.add_argument("--csv", action="store_true", help="comma-separated, with a header")
    parser.add_argument("--jsonl", action="store_true", help="one JSON object per line")
    parser.add_argument("-o", dest="directory", metavar="DIR", help="bring the output files home to DIR instead")


def execute(args: argparse.Namespace) -> int:
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        if args.directory:
            return _bring(session, bag, Path(args.directory), args.json)
        rows = session.client.results(bag, args.state or "")
        if args.json:
            print_json_rows(rows)
        elif args.jsonl:
            import json

            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
        else:
            spec = session.client.spec(bag)
            (print_csv if args.csv else print_rows)(rows, parameters(spec), len(spec.targets) > 1)
    return 0


def _bring(session: Session, bag: int, directory: Path, as_json: bool) -> int:
    from .fetching import bring, lines

    files, others = bring(session.client, bag, directory)
    if as_json:
        print_json({"bag": bag, "files": files, "directory": str(directory), "other_files": others})
    else:
        for line in lines(directory, files, others) or ["the bag has no output files"]:
            print(line.strip())
    return 0


def parameters(bag: Bag) -> list[str]:
    """Names of all parameters of all targets, in the order they are met."""
    from ..model.render import axis_names
    from ..model.spec import Sweep

    names: dict[str, None] = {}
    for target in bag.targets:
        if isinstance(target.source, Sweep):
            for axis in target.source.axes:
                names.update(dict.fromkeys(axis_names(axis)))
            names.update(dict.fromkeys(derived.name for derived in target.source.derived))
    return list(names)


def columns(names: list[str]) -> list[str]:
    """What the parameters are called above their columns."""
    found: list[str] = []
    for name in names:
        title = name
        while title in TAKEN or title in found or (title != name and title in names):
            title = f"param_{title}"
        found.append(title)
    return found


def print_csv(rows: Iterable[dict[str, Any]], names: list[str], targets: bool) -> None:
    import csv
    import sys

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["task", "target", *columns(names), *FIELDS])
    for row in rows:
        params = row.get("params") or {}
        writer.writerow(
            [
                row["task"],
                row.get("target", "main"),
                *(_cell(params.get(name)) for name in names),
                *(_cell(row.get(field)) for field in FIELDS),
            ]
        )


def _cell(value: object) -> object:
    return ("true" if value else "false") if isinstance(value, bool) else value


def print_rows(rows: Iterable[dict[str, Any]], names: list[str], targets: bool) -> None:
    header = [
        "task",
        *(["target"] if targets else []),
        *columns(names),
        "state",
        "exit",
        "site",
        "host",
        "started",
        "wall",
        "cpu",
        "memory",
        "why",
    ]
    first = 1 + targets + len(names)
    print_table(header, _shown(rows, names, targets), right=(0, first + 1, *range(first + 5, first + 8)))


def _shown(rows: Iterable[dict[str, Any]], names: list[str], targets: bool) -> Iterator[list[Any]]:
    for row in rows:
        params = row.get("params") or {}
        yield [
            row["task"],
            *([row.get("target")] if targets else []),
            *(_cell(params.get(name)) for name in names),
            row.get("state"),
            row.get("exit"),
            row.get("site"),
            row.get("host"),
            clock(row.get("started")),
            duration(row.get("wall")),
            duration(row.get("cpu")),
            format_size(row["rss"]) if row.get("rss") else "",
            "" if row.get("state") == "succeeded" else cause(row),
        ]
