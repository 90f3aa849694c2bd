"""`windfall site add | ls | show | test | login | drain | undrain | share | unshare | rm`: manage sites.

The user's file `$WINDFALL_HOME/sites/NAME.toml` defines a site; the server knows the state of its pilots.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from windfall.cli.commands.sites import add
from windfall.cli.connect import Session
from windfall.cli.present.output import clock, duration, print_json, print_json_rows, print_table, say
from windfall.client.client import Client
from windfall.errors import BadInput, Conflict, NotFound, WindfallError
from windfall.model.units import plural

EXAMPLES = """examples:
  windfall site add big --slurm --ssh me@login.example.org --account proj-7 --walltime 4h --max-pilots 20
  windfall site add big --slurm --ssh me@login.example.org --dry-run
  windfall site add desk --ssh me@workstation --cores 8
  windfall site test big
  windfall site login big
  windfall site ls
  windfall site drain big
  windfall site share big ann bob
  windfall site rm big --now"""

OWN = "local"  # the site of the server's own pilot
ACTIONS = {
    "add": "write a site's file", "ls": "list the sites", "show": "show one site in full",
    "test": "start a pilot there that runs a task, and say what fails",
    "login": "answer what the site asks for at login",
    "drain": "send no more work there", "undrain": "use it again",
    "share": "let other users use it (admins only)", "unshare": "end that", "rm": "forget it",
}


HISTORY = 10  # lines of a site's history that are shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(ACTIONS), help="; ".join(f"{k}: {v}" for k, v in ACTIONS.items()))
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the site")
    parser.add_argument("users", nargs="*", metavar="USER", help="share, unshare: names of users")
    add.add_arguments(parser)
    more = parser.add_argument_group("test, drain, rm")
    more.add_argument("--timeout", metavar="TIME", help="test: give up when no pilot has started by then, as 10min")
    more.add_argument("--now", action="store_const", const=True, help="drain, rm: also stop the pilots that run there")


def execute(args: argparse.Namespace) -> int:
    if (args.action == "ls") != (args.name is None):
        raise BadInput(f"'windfall site {args.action}' takes {'no' if args.action == 'ls' else 'the'} name of a site")
    if bool(args.users) != (args.action in ("share", "unshare")):
        raise BadInput(f"'windfall site {args.action}' takes one name; remove {args.users[0]!r}" if args.users else
                       f"'windfall site {args.action}' takes the names of users", "as in windfall site share big ann")
    if args.action != "add" and (wrong := add.given(args)):
        raise BadInput(f"{wrong[0]} does not go with 'windfall site {args.action}'", "it belongs to 'add'")
    for option, actions in (("timeout", ("test",)), ("now", ("drain", "rm"))):
        if getattr(args, option) is not None and args.action not in actions:
            raise BadInput(f"--{option} does not go with 'windfall site {args.action}'",
                           f"it belongs to {' and '.join(actions)}")
    return {"add": add.execute, "ls": _list, "show": _show, "test": _test, "login": _login, "drain": _drain,
            "undrain": _undrain, "share": _share, "unshare": _share, "rm": _remove}[args.action](args)


def _test(args: argparse.Namespace) -> int:
    from windfall.cli.commands.sites import test

    return test.execute(args, described(args.name), str(add.folder() / f"{args.name}.toml"))


def _login(args: argparse.Namespace) -> int:
    from windfall.cli.commands.sites import login as sitelogin

    return sitelogin.execute(args, described(args.name))


# --- list and show ------------------------------------------------------------------------------------------------


def known() -> dict[str, Any]:
    """Return the sites by name, as their files define them; for a wrong file, the error."""
    from windfall.sites import site_file

    return dict(site_file.every(add.folder()))


def described(name: str) -> Any:
    """Return the site of that name; raise BadInput if its file is missing or wrong."""
    from windfall.model.suggest import nearest
    from windfall.sites import site_file

    path = add.folder() / f"{name}.toml"
    if not path.is_file():
        if name == OWN:
            raise BadInput(f"{name} is this machine, with the server's own pilot: it has no file, and needs no test",
                           "'windfall site add here --local' makes a site with pilots on this machine")
        raise BadInput(f"there is no site file {name}.toml", nearest(name, known()) or "'windfall site add' makes one")
    return site_file.named(path)


def _state(row: dict[str, Any], told: dict[str, Any]) -> str:
    for state, holds in (("drained", row.get("drained")), ("needs login", told.get("needs_login")),
                         ("suspect", row.get("suspect")), ("in trouble", told.get("trouble"))):
        if holds:
            return state
    return "ready"


def _rows(views: list[dict[str, Any]], files: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each site that has a file or that the server knows, with its provisioner's report."""
    from windfall.cli.commands.sites.test import status
    from windfall.sites.site_file import Site

    told = {line["site"]: line for line in status() if line.get("site")}
    by_name = {view["site"]: view for view in views}
    rows = []
    for name in sorted({*files, *by_name}):
        file, view = files.get(name), by_name.get(name, {})
        row = {"site": name, "dialect": file.dialect if isinstance(file, Site) else view.get("kind", ""),
               "host": file.host if isinstance(file, Site) else "", "file": name in files, **view}
        row["state"] = _state(row, told.get(name, {}))
        if trouble := told.get(name, {}).get("trouble"):
            row["trouble"] = trouble
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
    cells = ([row["site"], row["dialect"], _where(row), row.get("queued", 0), row.get("running", 0),
              row.get("pilots", 0), row["state"], duration(row.get("wait"))] for row in rows)
    print_table(["site", "dialect", "where", "queued", "running", "pilots", "state", "waits"], cells, right=(3, 4, 5))
    for row in rows:
        if trouble := row.get("error") or row.get("trouble"):
            print(f"\n{row['site']}: {trouble}")
    return 0


def _show(args: argparse.Namespace) -> int:
    files = known()
    with Session() as session:
        views = [dict(view) for view in session.client.sites()]
        detail = dict(session.client.site(args.name)) if args.name in [view["site"] for view in views] else {}
        rows = [row for row in _rows(views, files) if row["site"] == args.name]
    if not rows:
        described(args.name)  # raises, with a hint
    row = {**rows[0], **detail, "file": str(add.folder() / f"{args.name}.toml") if rows[0]["file"] else ""}
    if args.json:
        print_json(row)
        return 0
    _print(row, files.get(args.name))
    return 0


def _print(row: dict[str, Any], site: Any) -> None:
    print(f"{row['site']}: " + ", ".join(filter(None, (row["dialect"], _where(row), row["state"]))))
    print(f"  pilots        {row.get('queued', 0)} queued, {row.get('running', 0)} running")
    for line in _limits(row):
        print("  " + line)
    for shape in getattr(site, "shapes", ()):
        print(f"  shape         {_shape(shape)}")
    for waits in row.get("waits", ()):
        if waits["pilots"]:
            start = f", {duration(waits['start'])} to start" if waits["start"] is not None else ""
            print(f"  waits         {duration(waits['wait'])} in the queue{start}, for "
                  f"{plural(waits['shape']['cores'], 'core')}, {duration(waits['shape']['wall'])} "
                  f"({plural(waits['pilots'], 'pilot')} so far)")
    if site is not None and hasattr(site, "reach"):
        print(f"  reach         {site.reach}")
    print(f"  file          {row['file'] or 'none: its pilots come by tickets only'}")
    for trouble in filter(None, (row.get("error"), row.get("trouble"))):
        print("  trouble       " + trouble.replace("\n", "\n" + " " * 14))
    for each in row.get("history", ())[-HISTORY:]:
        print(f"  {clock(each['at']):<12}  {each['says']}")


def _where(row: dict[str, Any]) -> str:
    """Return the site's host; "" if its file is wrong."""
    return "" if "error" in row else row["host"] or "here"


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
    from windfall.model.units import format_size

    parts = [f"{shape.cores} cores" if shape.cores > 1 else "1 core", duration(shape.walltime * 1000)]
    parts += [format_size(shape.memory)] if shape.memory else []
    parts += [f"{shape.gpus} GPUs"] if shape.gpus else []
    parts += [f"{shape.nodes} nodes"] if shape.nodes > 1 else []
    return ", ".join(parts + ["whole node"] * shape.whole)


# --- change ----------------------------------------------------------------------------------------


def _drain(args: argparse.Namespace) -> int:
    with Session() as session:
        _make_known(session.client, args.name)
        view = session.client.drain_site(args.name, now=bool(args.now))
    if args.json:
        print_json(view)
    elif left := max(view["open"], view["pilots"]):
        print(f"site {args.name} is drained; {plural(left, 'pilot')} there "
              + ("will be stopped" if args.now else "will finish what they have and leave"))
    else:
        print(f"site {args.name} is drained; no pilot is there")
    return 0


def _make_known(client: Client, name: str) -> None:
    """Tell the server of a site that has a file, if no provisioner has done so yet."""
    if name not in [site["site"] for site in client.sites()]:
        client.add_site(name, described(name).dialect)


def _undrain(args: argparse.Namespace) -> int:
    with Session() as session:
        _make_known(session.client, args.name)
        view = session.client.undrain_site(args.name)
    if args.json:
        print_json(view)
    else:
        print(f"site {args.name} is in use again")
    return 0


def _share(args: argparse.Namespace) -> int:
    """Share the site, or stop sharing it.

    Guests' tasks run under the account that the site's file names.  Its owner can read them, and the message says so.
    """
    wanted = {"add" if args.action == "share" else "remove": args.users}
    with Session() as session:
        if (add.folder() / f"{args.name}.toml").is_file():
            _make_known(session.client, args.name)
        view = session.client.share_site(args.name, **wanted)
    if args.json:
        print_json(view)
    elif view["shared"]:
        print(f"site {args.name} is shared with {', '.join(view['shared'])}: what they run there, its owner can read")
    else:
        print(f"site {args.name} is not shared with anybody")
    return 0


def _remove(args: argparse.Namespace) -> int:
    """Forget the site.  Its file goes last: with it, a provisioner can still stop pilots."""
    path = add.folder() / f"{args.name}.toml"
    with Session() as session:
        found = path.is_file()
        if args.now:
            _empty(session.client, args.name)
        found = _forget(session.client, args.name) or found
        if not found:
            described(args.name)  # raises, with a hint
        left = _left_at(path)
        path.unlink(missing_ok=True)
        _forget(session.client, args.name)  # a provisioner that has just read the file may have added the site again
    if args.json:
        print_json({"site": args.name})
    else:
        print(f"site {args.name} is forgotten")
        if left:
            say(f"logs, the pilot's file and unsent results may be left there; to remove them: {left}")
    return 0


def _left_at(path: Path) -> str:
    """Return the command that removes what pilots left at the site; "" if the file does not say where."""
    from windfall.sites import site_file

    try:
        site = site_file.load(path)
    except (WindfallError, OSError):
        return ""
    port = f"-p {site.port} " if site.port else ""
    login = f"{site.user}@{site.host}" if site.user else site.host
    jobs = "; and ~/.windfall/jobs, if no other site uses that machine" if site.dialect in ("ssh", "local") else ""
    return (f"ssh {port}{login} rm -r {site.folder}" if site.host else f"cd && rm -r {site.folder}") + jobs


def _forget(client: Client, name: str) -> bool:
    """Remove the site from the server.  Did the server know it?"""
    try:
        client.remove_site(name)
    except NotFound:
        return False
    except Conflict as error:
        hint = f"windfall site drain {name}, and wait; or windfall site rm {name} --now"
        raise Conflict(error.message, hint) from None
    return True


def _empty(client: Client, name: str) -> None:
    """Stop the site's pilots and wait until none is left; Ctrl-C leaves the site drained."""
    try:
        view = client.drain_site(name, now=True)
    except NotFound:
        return
    reported = 0
    while left := max(view["open"], view["pilots"]):
        if left != reported:
            say(f"{plural(left, 'pilot')} to stop (Ctrl-C leaves the site drained)")
        reported = left
        time.sleep(0.5)
        view = client.site(name)
