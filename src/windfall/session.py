"""A client and, where needed, the server behind it.

In this order: the server that `$WINDFALL_SERVER_FILE` or `windfall login` names; the live server of `$WINDFALL_HOME`,
which may be another process's embedded one; else an embedded one, started in this process.  When another's embedded
server goes away, `again` walks the same path, so the last one standing takes over.  A server of its own is never
replaced: whoever runs it will start it again, and is waited for.
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
CONTENDING = 15.0  # seconds to wait while another process starts, or stops, the server of this home
PATIENCE = 3.0
LOOK = 0.5  # seconds between looks for a server that is waited for


class Session:
    """`work`: tasks are to run, so somebody must run them."""

    def __init__(self, work: bool = False):
        self.work = work
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

    def again(self) -> None:
        """The server went away: wait for it, or find, or become, the next one."""
        if self.embedded is not None:
            raise NoServer("the server went away", "start it again; nothing that it acknowledged is lost")
        self.client.close()
        self.client = self._wait_for(self.client.profile.server) if self.separate else self._obtain()

    def ask(self, question: Callable[[Client], T]) -> T:
        """The answer of this server, or of the next, should it go away meanwhile.  For what may be asked twice."""
        while True:
            try:
                return question(self.client)
            except NoServer:
                self.again()

    def fresh(self) -> None:
        """A new connection to the same server."""
        self.client.close()
        self.client = Client(self.client.profile, PATIENCE)

    def _wait_for(self, server: str) -> Client:
        """Once a server of its own was found, no other kind is started here, however long it takes."""
        self.said(f"the server at {server} does not answer; waiting for it (Ctrl-C leaves the bag as it is)")
        while (profile := live()) is None:
            time.sleep(LOOK)
        self.said(f"the server at {profile.server} answers")
        return Client(profile, PATIENCE)

    def _obtain(self) -> Client:
        if chosen() is not None:
            client = Client(find())
            client.health()  # one that was never there is not waited for
            return client
        directory = make_home()
        until = time.monotonic() + CONTENDING
        while True:
            profile = live()
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
                "no server is known here, and this system cannot run one itself",
                "'windfall login https://HOST:PORT' lets you in at one that runs elsewhere",
            )
        from windfall.server.embedded import Embedded

        embedded = Embedded(directory)
        try:
            if self.work:
                embedded.ensure_pilot()  # its interpreter starts while our server does
            profile = from_fields(embedded.start())
        except BaseException:
            embedded.stop()
            raise
        self.embedded = embedded
        self.became_server()
        return profile

    # --- for whoever has somebody to tell

    def said(self, text: str) -> None:
        """What a person would want to know."""

    def became_server(self) -> None:
        """A server runs in this process from now on."""


def live() -> Profile | None:
    """The profile of the named server, or of the home's, if that answers."""
    try:
        profile = find()
        with Client(profile, patience=0) as client:
            client.health()
        return profile
    except (NoServer, Unavailable):
        return None
