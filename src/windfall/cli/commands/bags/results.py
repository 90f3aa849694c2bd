"""`windfall results`: print one row per ended task.

--json prints one JSON array with a row per line; --jsonl prints the rows alone.  CSV has times in milliseconds and
sizes in bytes, as the API has them; the table has them as people write them; Parquet has timestamps.  A parameter with
the name of a column gets the title `param_NAME`, a captured value `value_NAME`; JSON keeps them apart, in `params` and
`values`.  Every format streams: none holds more than some thousand rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.connect import Session, find_bag
from windfall.cli.parser import add_bag
from windfall.cli.present.causes import words as cause
from windfall.cli.present.fetch_outputs import Problems, add_files
from windfall.cli.present.output import clock, duration, print_json, print_json_rows, print_table
from windfall.client.columns import FIELDS, MOMENTS, Names, captured, parameters
from windfall.errors import BadInput
from windfall.model.units import format_size, plural

if TYPE_CHECKING:
    from windfall.client.types import Row

TEXTS = ("state", "why", "site", "host", "note")
STATES = ("succeeded", "failed", "cancelled", "quarantined")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bag(parser)
    parser.add_argument("--state", choices=STATES, help="only tasks that ended in this state")
    parser.add_argument("--csv", action="store_true", help="comma-separated, with a header")
    parser.add_argument("--jsonl", action="store_true", help="one JSON object per line")
    parser.add_argument("--parquet", metavar="FILE", help="write a Parquet file")
    parser.add_argument("--wfformat", metavar="FILE", type=Path, help="write the graph and the times, as WfFormat 1.5")
    parser.add_argument("-o", dest="directory", metavar="DIR", help="fetch the output files to DIR instead")
    add_files(parser)
    parser.add_argument("--archive", metavar="FILE", type=Path,
                        help="fetch the output files into one .tar, .tar.gz or .zip")


def execute(args: argparse.Namespace) -> int:
    if args.files and not (args.directory or args.archive):
        raise BadInput("--files needs a place for the files", "give one with -o DIR or --archive FILE")
    with Session() as session:
        bag = find_bag(session.client, args.bag)
        for option, write in (("directory", _fetch_files), ("archive", _archive), ("parquet", _parquet),
                              ("wfformat", _wfformat)):
            if getattr(args, option):
                return write(session, bag, args)
        return _print_rows(session, bag, args)


def _print_rows(session: Session, bag: int, args: argparse.Namespace) -> int:
    client, state = session.client, args.state or ""
    if args.json:
        print_json_rows(map(_finite, client.results(bag, state)))
    elif args.jsonl:
        _print_lines(map(_finite, client.results(bag, state)))
    else:
        spec, rows = client.spec(bag), client.texts(bag, state)
        names = Names(parameters(spec), captured(spec))
        if args.csv:
            print_csv(rows, names)
        else:
            print_rows(rows, names, len(spec.targets) > 1)
    return 0


def _archive(session: Session, bag: int, args: argparse.Namespace) -> int:
    from windfall.client.files.archive import save

    problems = Problems()
    count = save(session.client, bag, args.archive, args.files, problems.add)
    if args.json:
        print_json({"bag": bag, "files": count, "archive": str(args.archive)})
    else:
        print(f"{plural(count, 'file')} in {args.archive}")
    problems.tell()
    return 1 if problems.count else 0


def _print_lines(rows: Iterable[dict[str, Any]]) -> None:
    import json

    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def _finite(row: Row) -> Row:
    """Turn captured numbers that JSON does not have, such as nan, into texts."""
    for name, value in (row.get("values") or {}).items():
        if isinstance(value, float) and not isfinite(value):
            row["values"][name] = str(value)
    return row


def _wfformat(session: Session, bag: int, args: argparse.Namespace) -> int:
    from windfall.workflow.build.streaming import whole
    from windfall.workflow.wfformat import export, instance

    client = session.client
    spec, server_numbers = whole(client.spec(bag), client.appended(bag))
    export.refuse_grown(client.bag(bag)["tasks"] - len(server_numbers))
    tasks = {number: task for task, number in enumerate(server_numbers)}
    workflow = export.exported(spec, ({**row, "task": tasks[row["task"]]} for row in client.results(bag)))
    args.wfformat.write_bytes(instance.dumps(workflow))
    if args.json:
        print_json({"bag": bag, "file": str(args.wfformat), "tasks": workflow.tasks, "edges": len(workflow.dag.src)})
    else:
        print(f"{plural(workflow.tasks, 'task')} and {plural(len(workflow.dag.src), 'edge')} in {args.wfformat}")
    return 0


def _parquet(session: Session, bag: int, args: argparse.Namespace) -> int:
    from windfall.cli.present import parquet

    spec = session.client.spec(bag)
    names = Names(parameters(spec), captured(spec))
    kinds = {**dict.fromkeys(MOMENTS, parquet.MOMENT), **dict.fromkeys(TEXTS, parquet.TEXT)}
    columns = [
        *(("task", parquet.INT), ("target", parquet.TEXT)),
        *((title, None) for title in (*names.parameters.values(), *names.captured.values())),
        *((field, kinds.get(field, parquet.INT)) for field in FIELDS),
    ]
    count = parquet.write(
        args.parquet, columns, lambda: names.cells(session.client.results(bag, args.state or ""))
    )
    if args.json:
        print_json({"bag": bag, "file": args.parquet, "rows": count})
    else:
        print(f"{plural(count, 'row')} in {args.parquet}")
    return 0


def _fetch_files(session: Session, bag: int, args: argparse.Namespace) -> int:
    from windfall.cli.present.fetch_outputs import OutputPlace, bring, lines

    directory, problems = Path(args.directory), Problems()
    files, others = bring(session.client, bag, OutputPlace(directory, args.files), problems)
    if args.json:
        print_json({"bag": bag, "files": files, "directory": str(directory), "other_files": others,
                    "problems": problems.count})  # fmt: skip
    else:
        for line in lines(directory, files, others) or ([] if problems.count else ["the bag has no output files"]):
            print(line.strip())
    problems.tell()
    return 1 if problems.count else 0


def print_csv(rows: Iterable[dict[str, Any]], names: Names) -> None:
    import csv
    import sys

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names.columns())
    for row in rows:
        own, fields = _own(row, names), (_cell(row.get(field)) for field in FIELDS)
        writer.writerow([row["task"], row.get("target", "main"), *own, *fields])


def _own(row: dict[str, Any], names: Names) -> Iterator[object]:
    """Yield the cells of parameters, then of captured values."""
    params, values = row.get("params") or {}, row.get("values") or {}
    yield from (_cell(params.get(name)) for name in names.parameters)
    yield from (_cell(values.get(name)) for name in names.captured)


def _cell(value: object) -> object:
    return ("true" if value else "false") if isinstance(value, bool) else value


def print_rows(rows: Iterable[dict[str, Any]], names: Names, targets: bool) -> None:
    header = [
        *(["task", "target"] if targets else ["task"]),
        *(*names.parameters.values(), *names.captured.values()),
        *("state", "exit", "site", "host", "started", "wall", "cpu", "memory", "why"),
    ]
    first = len(header) - 9
    print_table(header, _shown(rows, names, targets), right=(0, first + 1, *range(first + 5, first + 8)))


def _shown(rows: Iterable[dict[str, Any]], names: Names, targets: bool) -> Iterator[list[Any]]:
    for row in rows:
        yield [
            row["task"],
            *([row.get("target")] if targets else []),
            *_own(row, names),
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
