"""`windfall user add | ls | set | rm`: say who may use the server, and how much of it.

A user is a name that has user tokens; admins make these.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from windfall.cli.commands.server.login import fingerprint
from windfall.cli.connect import Session
from windfall.cli.present.output import print_json, print_json_rows, print_table, say
from windfall.cli.secret_files import write_private
from windfall.client.client import Client
from windfall.errors import BadInput
from windfall.model.spec import MAX_WEIGHT
from windfall.model.units import format_core_time, format_size, parse_core_time, plural

EXAMPLES = """examples:
  windfall user add ada -o ada.json        a file for: windfall login --profile ada.json
  windfall user ls
  windfall user set ada --allowance '500 core-hours'    a month; '*' is every other user
  windfall user set ada --weight 2         twice as many slots as others where a site is shared
  windfall user rm ada"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "ls", "set", "rm"),
                        help="add a user, list users, set limits, remove a user")
    parser.add_argument("name", nargs="?", help="name of the user")
    parser.add_argument("--days", type=int, help="how many days the token is valid (default: 365)")
    parser.add_argument("--allowance", metavar="TIME",
                        help="core time that the user may use a month, as '500 core-hours'; 'none': no limit")
    parser.add_argument("--weight", metavar="N", type=int,
                        help="share of the slots of shared sites; 2: twice as many as others, who have 1")
    parser.add_argument("-o", dest="file", metavar="FILE",
                        help="write a file, mode 0600, with all that 'windfall login' needs")


def execute(args: argparse.Namespace) -> int:
    if (args.action == "ls") != (args.name is None):
        raise BadInput(f"'windfall user {args.action}' takes {'no' if args.action == 'ls' else 'the'} name of a user")
    if args.weight is not None and not 1 <= args.weight <= MAX_WEIGHT:
        raise BadInput(f"--weight {args.weight} is not a whole number from 1 to {MAX_WEIGHT:,}",
                       "2: twice as many slots as others, who have 1")
    with Session() as session:
        return {"add": _add, "ls": _list, "set": _set, "rm": _remove}[args.action](session, args)


def _add(session: Session, args: argparse.Namespace) -> int:
    made = session.client.add_token("user", args.name, "", args.days)
    profile = session.client.profile
    mark = fingerprint(profile.certificate) if profile.certificate else None
    if args.file:
        fields = {"server": profile.server, "certificate": profile.certificate, "token": made["token"]}
        write_private(args.file, json.dumps(fields) + "\n")
        made = {**made, "token": None, "file": args.file}
    if args.json:
        print_json({"user": args.name, "server": profile.server, "fingerprint": mark, **made})
        return 0
    print(args.file or made["token"])
    if mark is None:
        say("this server listens on a Unix socket only, so no other machine reaches it; see 'windfall serve --listen'")
    elif args.file:
        say(f"{args.file} lets {args.name} in: windfall login --profile {args.file}")
    else:
        say(f"for {args.name}: windfall login {profile.server} --fingerprint {mark}\n  the token is not shown again")
    return 0


def _set(session: Session, args: argparse.Namespace) -> int:
    if not args.allowance and args.weight is None:
        raise BadInput("there is nothing to set", "give --allowance '500 core-hours', or --weight 2")
    view: dict[str, Any] = {"user": args.name}
    limits = []
    if args.allowance:
        allowance = -1 if args.allowance == "none" else parse_core_time(args.allowance, "--allowance")
        session.client.set_allowance(args.name, allowance)
        view["allowance"] = None if allowance < 0 else allowance
        limits.append("no allowance" if allowance < 0 else f"{format_core_time(allowance)} a month")
    if args.weight is not None:
        session.client.set_weight(args.name, args.weight)
        view["weight"] = args.weight
        limits.append(f"weight {args.weight} at shared sites")
    print_json(view) if args.json else print(f"{args.name}: {', '.join(limits)}")
    return 0


def _list(session: Session, args: argparse.Namespace) -> int:
    rows = _user_rows(session.client)
    if args.json:
        print_json_rows(rows)
        return 0
    columns = [(titles, cells) for key, titles, cells in COLUMNS if any(key in row for row in rows)]
    table = ([row["user"], row["tokens"], "yes" if row["admin"] else "",
              *(cell for _, cells in columns for cell in cells(row))] for row in rows)
    print_table(["user", "tokens", "admin", *(title for titles, _ in columns for title in titles)], table,
                right=(1, 3, 4))
    return 0


def _user_rows(client: Client) -> list[dict[str, Any]]:
    tokens = [token for token in client.tokens() if token["scope"] in ("user", "admin")]
    counted = Counter(token["user"] for token in tokens)
    admins = {token["user"] for token in tokens if token["scope"] == "admin"}
    usage = client.usage(bags=False)
    allowed = {row["user"]: row for row in client.allowances()}
    return [
        {"user": user, "tokens": counted[user], "admin": user in admins,
         **({"bytes": usage["users"].get(user, 0), "quota": usage["quota"]} if usage["quota"] else {}),
         **_allowed(allowed.get(user)), **_weighs(allowed.get(user))}
        for user in sorted(counted)
    ]  # fmt: skip


def _month(row: dict[str, Any]) -> list[str]:
    if "allowance" not in row:
        return ["", ""]
    return [format_core_time(row["used"]), format_core_time(row["allowance"])]


COLUMNS: tuple[tuple[str, list[str], Callable[[dict[str, Any]], list[object]]], ...] = (
    ("weight", ["weight"], lambda row: [row.get("weight", 1)]),
    ("quota", ["files", "quota"], lambda row: [format_size(row["bytes"]), format_size(row["quota"])]),
    ("allowance", ["this month", "allowance"], lambda row: [*_month(row)]),
)  # fmt: skip
"""Columns of `ls` that appear if any row has their key: key, titles, cells of a row."""


def _weighs(row: Any) -> dict[str, int]:
    return {} if row is None or row["weight"] == 1 else {"weight": row["weight"]}


def _allowed(row: Any) -> dict[str, int]:
    return {} if row is None or row["allowance"] is None else {"used": row["used"], "allowance": row["allowance"]}


def _remove(session: Session, args: argparse.Namespace) -> int:
    """Revoke all tokens of the user, whose bags stay."""
    theirs = [token["id"] for token in session.client.tokens() if token["user"] == args.name]
    if not theirs:
        raise BadInput(f"there is no user '{args.name}'", "'windfall user ls' lists them")
    for token in theirs:
        session.client.remove_token(token)
    if args.json:
        print_json({"user": args.name, "revoked": len(theirs)})
    else:
        print(f"user {args.name} is removed: {plural(len(theirs), 'token')} revoked; the user's bags stay")
    return 0
