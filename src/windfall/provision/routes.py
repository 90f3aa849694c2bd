"""The routes by which the pilots of a site reach the server, as their ticket lists them, by the site's `reach`.

    direct   over HTTPS, at the address in the site's file, or at the server's own address
    relay    through Windfall's relay on the head node
    spool    through files on the head node
    auto     all of them, in this order: a pilot keeps the first that works

A ticket must remain true: the tender keeps the relay running, and when the relay returns at another address, the
tender writes the ticket again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from windfall.errors import BadInput, WindfallError
from windfall.provision.relay import Hello, Relay
from windfall.provision.server_link import AddressSource, ServerAddress
from windfall.sites.channels.channel import Channel
from windfall.sites.site_file import Site

log = logging.getLogger("windfall.provision")

Route = dict[str, str]  # kind, address
UP_S = 60.0  # for the relay to start


class Routes(NamedTuple):
    """The server's address, its certificate, and the routes to it, as a ticket has them."""

    server: str
    certificate: str
    routes: list[Route]


Write = Callable[[Routes], Awaitable[None]]


def direct(site: Site, address: ServerAddress) -> Routes:
    server = site.server or address.server
    if not server.startswith("unix:"):
        return Routes(server, address.certificate, [{"kind": "direct", "address": server}])
    if site.dialect != "local":
        raise BadInput(f"pilots at {site.name} cannot reach this server: it listens on a Unix socket only",
                       "start it with --listen HOST:PORT; if pilots know the server by another name, write "
                       f'server = "https://host:port" into the file of {site.name}; or write reach = "relay" there')
    return Routes(server, "", [])


def offered(reach: str, offer: Hello) -> list[Route]:
    """Return the routes through a relay."""
    found = [{"kind": "relay", "address": f"https://{f'[{host}]' if ':' in host else host}:{offer.port}"}
             for host in offer.addresses if reach in ("relay", "auto") and offer.port]
    return found + ([{"kind": "spool", "address": offer.spool}] if offer.spool else [])


class Reach:
    """The routes of one site, and its relay if the site needs one, while a tender runs."""

    def __init__(self, site: Site, channel: Channel, line: AddressSource) -> None:
        self._site, self._channel, self._line = site, channel, line
        self._relay: Relay | None = None
        self._written: list[Route] = []
        self._write: Write | None = None
        self._writing: set[asyncio.Task[None]] = set()

    async def routes(self, pilot: str, folder: str, write: Write) -> Routes:
        """Find the routes and call `write` with them, now and whenever they change.  `pilot`: the pilot's file at the
        site; `folder`: for the relay alone, on a file system that the nodes see too."""
        if self._site.reach == "direct":
            found = direct(self._site, await self._line.pilots_address())
        else:
            found = await self._through(pilot, folder)
            self._write = write
        await write(found)
        self._written = found.routes
        return found

    async def _through(self, pilot: str, folder: str) -> Routes:
        address = await self._line.local_address()
        if self._relay is None:
            host, _, port = address.server.removeprefix("https://").rpartition(":")
            self._relay = Relay(self._channel, command(self._site, pilot, folder), (host.strip("[]"), int(port)),
                                self._changed)
        return await self._with(address, await self._relay.ready(UP_S))

    async def _with(self, address: ServerAddress, offer: Hello) -> Routes:
        outer = self._site.server or (await self._line.pilots_address()).server
        straight = self._site.reach == "auto" and not outer.startswith("unix:")
        first = [{"kind": "direct", "address": outer}] if straight else []
        return Routes(address.server, address.certificate, first + offered(self._site.reach, offer))

    def _changed(self, offer: Hello) -> None:
        """Write the ticket again after the relay has come up."""
        if self._write is not None:
            task = asyncio.ensure_future(self._rewrite(offer))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _rewrite(self, offer: Hello) -> None:
        try:
            found = await self._with(await self._line.local_address(), offer)
            if found.routes != self._written and self._write is not None:
                await self._write(found)
                self._written = found.routes
        except WindfallError as error:
            log.warning("%s: the ticket still names the relay's old address, since writing it failed: %s",
                        self._site.name, error.message)

    @property
    def trouble(self) -> str:
        return self._relay.trouble.message if self._relay is not None and self._relay.trouble is not None else ""

    async def close(self) -> None:
        for task in self._writing:
            task.cancel()
        if self._relay is not None:
            with suppress(WindfallError):
                await self._relay.close()


def command(site: Site, pilot: str, folder: str) -> tuple[str, ...]:
    """Return the command that starts the relay."""
    words = [site.python, pilot, "relay", "--folder", folder]
    words += ["--spool"] if site.reach in ("spool", "auto") else []
    words += ["--no-network"] if site.reach == "spool" else []
    words += ["--listen", site.relay] if site.relay else []
    return site.head_node_command(words)
