"""The channel to a site: here, or over SSH."""

from __future__ import annotations

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

    return Secure(site.host, site.user, site.port, ask)
