"""Notify people that a bag has ended: by a POST to a web address, a mail, or a command.

The `run` or `wait` that watches the bag sends the news; once detached or killed it sends none.  Sending takes bounded
time, and a failure is reported but changes no exit code.  An address may hold a secret: no message shows it, and a file
(`@FILE`) or `WINDFALL_NOTIFY` keeps it out of the list of processes.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

from windfall.cli.present.output import counts_of, say, shown
from windfall.errors import BadInput
from windfall.model.units import plural

SECONDS = 20
MAX_FILE = 64 << 10
SENDMAIL = "/usr/sbin:/usr/lib"  # where sendmail is, if not on the path
FIELDS = ("bag", "name", "state", "tasks", "succeeded", "failed", "cancelled")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--notify", action="append", metavar="WHOM",
        help="at the end: https://… (POST of JSON), mailto:me@example.org, 'command:prog {name}', or @FILE with one "
        "of these per line (default: $WINDFALL_NOTIFY)",
    )  # fmt: skip


def wanted(args: argparse.Namespace) -> list[str]:
    """Return whom to notify.  Mistakes are refused here, before anything runs."""
    given = args.notify if args.notify is not None else [os.environ.get("WINDFALL_NOTIFY", "")]
    found = [whom for text in given for whom in (_from_file(text[1:]) if text.startswith("@") else [text]) if whom]
    for whom in found:
        _check(whom)
    return found


def _check(whom: str) -> None:
    kind, colon, rest = whom.partition(":")
    if kind not in _WAYS or not colon or not rest:
        raise BadInput("--notify takes a web address, a mail address or a command",
                       "https://…, mailto:…, command:… or @FILE")
    if kind == "mailto" and not re.fullmatch(r"[^\s@,:;<>()]{1,64}@[\w.-]{1,255}", rest):
        raise BadInput("--notify mailto: needs a mail address", "as in mailto:me@example.org")
    if kind == "command":
        _words(rest, dict.fromkeys(FIELDS, ""))


def _from_file(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return [line.strip() for line in stream.read(MAX_FILE).splitlines() if line.strip()]
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None


def tell(whom: list[str], bag: dict[str, Any]) -> None:
    tasks, succeeded, failed, cancelled = counts_of(bag)
    facts = dict(zip(FIELDS, (bag["bag"], bag["name"], bag["state"], tasks, succeeded, failed, cancelled), strict=True))
    for each in whom:
        kind, _, rest = each.partition(":")
        try:
            _WAYS[kind](rest if kind in ("mailto", "command") else each, facts)
        except Exception as error:  # no answer of a web server changes how the bag ended
            reason = getattr(error, "strerror", None) or type(error).__name__
            say(f"  could not notify by {kind}: {shown(reason)}")


def _post(url: str, facts: dict[str, Any]) -> None:
    import json
    from urllib.request import Request, urlopen

    headers = {"Content-Type": "application/json", "User-Agent": "windfall"}
    with urlopen(Request(url, json.dumps(facts).encode(), headers), timeout=SECONDS) as answer:
        answer.read(1)


def _mail(address: str, facts: dict[str, Any]) -> None:
    from email.message import EmailMessage
    from shutil import which

    program = which("sendmail", path=f"{os.environ.get('PATH', os.defpath)}:{SENDMAIL}")
    if program is None:
        raise FileNotFoundError(2, "this machine has no sendmail")
    mail = EmailMessage()
    mail["To"] = address
    mail["Subject"] = f"windfall: bag {facts['bag']} '{shown(facts['name'])}' {facts['state']}"
    mail.set_content(
        f"{plural(facts['tasks'], 'task')}: {facts['succeeded']:,} succeeded, {facts['failed']:,} failed, "
        f"{facts['cancelled']:,} cancelled\n"
    )
    _run([program, "-i", "--", address], bytes(mail))


def _command(command: str, facts: dict[str, Any]) -> None:
    import json

    _run(_words(command, facts), json.dumps(facts).encode())


def _words(command: str, facts: dict[str, Any]) -> list[str]:
    """Split the command into words and fill them in.  No shell sees them: any name of a bag stays one word."""
    import shlex

    try:
        words = shlex.split(command)
        return [re.sub(r"\{(\w+)\}", lambda found: str(facts[found[1]]), word) for word in words]
    except (ValueError, KeyError) as error:
        problem = f"{{{error.args[0]}}} is unknown" if isinstance(error, KeyError) else str(error)
        raise BadInput(f"--notify command: {problem}", "it may use " + ", ".join(f"{{{f}}}" for f in FIELDS)) from None


def _run(words: list[str], text: bytes) -> None:
    import subprocess as sub  # loaded only at the end, when it is needed

    try:
        sub.run(words, input=text, stdout=sub.DEVNULL, stderr=sub.DEVNULL, timeout=SECONDS, check=True)
    except sub.CalledProcessError as error:
        raise OSError(0, f"the program ended with exit code {error.returncode}") from None
    except sub.TimeoutExpired:
        raise OSError(0, f"the program took longer than {SECONDS} s") from None


_WAYS = {"http": _post, "https": _post, "mailto": _mail, "command": _command}
