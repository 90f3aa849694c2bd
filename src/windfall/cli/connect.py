"""A command's session: a client, where needed an embedded server, and messages to the person at the terminal."""

from __future__ import annotations

import sys
from typing import Any

from windfall.cli.present.output import say
from windfall.client import session
from windfall.client.client import Client
from windfall.errors import BadInput


class Session(session.Session):
    def tell(self, text: str) -> None:
        say(text)

    def became_server(self) -> None:
        """Let SIGTERM and SIGHUP end the command in order, so that the embedded server and its pilot stop."""
        import signal

        def leave(number: int, _frame: object) -> None:
            sys.exit(128 + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, leave)


def find_bag(client: Client, given: str) -> int:
    """Return the number of a bag that a person named by number or name; of several with one name, the latest."""
    if given.isdecimal() and len(given) < 19:
        return int(given)
    bags: list[dict[str, Any]] = client.bags()
    named = [bag["bag"] for bag in bags if bag["name"] == given]
    if not named:
        from windfall.model.suggest import nearest

        raise BadInput(
            f"there is no bag '{given}'",
            nearest(given, {bag["name"]: None for bag in reversed(bags)}) or "'windfall ls' lists the bags",
        )
    return int(max(named))
