"""`windfall login`: use a server that runs elsewhere.

The user compares the fingerprint of the server's certificate once; from then on the certificate is pinned.  The token
comes from a prompt or a file, never from the command line, where others could see it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import ssl
import stat
import sys
from pathlib import Path

from windfall.cli.present.output import print_json, say
from windfall.client.client import Client
from windfall.client.http import host_port
from windfall.client.profile import Profile, load, login_file, make_home
from windfall.errors import BadInput, NoServer, TrustError

EXAMPLES = """examples:
  windfall login https://host:8765                       asks for the token
  windfall login https://host:8765 --fingerprint 1f3a… --token-file token.txt
  windfall login --profile me.json                       made there by: windfall user add me -o me.json
  windfall login --out"""

MAX_TOKEN = 4096
SECONDS = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", metavar="https://HOST:PORT", nargs="?", help="where the server listens")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="a file that 'windfall user add -o' wrote")
    parser.add_argument("--fingerprint", metavar="SHA256",
                        help="fingerprint of the server's certificate, if you know it")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="read the token from here instead of asking")
    parser.add_argument("--out", action="store_true", help="forget the server; commands use this machine's own again")


def execute(args: argparse.Namespace) -> int:
    if sum((args.server is not None, args.profile is not None, args.out)) != 1:
        raise BadInput("login takes one of these: the address of a server, --profile, --out", "windfall login https://HOST:PORT")
    if args.out:
        login_file().unlink(missing_ok=True)
        return _said(args, {"server": None}, "commands use this machine's own server again")
    profile = load(args.profile) if args.profile else _ask(args)
    if not profile.server.startswith("https://"):
        raise BadInput(f"'{profile.server}' is not the address of a server elsewhere", "it has the form https://HOST:PORT")
    with Client(profile, patience=0) as client:
        client.bags()  # is the token good?
    _save(profile)
    return _said(args, {"server": profile.server}, f"logged in at {profile.server}; 'windfall login --out' undoes it")


def _said(args: argparse.Namespace, answer: dict[str, object], text: str) -> int:
    if args.json:
        print_json(answer)
    else:
        print(text)
    return 0


def _ask(args: argparse.Namespace) -> Profile:
    host, port = host_port(args.server)
    try:
        certificate = ssl.get_server_certificate((host, port), timeout=SECONDS)
    except OSError as error:
        raise NoServer(f"no server answers at {args.server}: {error.strerror or error}") from None
    _agree(args, fingerprint(certificate))
    return Profile(args.server.rstrip("/"), _token(args), certificate)


def fingerprint(certificate: str) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()


def _agree(args: argparse.Namespace, found: str) -> None:
    if args.fingerprint:
        given = args.fingerprint.lower().removeprefix("sha256:").replace(":", "")
        if given != found:
            raise TrustError(f"{args.server} has another certificate, with the fingerprint {found}",
                             "ask an admin of the server for the right fingerprint")
        return
    if not sys.stdin.isatty():
        raise BadInput("without a terminal, nobody can be asked about the certificate",
                       f"if its fingerprint is right: --fingerprint {found}")
    say(f"The certificate of {args.server} has the fingerprint\n  {found}\n"
        "'windfall user add' showed the right one at the server.")
    sys.stderr.write("Is it the same? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise TrustError("you did not accept the certificate", "ask an admin of the server for its fingerprint")


def _token(args: argparse.Namespace) -> str:
    if args.token_file:
        try:
            with open(args.token_file, encoding="ascii", errors="replace") as stream:
                _check_private(os.fstat(stream.fileno()), args.token_file)
                token = stream.read(MAX_TOKEN)
        except OSError as error:
            raise BadInput(f"cannot read {args.token_file}: {error.strerror}") from None
    elif sys.stdin.isatty():
        from getpass import getpass

        token = getpass("Token: ")
    else:
        token = sys.stdin.readline(MAX_TOKEN)
    if not token.strip():
        raise BadInput("no token is given", "an admin of the server makes one: windfall user add NAME")
    return token.strip()


def _check_private(about: os.stat_result, path: Path) -> None:
    if stat.S_ISREG(about.st_mode) and about.st_mode & 0o077 and hasattr(os, "getuid"):
        raise TrustError(f"{path} holds a token, and other users can read it", f"chmod 600 {path}")


def _save(profile: Profile) -> None:
    make_home()
    path = login_file()
    part = path.with_name(f".login-{os.getpid()}.part")
    fields = {"server": profile.server, "certificate": profile.certificate, "token": profile.token}
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
        json.dump(fields, stream)
    os.replace(part, path)
