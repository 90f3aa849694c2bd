"""The channel to a site: here, or over SSH."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .channel import Channel
from .config import Site
from .here import Here

if TYPE_CHECKING:
    from .channel import Ask


def channel(site: Site, ask: Ask | None = None) -> Channel:
    """Nothing is sent before the first command.  `ask` answers what the site's door asks."""
    if not site.host:
        return Here()
    from .secure import Secure  # asyncssh is slow to load

    logging.getLogger("asyncssh").setLevel(logging.WARNING)  # it tells every command
    return Secure(site.host, site.user, site.port, ask)
