"""The channel to a site: on this machine, or over SSH."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from windfall.sites.channels.channel import Channel
from windfall.sites.channels.here import Here
from windfall.sites.site_file import Site

if TYPE_CHECKING:
    from windfall.sites.channels.channel import Ask


def channel(site: Site, ask: Ask | None = None) -> Channel:
    """Return a channel, which connects at its first command.  `ask` answers the questions of a login."""
    if not site.host:
        return Here()
    from windfall.sites.channels.ssh import Secure  # asyncssh is slow to load

    logging.getLogger("asyncssh").setLevel(logging.WARNING)  # asyncssh logs every command
    return Secure(site.host, site.user, site.port, ask)
