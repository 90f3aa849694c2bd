"""The link to a server on another machine: the client's HTTP, with a thread for every call under way.

A waiting poll holds one connection; news goes over another.  All calls are idempotent, so failed ones are repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from windfall.client.http import Http
from windfall.client.profile import Profile
from windfall.core.messages.facts import Limits
from windfall.errors import BadInput, WindfallError
from windfall.provision.server_link import ServerAddress, TendReply, TendRequest

T = TypeVar("T")
CALLS = 200  # under way at once: two for each site, and some more
PATIENCE_S = 5.0  # for one call; the tender repeats calls itself


class RemoteLink:
    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._threads = ThreadPoolExecutor(CALLS, "line")
        self._idle: list[Http] = []

    async def _with(self, work: Callable[[Http], T]) -> T:
        http = self._idle.pop() if self._idle else Http(self._profile, PATIENCE_S)

        def lent() -> T:
            """Free the connection when the call ends, even if the caller has been cancelled before."""
            try:
                return work(http)
            finally:
                self._idle.append(http)

        return await asyncio.get_running_loop().run_in_executor(self._threads, lent)

    async def tend(self, request: TendRequest) -> TendReply:
        body = msgspec.json.encode(request)
        answer = await self._with(lambda http: http.post("/v1/tend", body, repeatable=True))
        try:
            return msgspec.convert(answer, TendReply)
        except msgspec.ValidationError as error:
            raise WindfallError(f"the server's orders cannot be read: {error}",
                                "is the server of the same version as this provisioner?") from None

    async def add_site(self, name: str, kind: str, limits: Limits) -> None:
        body = {"name": name, "kind": kind, "limits": limits}
        await self._with(lambda http: http.post("/v1/sites", body, repeatable=True))

    async def enrolment(self, site: str, days: int) -> tuple[str, str]:
        body = {"scope": "enrol", "site": site, "days": days}
        made = await self._with(lambda http: http.post("/v1/tokens", body, repeatable=True))
        return str(made["id"]), str(made["token"])

    async def knows(self, token: str) -> bool:
        listed = await self._with(lambda http: http.get("/v1/tokens"))
        return any(each["id"] == token for each in listed["tokens"])

    async def pilots_address(self) -> ServerAddress:
        return ServerAddress(self._profile.server, self._profile.certificate)

    async def local_address(self) -> ServerAddress:
        if self._profile.server.startswith("unix:"):
            raise BadInput("the server listens on a Unix socket only, but pilots need TLS",
                           "start the server with --listen HOST:PORT")
        return await self.pilots_address()

    async def pilot(self) -> bytes:
        return await self._with(_pilot)

    def close(self) -> None:
        """Close the idle connections; polls that wait end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for http in self._idle:
            http.close()


def _pilot(http: Http) -> bytes:
    answer = http.open("/v1/pilot.pyz")
    return http.finish(answer)
