"""The line between a provisioner and its server: in one process, or over HTTP.  What both promise."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from windfall.core.messages.effects import Orders
from windfall.core.messages.events import Tend
from windfall.core.messages.facts import Limits


class Door(NamedTuple):
    """Where the server listens."""

    server: str  # "https://host:port" or "unix:/path"
    certificate: str  # PEM; pinned


class Doors(Protocol):
    async def door(self) -> Door:
        """Where pilots find it, if they reach it at all."""

    async def inner(self) -> Door:
        """Where TLS is spoken, for somebody on this machine."""


class Line(Doors, Protocol):
    async def tend(self, event: Tend) -> Orders:
        """What came of the orders in, orders out; waits for some up to `event.wait` ms."""

    async def add_site(self, name: str, kind: str, limits: Limits) -> None:
        """Make it known, or change its limits."""

    async def enrolment(self, site: str, days: int) -> tuple[str, str]:
        """A new token that lets pilots of that site in, and does nothing else; its id first."""

    async def knows(self, token: str) -> bool:
        """Does a token of this id still let somebody in?"""

    async def pilot(self) -> bytes:
        """The pilot's file."""
