"""The line to a server elsewhere: the client's own HTTP, a thread for every call that is under way.

A poll that waits holds one connection; news goes over another.  What is said twice is harmless, so calls are repeated.
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
from windfall.provision.server_link import Door, TendReply, TendRequest

T = TypeVar("T")
CALLS = 200  # under way at once: two for each site, and some
PATIENCE_S = 5.0  # the tender has its own


class Remote:
    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._threads = ThreadPoolExecutor(CALLS, "line")
        self._idle: list[Http] = []

    async def _with(self, work: Callable[[Http], T]) -> T:
        http = self._idle.pop() if self._idle else Http(self._profile, PATIENCE_S)

        def lent() -> T:
            """Free again when the call has ended, not when nobody waits for it any more."""
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
            raise WindfallError(f"the server's orders cannot be read: {error}", "is it of another version?") from None

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

    async def door(self) -> Door:
        return Door(self._profile.server, self._profile.certificate)

    async def inner(self) -> Door:
        if self._profile.server.startswith("unix:"):
            raise BadInput("the server listens on a Unix socket only, and TLS has to be spoken there",
                           "start it with --listen HOST:PORT")
        return await self.door()

    async def pilot(self) -> bytes:
        return await self._with(_pilot)

    def close(self) -> None:
        """Polls that wait are left to end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for http in self._idle:
            http.close()


def _pilot(http: Http) -> bytes:
    answer = http.open("/v1/pilot.pyz")
    return http.finish(answer)
