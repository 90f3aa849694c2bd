"""Getting a client, and with it, where needed, a server.

In this order: the server that `$WINDFALL_SERVER_FILE` names; the live server of `$WINDFALL_HOME`, which may be
another command's embedded one; else an embedded one, started in this process.  When another command's embedded
server goes away, `again` walks the same path, so the last command standing takes over.  A server of its own is
never replaced: whoever runs it will start it again, and is waited for.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..client.client import Client
from ..client.profile import Profile, find, from_fields, make_home
from ..errors import BadInput, NoServer, StoreLocked, Unavailable
from .output import say

if TYPE_CHECKING:
    from ..server.embedded import Embedded

CONTENDING = 15.0  # seconds to wait while another process starts, or stops, the server of this home
PATIENCE = 3.0
LOOK = 0.5  # seconds between looks for a server that is waited for


class Session:
    """A client and, perhaps, the server behind it.  `work`: tasks are to run, so somebody must run them."""

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

    def _wait_for(self, server: str) -> Client:
        """Once a server of its own was found, no other kind is started here, however long it takes."""
        say(f"the server at {server} does not answer; waiting for it (Ctrl-C leaves the bag as it is)")
        while (profile := live()) is None:
            time.sleep(LOOK)
        say(f"the server at {profile.server} answers")
        return Client(profile, PATIENCE)

    def _obtain(self) -> Client:
        if os.environ.get("WINDFALL_SERVER_FILE"):
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
        from ..server.embedded import Embedded

        embedded = Embedded(directory)
        try:
            if self.work:
                embedded.ensure_pilot()  # its interpreter starts while our server does
            profile = from_fields(embedded.start())
        except BaseException:
            embedded.stop()
            raise
        self.embedded = embedded
        _stop_cleanly()
        return profile


def live() -> Profile | None:
    """The profile of the named server, or of the home's, if that answers."""
    try:
        profile = find()
        with Client(profile, patience=0) as client:
            client.health()
        return profile
    except (NoServer, Unavailable):
        return None


def _stop_cleanly() -> None:
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
        from ..model.check import nearest

        raise BadInput(
            f"there is no bag '{given}'",
            nearest(given, {bag["name"]: None for bag in bags}) or "'windfall ls' lists them",
        )
    return int(max(named))
