"""The call of provisioners, over HTTP or within the server's own process.

Both ways carry the records of `provision/server_link.py`.  This module turns a request into the core's event, and the
core's orders into the reply.  Only a site's owner may provision it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windfall.core.messages import effects, events
from windfall.core.messages.facts import Limits
from windfall.core.state.world import State
from windfall.errors import BadInput, NotFound, Unavailable
from windfall.provision.server_link import ServerAddress, TendReply, TendRequest
from windfall.server.http import tokens
from windfall.server.http.schema import NewSite
from windfall.server.http.server import Request
from windfall.server.http.waiting import WaitingRequests
from windfall.server.local.data_folder import user
from windfall.server.writer import Writer

MAX_TEND = 1 << 20  # a listing of 10,000 jobs: the loop decodes it at once
MAX_FOUND = 1 << 31  # results found of one pilot
MAX_WORD = 300  # characters of a name, a nonce or a reason: the journal holds some of them

_decode = msgspec.json.Decoder(TendRequest).decode
_encode = msgspec.json.Encoder().encode


class ProvisionerCalls:
    def __init__(self, writer: Writer) -> None:
        self._sites = writer.state.sites
        self._waiting = WaitingRequests(writer, lambda orders: _encode(_reply(orders)))

    def tend(self, request: Request) -> None:
        body = checked(_decode(request.body))
        request.body = b""
        site = self._sites.get(body.site)
        if site is None or site.owner != request.who.owner:
            raise NotFound(f"there is no site {body.site[:100]}")
        self._waiting.put(_report(body), request)

    def stop(self) -> None:
        for key in list(self._waiting.open):
            request, _ = self._waiting.take(key)
            request.fail(Unavailable("the server is stopping", "try again in a moment", retry_after=1))


def checked(body: TendRequest) -> TendRequest:
    """Return the request; refuse names that are too long for the journal."""
    pairs = [*body.accepted, *body.refused, *body.stopped, *body.unstopped]
    pairs += [(job.nonce, job.id) for job in body.listed or ()]
    if any(len(nonce) > MAX_WORD or len(name) > MAX_WORD for nonce, name in pairs) or len(body.tender) > MAX_WORD:
        raise BadInput(f"a name or reason is longer than {MAX_WORD} characters", "shorten it")
    if any(len(nonce) > MAX_WORD or not -1 <= found < MAX_FOUND for nonce, found in body.salvaged):
        raise BadInput(f"'salvaged' must hold numbers from -1 to {MAX_FOUND - 1}")
    return body


def _report(body: TendRequest) -> events.SiteReport:
    info = body.info
    return events.SiteReport(
        key=body.key, site=body.site, provisioner=body.tender, hello=body.hello, seen=body.seen, accepted=body.accepted,
        refused=body.refused, stopped=body.stopped,
        listed=None if body.listed is None else [events.ListedJob(job.nonce, job.id, job.running)
                                                 for job in body.listed],
        began=body.began,
        info=None if info is None else events.SiteInfo(free=info.free, queued=info.queued, age=info.age,
                                                       others=info.others, balance=info.balance),
        wait=body.wait, unstopped=body.unstopped, can_salvage=body.salvages, salvaged=body.salvaged,
    )


def _reply(orders: effects.SiteOrders) -> TendReply:
    return TendReply(
        key=orders.key, site=orders.site, number=orders.number, now=orders.now, start=orders.start, stop=orders.stop,
        look=orders.look, over=orders.over, salvage=orders.salvage,
    )


class InProcessLink:
    """The server's link to a provisioner in the same process, for the server's own user."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._writer: Writer = runtime.writer

    async def tend(self, request: TendRequest) -> TendReply:
        return _reply(await self._writer.do(_report(checked(request))))

    async def add_site(self, name: str, kind: str, limits: Limits) -> None:
        await self._writer.do(site_event(self._writer.state, user(), NewSite(name, kind, limits=limits)))

    async def enrolment(self, site: str, days: int) -> tuple[str, str]:
        token = tokens.new_token()
        event: events.IssueToken = self._runtime.issue(token, "enrol", site, days)
        await self._writer.do(event)
        return event.id, token

    async def knows(self, token: str) -> bool:
        return any(each.id == token for each in self._writer.state.tokens.values())

    async def pilots_address(self) -> ServerAddress:
        profile = self._runtime.profile
        return ServerAddress(profile["server"], profile["certificate"])

    async def local_address(self) -> ServerAddress:
        return ServerAddress(*self._runtime.local_tls())

    async def pilot(self) -> bytes:
        body: bytes = (await self._runtime.admin.pilot_file())[0]
        return body


def site_event(state: State, owner: str, wanted: NewSite) -> events.AddSite:
    """Return the event that adds or changes a site; settings left out stay as they were."""
    known = state.sites.get(wanted.name)
    mine = known if known is not None and known.owner == owner else None
    shared = (mine.shared if mine else []) if wanted.shared is None else wanted.shared
    return events.AddSite(key=0, name=wanted.name, owner=owner, kind=wanted.kind, shared=shared, limits=wanted.limits,
                          disk=mine.shared_disk if mine else False)
