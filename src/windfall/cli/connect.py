"""A command's session: a client, where needed an embedded server, and messages to the person at the terminal."""

from __future__ import annotations

import sys

from windfall.cli.present.output import say
from windfall.client import session
from windfall.client.client import Client


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
    """Return the number of a bag that a person named by number or name."""
    return client.number_of(given)
