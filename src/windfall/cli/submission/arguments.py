"""The arguments of `run` and `submit`: a bag file, or a command and options."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from windfall.cli.present.output import say
from windfall.cli.submission import foreign_graphs, left_behind
from windfall.cli.submission.origin import with_origin
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.model.bagfile.reader import Parsed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="BAG.toml | 'COMMAND' | -",
        nargs="*",
        help="a bag file, or a command in quotes with {name} for parameters; "
        "after --, a program and its arguments, without a shell; TASKS.apst means --apst TASKS.apst, "
        "and - reads a command per line from standard input",
    )
    parser.add_argument(
        "-s",
        "--sweep",
        metavar="NAME=VALUES",
        action="append",
        default=[],
        help="a parameter: x=1..100, x=0..1:0.1, x=a,b,c, x=glob:*.csv for the files that match, or out=r-{x}.txt; "
        "several make a product",
    )
    parser.add_argument("--csv", metavar="FILE",
                        help="parameters from a file, or from - (standard input): a column each; a row for each task")
    parser.add_argument("--apst", metavar="FILE",
                        help="a file, or -, with a task per line: command ; in: files ; out: files ; cost: n")
    parser.add_argument("--name", help="name of the bag")
    parser.add_argument(
        "--extend", metavar="BAG", help="add to this earlier bag (number or name) the points that it has not had"
    )
    task = parser.add_argument_group("each task (instead of [task] in a bag file)")
    task.add_argument("--cores", type=int, metavar="N", help="cores that a task takes (default: 1)")
    task.add_argument("--memory", metavar="SIZE", help="memory limit, such as 2GB")
    task.add_argument("--time", metavar="DURATION", help="time limit, such as 30min")
    task.add_argument(
        "--retries",
        type=int,
        metavar="N",
        help="how often a failed task is tried again (default: 3; time limits count apart)",
    )
    task.add_argument(
        "--time-retries",
        type=int,
        metavar="N",
        help="how often a task over its time limit is tried again, with three times as much each time "
        "(default and most: 3; 0 with --retries 0)",
    )
    task.add_argument(
        "--input", dest="inputs", action="append", metavar="FILE",
        help="'FILE', 'FILE -> PATH', or a pattern such as 'data/*.csv'; may be repeated",
    )
    task.add_argument(
        "--output", dest="outputs", action="append", metavar="PATH",
        help="file or directory to bring home, or a pattern such as '*.png'; may be repeated",
    )
    foreign_graphs.add_arguments(parser)


STDIN = "-"  # in place of a file's name
TASK_OPTIONS = ("cores", "memory", "time", "retries", "time-retries", "inputs", "outputs")


def parsed(args: argparse.Namespace) -> Parsed:
    found = parsed_at(args, Path())
    forgotten = left_behind.hints(found.bag, _folder(args)) if _graph(args) is None else ()
    for hint in (*found.hints, *forgotten):
        say(f"hint: {hint}")
    if not found.pythons or getattr(args, "dry_run", False):
        return found
    from windfall.client.files.submission import with_pythons

    return with_pythons(found)


def _folder(args: argparse.Namespace) -> Path:
    """Return the folder where the paths of inputs start."""
    return Path(args.what[0]).parent if _given(args, ".toml") else Path()


def parsed_at(args: argparse.Namespace, base: Path) -> Parsed:
    """Return the bag that was described in a folder; its Python environments are not packed."""
    graph, task = _graph(args), task_keys(args)
    foreign_graphs.check(args, graph)
    if graph is not None:
        if args.sweep or args.csv or task or args.extend:
            raise BadInput("options for tasks do not go with a graph's file",
                           "the file describes its tasks: leave the options out")
        return foreign_graphs.parsed(args, graph)
    return with_origin(_of_tasks(args, task, base), args, base)


def task_keys(args: argparse.Namespace) -> dict[str, object]:
    """Return the options that are keys of [task]."""
    given = {key: getattr(args, key.replace("-", "_")) for key in TASK_OPTIONS}
    return {key: value for key, value in given.items() if value is not None}


def _of_tasks(args: argparse.Namespace, task: dict[str, object], base: Path) -> Parsed:
    lines = _apst(args)
    if lines is not None:
        return _one_per_line(args, lines, task, base)
    command = _command(args, base)
    return _from_bag_file(args, task, base) if command is None else _from_command(args, command, task, base)


def _from_command(
    args: argparse.Namespace, command: str | list[str], task: dict[str, object], base: Path
) -> Parsed:
    from windfall.model.bagfile import reader

    first = command[0] if isinstance(command, list) else (command.split() or [""])[0]
    return reader.from_options(command, args.sweep, args.name or _name_of(first), task, base, csv=args.csv or "")


def _from_bag_file(args: argparse.Namespace, task: dict[str, object], base: Path) -> Parsed:
    from windfall.model.bagfile import reader

    if args.csv:
        raise BadInput("--csv goes with a command, not with a bag file", f'put file = "{args.csv}" under [sweep.csv]')
    if args.sweep or task:
        raise _belongs_in_file(args.sweep, task)
    found = reader.load(base / args.what[0])
    if args.name:
        import msgspec

        from windfall.model.checks.bag import validate

        found = found._replace(bag=msgspec.structs.replace(found.bag, name=args.name))
        validate(found.bag)
    return found


def _graph(args: argparse.Namespace) -> str | None:
    if args.apst is not None:
        return None
    return next((args.what[0] for kind in foreign_graphs.KINDS if _given(args, kind)), None)


def _given(args: argparse.Namespace, suffix: str) -> bool:
    """Is the only argument the name of a file of that kind?"""
    return len(args.what) == 1 and args.vector is None and _names_file(args.what[0], suffix)


def _apst(args: argparse.Namespace) -> str | None:
    """Return the file with a task per line; None if none was given."""
    if args.apst is None:
        given = _given(args, ".apst") or (args.what == [STDIN] and args.vector is None)
        return args.what[0] if given else None
    if args.what or args.vector is not None:
        raise BadInput("--apst does not go with a command", "the file has the commands")
    return str(args.apst)


def _one_per_line(args: argparse.Namespace, file: str, task: dict[str, object], base: Path) -> Parsed:
    from windfall.model.bagfile import apst

    if args.sweep or args.csv:
        raise BadInput("--sweep and --csv do not go with a file of tasks", "leave them out: each line is a task")
    return apst.load(file if file == STDIN else base / file, args.name or "", task, base)


def _names_file(text: str, suffix: str, base: Path = Path()) -> bool:
    return text.endswith(suffix) and (os.path.exists(base / text) or not re.search(r"\s", text))


def _belongs_in_file(sweeps: list[str], task: dict[str, object]) -> BadInput:
    import json

    if sweeps:
        name, _, values = sweeps[0].partition("=")
        option, line = "sweep", f"{name} = {json.dumps(values)} under [sweep]"
    else:
        key, value = next(iter(task.items()))
        option = key.removesuffix("s") if key in ("inputs", "outputs") else key
        line = f"{key} = {json.dumps(value)} under [task]"
    return BadInput(f"--{option} goes with a command, not with a bag file", f"put {line}")


def _command(args: argparse.Namespace, base: Path) -> str | list[str] | None:
    """Return the command that was given; None for a bag file."""
    if args.vector is not None:
        if args.what:
            raise BadInput(f"'{args.what[0]}' stands before '--'", "put it after '--', where the command begins")
        if not args.vector:
            raise BadInput("there is no command after '--'")
        return list(args.vector)
    if not args.what:
        raise BadInput("there is nothing to run", "windfall run BAG.toml, or windfall run 'prog {x}' --sweep x=1..10")
    if len(args.what) > 1:
        raise BadInput(
            "there is more than one bag file or command",
            f"put the command in quotes, or: windfall run [options] -- {' '.join(args.what)}",
        )
    text: str = args.what[0]
    return None if _names_file(text, ".toml", base) else text


def _name_of(program: str) -> str:
    name = re.sub(r"[^\w.-]+", "-", Path(program).name).strip("-.")
    return name[:50] or "command"


def extended(client: Client, parsed: Parsed, given: str) -> tuple[int, int]:
    """Give a bag the points that it has not had; return its number, and how many points those are."""
    from windfall.cli.connect import find_bag

    bag = find_bag(client, given)
    return bag, sum(client.extend(bag, parsed.bag, parsed.uploads).values())
