"""`windfall site login NAME`: ask the user what the site asks for, and give the answers to the provisioner.

The provisioner, which starts pilots at the site, keeps the connection, so that the site asks for a code only once.
Answers go through a socket that only this account can open, and never into arguments, environment, files or logs.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from windfall.cli.commands.sites import add
from windfall.cli.present.output import harmless, print_json, say
from windfall.errors import BadInput, WindfallError

if TYPE_CHECKING:
    from windfall.sites.channels.channel import Question


def execute(args: argparse.Namespace, site: Any) -> int:
    from windfall.provision import control

    messages: list[str] = []

    def answer(line: dict[str, Any]) -> dict[str, Any] | None:
        if "ask" in line:
            return {"answers": _ask(line["ask"])}
        messages.append(str(line.get("says", "")))
        return None

    control.call(add.folder().parent, {"do": "login", "site": site.name}, answer)
    if args.json:
        print_json({"site": site.name, "ok": True, "says": " ".join(messages)})
    else:
        print("\n".join(messages))
    return 0


def can_ask() -> bool:
    try:
        open("/dev/tty").close()
    except OSError:
        return False
    return True


async def here(question: Question) -> list[str]:
    """Ask the user what a connection of this process asks for."""
    asked = {"host": question.site, "text": question.text, "prompts": question.prompts}
    return await asyncio.to_thread(_ask, asked)


def _ask(question: dict[str, Any]) -> list[str]:
    """Ask on the terminal itself, whatever stdin and stdout are."""
    try:
        say(f"{question['host']} asks" + (f": {question['text']}" if question["text"] else ":"))
        return [_ask_one(harmless(str(prompt)), bool(echo)) for prompt, echo in question["prompts"]]
    except (KeyError, ValueError, TypeError):
        raise WindfallError("the provisioner asked an unreadable question",
                            "it may have another version: restart it") from None


def _ask_one(prompt: str, echo: bool) -> str:
    try:
        with open("/dev/tty") as answers, open("/dev/tty", "w") as questions:
            if not echo:
                from getpass import getpass

                return getpass(prompt + " ")
            questions.write(prompt + " ")
            questions.flush()
            return answers.readline().rstrip("\n")
    except OSError:
        raise BadInput("there is no terminal to ask on", "codes are never taken from arguments or files") from None
