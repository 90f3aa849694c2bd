"""The link between a provisioner and its server, in one process or over HTTP: its calls, and the bodies of `/v1/tend`.

The names of the fields below are the names in the JSON.  The server translates them to and from the core's events, so
a field of the core can be renamed.  `Shape` and `Limits` travel as arrays, in the order that the journal fixes, too.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from windfall.core.messages.facts import Limits, Shape

NO_END, NOT_SAID = -1, -2  # balances: nobody keeps one; the lookup failed, so the last known balance stands


class ListedJob(msgspec.Struct, array_like=True, gc=False):
    """One of our jobs as a batch system lists it."""

    nonce: str
    id: str
    running: bool


class SiteInfo(msgspec.Struct, array_like=True, gc=False):
    """What a site's information system says, true or not."""

    free: int  # processors; -1: this is not about them
    queued: int  # jobs
    age: int = 0  # ms
    others: int = -1  # jobs of the user that are none of ours; -1: this is not about them, nor about his account
    balance: int = NO_END  # ms of cores that the account may still use, or one of the two above


class TendRequest(msgspec.Struct, gc=False):
    """Body of `POST /v1/tend`.  The provisioner repeats it until the server has replied."""

    key: int
    site: str
    tender: str  # a name that no other process ever had
    hello: bool = False  # the sender knows nothing of what was done before
    seen: int = 0  # number of the newest reply the sender has
    accepted: list[tuple[str, str]] = []  # nonce, the batch system's name
    refused: list[tuple[str, str]] = []  # nonce, why: the job was surely not submitted
    stopped: list[tuple[str, str]] = []  # nonce, the batch system's name: the job surely will not run, or run on
    listed: list[ListedJob] | None = None  # complete as of the reply that said `now == began`
    began: int = 0  # `now` of the newest reply the sender had when it began to list
    info: SiteInfo | None = None
    wait: int = 0  # ms
    unstopped: list[tuple[str, str]] = []  # as `stopped`, where stopping failed: the server orders it again later
    salvages: bool = False  # the sender can look for what pilots left behind
    salvaged: list[tuple[str, int]] = []  # nonce, results found there and sent home; -1: its pilot lives


class TendReply(msgspec.Struct, gc=False):
    """The server's reply to a `TendRequest`: orders."""

    key: int
    site: str
    number: int
    now: int  # the core's time
    start: list[tuple[str, Shape]] = []  # nonce
    stop: list[tuple[str, str]] = []  # nonce, the batch system's name where it is known
    look: bool = False  # report what the batch system lists of ours
    over: bool = False  # another provisioner tends this site now
    salvage: list[str] = []  # nonces whose job is gone: bring home what their pilots left behind


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
    async def tend(self, request: TendRequest) -> TendReply:
        """Report the outcome of orders; return the next orders, waiting up to `request.wait` ms for some."""

    async def add_site(self, name: str, kind: str, limits: Limits) -> None:
        """Make it known, or change its limits."""

    async def enrolment(self, site: str, days: int) -> tuple[str, str]:
        """A new token that lets pilots of that site in, and does nothing else; its id first."""

    async def knows(self, token: str) -> bool:
        """Does a token of this id still let somebody in?"""

    async def pilot(self) -> bytes:
        """The pilot's file."""
