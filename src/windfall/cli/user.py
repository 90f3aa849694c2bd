"""`windfall user add | ls | rm`: who may use the server.  A user is whoever holds a user token; admins make those."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from ..errors import BadInput
from ..model.units import format_size
from .connect import Session
from .login import fingerprint
from .output import plural, print_json, print_json_rows, print_table, say
from .private import write_private

EXAMPLES = """examples:
  windfall user add ada -o ada.json        a file for: windfall login --profile ada.json
  windfall user ls
  windfall user rm ada"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "ls", "rm"), help="let somebody in, list them, put somebody out")
    parser.add_argument("name", nargs="?", help="of the user")
    parser.add_argument("--days", type=int, help="how long the token is valid (default: 365)")
    parser.add_argument("-o", dest="file", metavar="FILE", help="write all that 'windfall login' needs, mode 0600")


def execute(args: argparse.Namespace) -> int:
    if (args.action == "ls") != (args.name is None):
        raise BadInput(f"'windfall user {args.action}' takes {'no' if args.action == 'ls' else 'the'} name of a user")
    with Session() as session:
        return {"add": _add, "ls": _list, "rm": _remove}[args.action](session, args)


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
        say("this server listens on a Unix socket only, so nobody else reaches it; see 'windfall serve --listen'")
    elif args.file:
        say(f"{args.file} lets {args.name} in: windfall login --profile {args.file}")
    else:
        say(f"for {args.name}: windfall login {profile.server} --fingerprint {mark}\n  the token is not shown again")
    return 0


def _list(session: Session, args: argparse.Namespace) -> int:
    tokens = [token for token in session.client.tokens() if token["scope"] in ("user", "admin")]
    counted = Counter(token["user"] for token in tokens)
    admins = {token["user"] for token in tokens if token["scope"] == "admin"}
    usage = session.client.usage(bags=False)
    rows = [
        {"user": user, "tokens": counted[user], "admin": user in admins,
         **({"bytes": usage["users"].get(user, 0), "quota": usage["quota"]} if usage["quota"] else {})}
        for user in sorted(counted)
    ]  # fmt: skip
    if args.json:
        print_json_rows(rows)
    else:
        cells = ([row["user"], row["tokens"], "yes" if row["admin"] else "", *_taken(row)] for row in rows)
        more = ["files", "quota"] if usage["quota"] else []
        print_table(["user", "tokens", "admin", *more], cells, right=(1, 3, 4))
    return 0


def _taken(row: dict[str, Any]) -> list[str]:
    return [format_size(row["bytes"]), format_size(row["quota"])] if "quota" in row else []


def _remove(session: Session, args: argparse.Namespace) -> int:
    """Revokes all tokens; the bags stay."""
    theirs = [token["id"] for token in session.client.tokens() if token["user"] == args.name]
    if not theirs:
        raise BadInput(f"there is no user '{args.name}'", "'windfall user ls' lists them")
    for token in theirs:
        session.client.remove_token(token)
    if args.json:
        print_json({"user": args.name, "revoked": len(theirs)})
    else:
        print(f"{args.name} is out: {plural(len(theirs), 'token')} revoked; the bags stay")
    return 0
