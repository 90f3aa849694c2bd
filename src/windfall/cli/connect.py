"""Getting a client for a command, and with it, where needed, a server: `session` with a voice."""

from __future__ import annotations

import sys
from typing import Any

from windfall.cli.present.output import say
from windfall.client.client import Client
from windfall.errors import BadInput
from windfall.session import Session as Quiet


class Session(Quiet):
    def said(self, text: str) -> None:
        say(text)

    def became_server(self) -> None:
        """SIGTERM and SIGHUP end the command in order: the embedded server is stopped, its pilot too."""
        import signal

        def leave(number: int, _frame: object) -> None:
            sys.exit(128 + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, leave)


def find_bag(client: Client, given: str) -> int:
    """A bag's number, from its number or its name."""
    if given.isdecimal() and len(given) < 19:
        return int(given)
    bags: list[dict[str, Any]] = client.bags()
    named = [bag["bag"] for bag in bags if bag["name"] == given]
    if not named:
        from windfall.model.suggest import nearest

        raise BadInput(
            f"there is no bag '{given}'",
            nearest(given, {bag["name"]: None for bag in reversed(bags)}) or "'windfall ls' lists them",
        )
    return int(max(named))
