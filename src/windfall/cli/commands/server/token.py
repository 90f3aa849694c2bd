"""`windfall token add | ls | rm`: make, list and revoke tokens."""

from __future__ import annotations

import argparse
import json
from typing import Any

from windfall.cli.connect import Session
from windfall.cli.present.output import clock, print_json, print_json_rows, print_table, say
from windfall.cli.secret_files import write_private
from windfall.errors import BadInput

EXAMPLES = """examples:
  windfall token add --scope enrol --site cluster -o cluster.json
  windfall token ls
  windfall token rm ID"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "ls", "rm"), help="make a token, list tokens, revoke a token")
    parser.add_argument("id", nargs="?", help="id of the token to revoke")
    parser.add_argument(
        "--scope", choices=("user", "admin", "enrol"), default="user", help="what the token permits (default: user)"
    )
    parser.add_argument("--user", default="", help="the user that it is for (admins only)")
    parser.add_argument("--site", default="", help="the site whose pilots may enrol with it")
    parser.add_argument("--days", type=int, help="how many days it is valid")
    parser.add_argument(
        "-o", dest="file", metavar="FILE",
        help="write it to FILE, mode 0600, instead of printing it; with 'enrol', as a ticket for 'windfall pilot'",
    )


def execute(args: argparse.Namespace) -> int:
    if (args.action == "rm") != (args.id is not None):
        raise BadInput(
            "'windfall token rm' takes the id of a token" if args.action == "rm" else
            f"'windfall token {args.action}' takes no id; remove '{args.id}'",
            "'windfall token ls' shows the ids",
        )
    with Session() as session:
        if args.action == "add":
            return _add(session, args)
        if args.action == "rm":
            session.client.remove_token(args.id)
            if args.json:
                print_json({"id": args.id})
            else:
                print(f"token {args.id} is revoked")
            return 0
        tokens = session.client.tokens()
    if args.json:
        print_json_rows(tokens)
    else:
        print_table(
            ["id", "scope", "user", "site", "expires"],
            ([t.get("id"), t.get("scope"), t.get("user"), t.get("site"), clock(t.get("expires"))] for t in tokens),
        )
    return 0


def _add(session: Session, args: argparse.Namespace) -> int:
    if args.scope == "enrol":
        args.site = args.site or "local"
        if args.site not in [site["site"] for site in session.client.sites()]:
            session.client.add_site(args.site, "ssh")
    made = session.client.add_token(args.scope, args.user, args.site, args.days)
    if args.file:
        body = _ticket(session, args.site, made) if args.scope == "enrol" else made
        write_private(args.file, json.dumps(body) + "\n")
        made = {**made, "token": None, "file": args.file}
    if args.json:
        print_json(made)
    elif args.file and args.scope == "enrol":
        print(f"{args.file} is a ticket for site {args.site}: windfall pilot --ticket {args.file}")
    elif args.file:
        print(f"token {made['id']} is in {args.file}")
    else:
        print(made["token"])
        say(f"token {made['id']} is not shown again; keep it in a file of mode 0600")
    return 0


def _ticket(session: Session, site: str, made: dict[str, Any]) -> dict[str, Any]:
    """Return a ticket, which has all that a pilot needs.  Without a nonce in it, many pilots can use one ticket."""
    profile = session.client.profile
    return {"server": profile.server, "certificate": profile.certificate, "token": made["token"], "site": site}
