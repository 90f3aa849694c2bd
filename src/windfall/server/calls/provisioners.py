"""Those who start pilots: their call over HTTP, and the same line within the server's own process.

A request is decoded straight into the core's event, and its orders are the core's effect as it stands: both ways say
the same.  Whoever owns the site may tend it, and nobody else.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windfall.core.messages import effects, events
from windfall.core.messages.facts import Limits
from windfall.errors import BadInput, NotFound, Unavailable
from windfall.provision.server_link import Door
from windfall.server.http import tokens
from windfall.server.http.server import Request
from windfall.server.http.waiting import WaitingRequests
from windfall.server.local.data_folder import user
from windfall.server.writer import Writer

MAX_TEND = 32 << 20  # a listing of 200,000 jobs
MAX_FOUND = 1 << 31  # results of one pilot
MAX_WORD = 300  # characters of a name, a nonce, a reason: some are journaled

_decode = msgspec.json.Decoder(events.Tend).decode
_encode = msgspec.json.Encoder().encode


class Tendings:
    def __init__(self, writer: Writer) -> None:
        self._sites = writer.state.sites
        self._waiting = WaitingRequests(writer, _encode)

    def tend(self, request: Request) -> None:
        event = checked(_decode(request.body))
        request.body = b""
        site = self._sites.get(event.site)
        if site is None or site.owner != request.who.owner:
            raise NotFound(f"there is no site {event.site[:100]}")
        self._waiting.put(event, request)

    def stop(self) -> None:
        for key in list(self._waiting.open):
            request, _ = self._waiting.take(key)
            request.fail(Unavailable("the server is stopping", "try again in a moment", retry_after=1))


def checked(event: events.Tend) -> events.Tend:
    """What is journaled, or kept, is short."""
    pairs = [*event.accepted, *event.refused, *event.stopped, *event.unstopped]
    pairs += [(job.nonce, job.id) for job in event.listed or ()]
    if any(len(nonce) > MAX_WORD or len(name) > MAX_WORD for nonce, name in pairs) or len(event.tender) > MAX_WORD:
        raise BadInput(f"a name of more than {MAX_WORD} characters")
    if any(len(nonce) > MAX_WORD or not -1 <= found < MAX_FOUND for nonce, found in event.salvaged):
        raise BadInput("that many results cannot have been found")
    return event


class Inside:
    """The line of a provisioner in the same process, for the server's own user."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._writer: Writer = runtime.writer

    async def tend(self, event: events.Tend) -> effects.Orders:
        orders: effects.Orders = await self._writer.do(checked(event))
        return orders

    async def add_site(self, name: str, kind: str, limits: Limits) -> None:
        await self._writer.do(site_event(self._writer.state, name, user(), kind, None, limits))

    async def enrolment(self, site: str, days: int) -> tuple[str, str]:
        token = tokens.new_token()
        event: events.IssueToken = self._runtime.issue(token, "enrol", user(), site, days)
        await self._writer.do(event)
        return event.id, token

    async def knows(self, token: str) -> bool:
        return any(each.id == token for each in self._writer.state.tokens.values())

    async def door(self) -> Door:
        profile = self._runtime.profile
        return Door(profile["server"], profile["certificate"])

    async def inner(self) -> Door:
        return Door(*self._runtime.inner_door())

    async def pilot(self) -> bytes:
        body: bytes = (await self._runtime.admin.pilot_file())[0]
        return body


def site_event(state: Any, name: str, owner: str, kind: str, shared: list[str] | None, limits: Limits | None
               ) -> events.AddSite:
    """What is not said stays as it was."""
    known = state.sites.get(name)
    mine = known is not None and known.owner == owner
    return events.AddSite(0, name, owner, kind, (known.shared if mine else []) if shared is None else shared, limits,
                          known.disk if mine else False)
