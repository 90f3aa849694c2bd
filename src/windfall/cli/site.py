"""`windfall site add | ls | show | test | login | drain | undrain | rm`: places where pilots can be started.

What a site is stands in its file, `$WINDFALL_HOME/sites/NAME.toml`, which is the user's; what is going on there, the
server knows.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BadInput
from . import siteadd
from .connect import Session
from .output import duration, print_json, print_json_rows, print_table

EXAMPLES = """examples:
  windfall site add big --slurm --ssh me@login.example.org --account proj-7 --walltime 4h --max-pilots 20
  windfall site add big --slurm --ssh me@login.example.org --dry-run
  windfall site add desk --ssh me@workstation --cores 8
  windfall site test big
  windfall site ls"""

ACTIONS = {
    "add": "write a site's file", "ls": "list them", "show": "one site, in full",
    "test": "start a pilot there that runs a task, and say what fails",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(ACTIONS), help="; ".join(f"{k}: {v}" for k, v in ACTIONS.items()))
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the site")
    siteadd.add_arguments(parser)
    more = parser.add_argument_group("test")
    more.add_argument("--timeout", metavar="TIME", help="give up when the pilot has not started by then, as 10min")


def execute(args: argparse.Namespace) -> int:
    if (args.action == "ls") != (args.name is None):
        raise BadInput(f"'windfall site {args.action}' takes {'no' if args.action == 'ls' else 'the'} name of a site")
    if args.action != "add" and (wrong := siteadd.given(args)):
        raise BadInput(f"{wrong[0]} means nothing to 'windfall site {args.action}'", "it belongs to 'add'")
    if args.timeout is not None and args.action != "test":
        raise BadInput(f"--timeout means nothing to 'windfall site {args.action}'", "it belongs to 'test'")
    return {"add": siteadd.execute, "ls": _list, "show": _show, "test": _test}[args.action](args)


def _test(args: argparse.Namespace) -> int:
    from . import sitetest

    return sitetest.execute(args, described(args.name), str(siteadd.folder() / f"{args.name}.toml"))


# --- what there is ------------------------------------------------------------------------------------------------


def known() -> dict[str, Any]:
    """Sites by name as their files have them, or what is wrong with the file."""
    from ..sites import config

    return dict(config.every(siteadd.folder()))


def described(name: str) -> Any:
    """The site of that name; its file's mistakes are the user's to mend."""
    from ..model.check import nearest
    from ..sites import config

    path = siteadd.folder() / f"{name}.toml"
    if not path.is_file():
        raise BadInput(f"there is no site {name}", nearest(name, known()) or "'windfall site add' adds one")
    return config.named(path)


def _rows(views: list[dict[str, Any]], files: dict[str, Any]) -> list[dict[str, Any]]:
    """One per site of a file or of the server."""
    from ..sites.config import Site

    by_name = {view["site"]: view for view in views}
    rows = []
    for name in sorted({*files, *by_name}):
        file, view = files.get(name), by_name.get(name, {})
        row = {"site": name, "dialect": file.dialect if isinstance(file, Site) else view.get("kind", ""),
               "host": file.host if isinstance(file, Site) else "", "state": "ready", "file": name in files, **view}
        if file is not None and not isinstance(file, Site):
            row |= {"state": "wrong file", "error": str(file)}
        rows.append(row)
    return rows


def _list(args: argparse.Namespace) -> int:
    files = known()
    with Session() as session:
        rows = _rows([dict(view) for view in session.client.sites()], files)
    if args.json:
        print_json_rows(rows)
        return 0
    cells = ([row["site"], row["dialect"], row["host"] or "here", row.get("queued", 0), row.get("running", 0),
              row.get("pilots", 0), row["state"], duration(row.get("wait"))] for row in rows)
    print_table(["site", "dialect", "where", "queued", "running", "pilots", "state", "waits"], cells, right=(3, 4, 5))
    for row in rows:
        if "error" in row:
            print(f"\n{row['error']}")
    return 0


def _show(args: argparse.Namespace) -> int:
    files = known()
    with Session() as session:
        rows = [row for row in _rows([dict(view) for view in session.client.sites()], files)
                if row["site"] == args.name]
    if not rows:
        described(args.name)  # says what is known instead
    row = {**rows[0], **({"file": str(siteadd.folder() / f"{args.name}.toml")} if rows[0]["file"] else {"file": ""})}
    if args.json:
        print_json(row)
        return 0
    _print(row, files.get(args.name))
    return 0


def _print(row: dict[str, Any], site: Any) -> None:
    print(f"{row['site']}: {row['dialect']}, {row['host'] or 'here'}, {row['state']}")
    print(f"  pilots        {row.get('queued', 0)} queued, {row.get('running', 0)} running")
    for line in _limits(row):
        print("  " + line)
    for shape in getattr(site, "shapes", ()):
        print(f"  shape         {_shape(shape)}")
    print(f"  file          {row['file'] or 'none: pilots come by tickets only'}")


def _limits(row: dict[str, Any]) -> list[str]:
    limits = row.get("limits") or {}
    lines = []
    for key, text in (("pilots", "at most {} pilots"), ("queued", "at most {} of them queued")):
        if limits.get(key):
            lines.append("limits        " + text.format(limits[key]))
    if budget := limits.get("budget"):
        lines.append(f"core-hours    {_hours(row.get('used', 0))} used, {_hours(row.get('reserved', 0))} reserved, "
                     f"of {_hours(budget)}")
    return lines


def _hours(ms: int) -> str:
    return f"{ms / 3_600_000:,.1f}"


def _shape(shape: Any) -> str:
    from ..model.units import format_size

    parts = [f"{shape.cores} cores" if shape.cores > 1 else "1 core", duration(shape.walltime * 1000)]
    parts += [format_size(shape.memory)] if shape.memory else []
    parts += [f"{shape.gpus} GPUs"] if shape.gpus else []
    parts += [f"{shape.nodes} nodes"] if shape.nodes > 1 else []
    return ", ".join(parts + ["whole node"] * shape.whole)
