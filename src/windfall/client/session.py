"""`Session`: a client and, where needed, the server behind it.

A session uses, in this order: the server that `$WINDFALL_SERVER_FILE` or `windfall login` names; the live server of
`$WINDFALL_HOME`, which may be embedded in another process; else a server that it embeds in this process.  When another
process's embedded server goes away, `find_next_server` walks the same path, so that one of the processes left takes
over.  A separate server (`windfall serve`) is never replaced: the session waits until its owner starts it again.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from windfall.client.client import Client
from windfall.client.profile import Profile, chosen, find, from_fields, make_home
from windfall.errors import NoServer, StoreLocked, Unavailable

if TYPE_CHECKING:
    from windfall.server.embedded import Embedded

T = TypeVar("T")
LOCK_TIMEOUT = 15.0  # seconds to wait while another process starts, or stops, the server of this home
PATIENCE = 3.0
POLL_INTERVAL = 0.5  # seconds between looks for a separate server


class Session:
    """`needs_pilot`: an embedded server starts a pilot, since tasks are to run.

    Subclasses override `tell` and `became_server`.
    """

    def __init__(self, needs_pilot: bool = False):
        self.needs_pilot = needs_pilot
        self.embedded: Embedded | None = None
        self.client: Client = self._obtain()
        self.separate = self.embedded is None and not self.client.profile.embedded

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.client.close()
        if self.embedded is not None:
            self.embedded.stop()
            self.embedded = None

    def find_next_server(self) -> None:
        """Wait for a separate server that went away; in place of an embedded one find, or become, the next."""
        if self.embedded is not None:
            raise NoServer("the server in this process stopped",
                           "start the command again; nothing that the server acknowledged is lost")
        self.client.close()
        self.client = self._wait_for(self.client.profile.server) if self.separate else self._obtain()

    def ask(self, question: Callable[[Client], T]) -> T:
        """Call `question` with the client; call it again at the next server if this one goes away.

        The question must be one that may be asked twice.
        """
        while True:
            try:
                return question(self.client)
            except NoServer:
                self.find_next_server()

    def reconnect(self) -> None:
        """Open a new connection to the same server."""
        self.client.close()
        self.client = Client(self.client.profile, PATIENCE)

    def _wait_for(self, server: str) -> Client:
        """Wait for a separate server, however long it takes."""
        self.tell(f"the server at {server} does not answer; waiting for it (Ctrl-C leaves the bag as it is)")
        while (profile := live_profile()) is None:
            time.sleep(POLL_INTERVAL)
        self.tell(f"the server at {profile.server} answers again")
        return Client(profile, PATIENCE)

    def _obtain(self) -> Client:
        if chosen() is not None:
            client = Client(find())
            client.health()  # raises at once: a session does not wait for a server that it has never met
            return client
        directory = make_home()
        until = time.monotonic() + LOCK_TIMEOUT
        while True:
            profile = live_profile()
            if profile is not None:
                return Client(profile, PATIENCE)
            try:
                return Client(self._embed(directory))
            except StoreLocked:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _embed(self, directory: Path) -> Profile:
        if not (hasattr(os, "fork") and hasattr(socket, "AF_UNIX")):
            raise NoServer(
                "no server is known here, and this system cannot run one: it has no fork or no Unix sockets",
                "use a server that runs elsewhere: windfall login https://HOST:PORT",
            )
        from windfall.server.embedded import Embedded

        embedded = Embedded(directory)
        try:
            if self.needs_pilot:
                embedded.ensure_pilot()  # the pilot's interpreter starts while the server does
            profile = from_fields(embedded.start())
        except BaseException:
            embedded.stop()
            raise
        self.embedded = embedded
        self.became_server()
        return profile

    # --- for subclasses

    def tell(self, text: str) -> None:
        """Show a message to a person; this class shows none."""

    def became_server(self) -> None:
        """Hear that this process embeds a server from now on."""


def live_profile() -> Profile | None:
    """Return the profile of the chosen server, else of this home's, if that server answers."""
    try:
        profile = find()
        with Client(profile, patience=0) as client:
            client.health()
        return profile
    except (NoServer, Unavailable):
        return None
