"""The link between a provisioner and its server, in one process or over HTTP: its calls, and the bodies of `/v1/tend`.

The names of the fields below are the names in the JSON.  The server translates them to and from the core's events, so
a field of the core can be renamed.  `Shape` and `Limits` travel as arrays, in the order that the journal fixes, too.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from windfall.core.messages.facts import Limits, Shape

NO_END, NOT_SAID = -1, -2  # balances: the account has no limit; the lookup failed, so the last known balance stands


class ListedJob(msgspec.Struct, array_like=True, gc=False):
    """A job of this server, as the batch system lists it."""

    nonce: str
    id: str
    running: bool


class SiteFigures(msgspec.Struct, array_like=True, gc=False):
    """Figures from a site's information system, true or not."""

    free: int  # processors; -1: not known
    queued: int  # jobs
    age: int = 0  # ms
    others: int = -1  # the user's jobs that are not this server's; -1: neither they nor his balance were looked up
    balance: int = NO_END  # ms of cores that the account may still use, or one of the two above


class TendRequest(msgspec.Struct, gc=False):
    """Body of `POST /v1/tend`.  The provisioner repeats it until the server has replied."""

    key: int
    site: str
    tender: str  # a name that no other process ever had
    hello: bool = False  # the sender is new, and knows nothing of earlier orders
    seen: int = 0  # number of the newest reply the sender has
    accepted: list[tuple[str, str]] = []  # nonce, the batch system's name
    refused: list[tuple[str, str]] = []  # nonce, reason: the job was surely not submitted
    stopped: list[tuple[str, str]] = []  # nonce, the batch system's name: the job surely does not run any more
    listed: list[ListedJob] | None = None  # complete as of the reply that said `now == began`
    began: int = 0  # `now` of the newest reply the sender had when it began to list
    info: SiteFigures | None = None
    wait: int = 0  # ms
    unstopped: list[tuple[str, str]] = []  # jobs that could not be stopped: the server orders it again later
    salvages: bool = False  # the sender can look for results that pilots could not deliver
    salvaged: list[tuple[str, int]] = []  # nonce, results found and sent to the server; -1: the pilot lives


class TendReply(msgspec.Struct, gc=False):
    """The server's reply to a `TendRequest`: orders."""

    key: int
    site: str
    number: int
    now: int  # the core's time
    start: list[tuple[str, Shape]] = []  # nonce
    stop: list[tuple[str, str]] = []  # nonce, the batch system's name where it is known
    look: bool = False  # list this server's jobs, and report them
    over: bool = False  # another provisioner tends this site now
    salvage: list[str] = []  # nonces whose job is gone: look for results of their pilots


class ServerAddress(NamedTuple):
    """An address at which the server listens, with its certificate."""

    server: str  # "https://host:port" or "unix:/path"
    certificate: str  # PEM; pinned


class AddressSource(Protocol):
    async def pilots_address(self) -> ServerAddress:
        """Return the address for pilots of other machines, if they can reach the server."""

    async def local_address(self) -> ServerAddress:
        """Return the address of the TLS port for processes on this machine."""


class ServerLink(AddressSource, Protocol):
    async def tend(self, request: TendRequest) -> TendReply:
        """Report the outcome of orders; return the next orders, waiting up to `request.wait` ms for some."""

    async def add_site(self, name: str, kind: str, limits: Limits) -> None:
        """Register a site, or change its limits."""

    async def enrolment(self, site: str, days: int) -> tuple[str, str]:
        """Make a token with which pilots of that site can enrol, and nothing else; return its id and the token."""

    async def knows(self, token: str) -> bool:
        """Is there still a valid token with this id?"""

    async def pilot(self) -> bytes:
        """Return the pilot's file."""
