"""How the pilots of a site reach the server: what their ticket says of it, by the site's `reach`.

    direct   over HTTPS, at the address in the site's file, or where the server says it is
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from windfall.errors import BadInput
from windfall.sites.channel import Channel
from windfall.sites.config import Site

from .line import Door

Route = dict[str, str]
Find = Callable[[Site, Channel, Door], Awaitable[list[Route]]]


async def routes(site: Site, channel: Channel, door: Door) -> list[Route]:
    """In the order in which a pilot tries them."""
    return await WAYS[site.reach](site, channel, door)


async def direct(site: Site, channel: Channel, door: Door) -> list[Route]:
    server = site.server or door.server
    if server.startswith("unix:") and site.dialect != "local":
        raise BadInput(f"pilots at {site.name} cannot reach this server: it listens on a Unix socket only",
                       "start it with --listen HOST:PORT; if its own name is not the one that pilots know it by, say "
                       f'server = "https://host:port" in the file of {site.name}')
    return [{"kind": "direct", "server": server, "certificate": door.certificate}]


WAYS: dict[str, Find] = {"direct": direct}
