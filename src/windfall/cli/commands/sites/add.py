"""`windfall site add`: write a site's file from options, and read it back before it appears."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from windfall.cli.present.output import print_json, say
from windfall.client.profile import make_home
from windfall.errors import BadInput

DIALECTS = ("slurm", "gridengine", "htcondor", "pbs", "torque", "lsf", "local")
_NUMBERS = {"--port": "port of its SSH server", "--max-pilots": "at most N pilots, queued or running",
            "--max-queued": "at most N pilots in the batch queue", "--core-hours": "at most N core-hours in all"}
_SHAPE_NUMBERS = {"--cores": "cores of a pilot (default: 1)", "--gpus": "GPUs of a pilot",
                  "--nodes": "nodes of a pilot"}
_TEXTS = {"--reach": "how pilots reach the server: direct (default), relay, spool, auto",
          "--server": "https://host:port at which pilots reach it (default: the server's own address)",
          "--account": "account that the batch system charges", "--python": "Python on the nodes (default: python3)",
          "--folder": "directory there for the pilot's file and logs",
          "--grace": "time between the signal and a pilot's end"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group("add")
    kind = options.add_mutually_exclusive_group()
    for name in DIALECTS:
        text = "no batch system: this machine" if name == "local" else f"its batch system is {name}"
        kind.add_argument(f"--{name}", dest="dialect", action="store_const", const=name, help=text)
    options.add_argument("--ssh", metavar="USER@HOST",
                         help="run the batch system's commands there; without a batch system: pilots run there")
    options.add_argument("--queue", "--partition", metavar="NAME",
                         help="its queue or partition (default: the batch system's)")
    for name, text in _TEXTS.items():
        options.add_argument(name, metavar=name[2:].upper(), help=text)
    for name, text in _NUMBERS.items():
        options.add_argument(name, type=int, metavar="N", help=text)
    options.add_argument("--walltime", metavar="TIME", help="wall time of a pilot, as 4h (default: 1h)")
    options.add_argument("--memory", metavar="SIZE", help="memory of a pilot, as 8GB (default: the site's)")
    for name, text in _SHAPE_NUMBERS.items():
        options.add_argument(name, type=int, metavar="N", help=text)
    options.add_argument("--whole-node", action="store_const", const=True,
                         help="pilots share their nodes with no other job")
    options.add_argument("--setup", action="append", metavar="LINE", help="line of shell before the pilot (repeatable)")
    options.add_argument("--directives", action="append", metavar="LINE",
                         help="directive for the batch system (repeatable)")
    for name, text in (("variables", "variable in the environment of tasks"),
                       ("options", "setting that only this dialect has"),
                       ("staged", "name of a file that lies at the site")):
        options.add_argument(f"--{name}", action="append", default=[], metavar="NAME=VALUE",
                             help=f"{text} (repeatable)")
    options.add_argument("-n", "--dry-run", action="store_true", help="print the file and what would be submitted")


_SITE = ("port", "reach", "server", "account", "queue", "folder", "max_pilots", "max_queued", "core_hours", "grace",
         "python", "directives", "setup")
_SHAPE = ("cores", "memory", "walltime", "gpus", "nodes", "whole_node")
TABLES = ("variables", "options", "staged")


def given(args: argparse.Namespace) -> list[str]:
    """Return the options of `add` that the user gave."""
    names = ("ssh", *_SITE, *_SHAPE, *TABLES)
    kind = [f"--{args.dialect}"] if args.dialect else []
    return kind + [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) not in (None, [])]


def execute(args: argparse.Namespace) -> int:
    from windfall.sites import site_file

    path = folder() / f"{args.name}.toml"
    text = _text(args)
    site = site_file.parse(text, f"the file of {args.name}")
    if args.dry_run:
        _show(args, path, text, _submission(site))
        return 0
    make_home()
    _write(path, text)
    if args.json:
        print_json({"site": site.name, "dialect": site.dialect, "file": str(path)})
    else:
        print(path)
        say(f"site {site.name} is saved; next: windfall site test {site.name}")
    return 0


def folder() -> Path:
    from windfall.client.profile import home

    return home() / "sites"


def _text(args: argparse.Namespace) -> str:
    from windfall.sites.write import written

    dialect = args.dialect or ("ssh" if args.ssh else "")
    if not dialect:
        raise BadInput("what kind of site is it?", "--slurm, --gridengine, … for a batch system; --ssh USER@HOST for a "
                       "machine without one; --local for this one")
    site = {"name": args.name, "dialect": dialect, **({"host": args.ssh} if args.ssh else {}), **_picked(args, _SITE)}
    shape = {"walltime": "1h", **_picked(args, _SHAPE)}
    return written(site, shape, {name: dict(map(_pair, getattr(args, name))) for name in TABLES})


def _picked(args: argparse.Namespace, names: tuple[str, ...]) -> dict[str, Any]:
    return {name.replace("_", "-"): getattr(args, name) for name in names if getattr(args, name) is not None}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadInput(f"{text!r} is not NAME=VALUE")
    return name, value


def _show(args: argparse.Namespace, path: Path, text: str, commands: str) -> None:
    if args.json:
        print_json({"file": str(path), "text": text, "submission": commands})
    else:
        print(f"# {path}\n{text}\n# One pilot of it would be submitted so:\n{commands}", end="")


def _submission(site: Any) -> str:
    """Return the commands that would submit a pilot to the site."""
    from tempfile import TemporaryDirectory

    from windfall.pilot import bundle
    from windfall.provision.site_files import example

    with TemporaryDirectory() as folder:
        return example(site, bundle.build(folder)[1])


def _write(path: Path, text: str) -> None:
    """Write a new file, in one step, that only the user can read: its lines run under the user's account."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o600)
        os.link(fresh, path)  # fails if the file exists
    except FileExistsError:
        raise BadInput(f"site {path.stem} exists already: {path}", "edit that file, or: windfall site rm "
                       + path.stem) from None
    finally:
        fresh.unlink(missing_ok=True)
