"""A trial of a site: one real pilot, by the same commands as any other, that runs one real task.

Rules
  * Every step says what it found; the first that fails says why, and what to do, and ends the trial.
  * Where a pilot that is to come directly finds no way to the server, the others are tried; `found` says what worked.
  * It is a user of its own at the server: its pilot takes no task but the trial's, and nobody else takes that one.
  * Its job counts against none of the site's limits: it is one, short, and asked for by name.
  * Whatever happens, afterwards there is no job, no file and no token of it, or it says what it could not remove.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from windfall.client.client import Client
from windfall.client.profile import Profile
from windfall.errors import BadInput, SiteError, SiteRefused, WindfallError
from windfall.provision.server_link import Door
from windfall.provision.trial_pilot import Attempt, Step, Tell, Unreached, listing
from windfall.sites.channels.channel import Channel
from windfall.sites.dialects import text
from windfall.sites.dialects.job import ENDED
from windfall.sites.site_file import Site

Work = Callable[[], Awaitable[Any]]


class Trial:
    def __init__(self, site: Site, channel: Channel, client: Client, tell: Tell, patience: float = 0.0) -> None:
        """`patience`: seconds until the pilot must have started; 0: any."""
        self.site, self._channel, self._client, self._tell, self._patience = site, channel, client, tell, patience
        self.found = ""  # how its pilots should reach the server, if otherwise than its file says
        self._user = ""
        self._mine: Client | None = None  # as the trial's own user
        self._made: Any = {}
        self._attempt: Attempt | None = None
        self._cure = ""  # of the step that failed
        self._left: list[str] = []

    async def run(self) -> bool:
        try:
            return await self._steps()
        finally:
            await _whole(self._clean())

    async def _clean(self) -> None:
        begun = time.monotonic()
        await self._end_attempt()
        await self._tried(self._leave_server)
        self._sum_up(time.monotonic() - begun)

    async def _steps(self) -> bool:
        for name, step in (("reach", self._reach), ("commands", self._commands), ("server", self._enter)):
            if not await self._take(name, step):
                return False
        try:
            return await self._by(self.site, self.site.reach == "direct")
        except (Unreached, BadInput) as error:
            unreached = error
        self._tell(Step("pilot", None, f"{unreached.message}; trying the head node and files"))
        await self._end_attempt()
        if await self._by(replace(self.site, reach="auto"), False):
            return True
        if not self._cure:  # else what failed has a cause of its own, which would be there by any way
            self._tell(Step("pilot", False, unreached.message, unreached.hint))
        return False

    async def _by(self, site: Site, otherwise: bool) -> bool:
        """One attempt; `otherwise`: there is another way if the server is not reached."""
        assert self._mine is not None
        one = self._attempt = Attempt(site, self._user, self._channel, self._mine, self._made, self, self._tell,
                                      self._patience)
        for name, step in (("folder", one.equip), ("submit", one.submit), ("start", one.start), ("pilot", one.come),
                           ("task", one.run_task)):
            if not await self._take(name, step, (Unreached, BadInput) if otherwise else ()):
                return False
        if site.reach != self.site.reach:
            self.found = await one.way() or site.reach
            self._tell(Step("route", True, f"pilots reach the server by {self.found}"))
        return True

    async def _take(self, name: str, step: Work, beyond: tuple[type[Exception], ...] = ()) -> bool:
        begun = time.monotonic()
        try:
            says = await step()
        except WindfallError as error:
            if isinstance(error, beyond):
                raise
            self._tell(Step(name, False, error.message, error.hint, time.monotonic() - begun))
            self._cure = error.hint
            return False
        self._tell(Step(name, True, says, "", time.monotonic() - begun))
        return True

    # --- before anything is put there ---------------------------------------------------------------------------

    async def _reach(self) -> str:
        try:
            answer = await self._channel.run(("/bin/sh", "-c", "id -un && uname -n && pwd -P"))
        except SiteRefused as error:
            if error.kind != "login":
                raise
            raise self._closed(error) from None
        self._user, host, home = (*answer.out.split("\n"), "", "", "")[:3]
        if answer.exit or not home.startswith("/"):
            raise SiteError(f"there is no home directory there: {text.plain(answer.err) or text.plain(answer.out)}",
                            "does a plain login work?")
        return f"{text.plain(host, 60)} as {text.plain(self._user, 40)}, in {text.plain(home)}"

    def _closed(self, error: SiteRefused) -> SiteRefused:
        from windfall.sites.channels import keys

        if getattr(self._channel, "needs_login", False):
            return SiteRefused(error.message, error.hint.replace("NAME", self.site.name), kind="login")
        why, cure = keys.excuse(self.site.host, self.site.user, self.site.port)
        return SiteRefused(f"{error.message}; {why}" if why else error.message, cure or error.hint, kind="login")

    async def _commands(self) -> str:
        jobs = await listing(self.site, self._user, self._channel)
        system = "processes" if self.site.dialect in ("ssh", "local") else self.site.dialect
        return f"{system} can be listed; you have {len([job for job in jobs if job.state != ENDED])} jobs there"

    async def _enter(self) -> str:
        profile = self._client.profile
        self._made = await asyncio.to_thread(self._client.try_site, self.site.name)
        self._mine = Client(Profile(profile.server, self._made["token"], profile.certificate))
        return f"{profile.server} lets a trial in"

    # --- the server's doors, for whoever writes the ticket --------------------------------------------------------

    async def door(self) -> Door:
        return Door(self._client.profile.server, self._client.profile.certificate)

    async def inner(self) -> Door:
        """One that speaks TLS, here: the relay's end is in this process."""
        return Door(self._made["server"], self._made["certificate"]) if self._made["server"] else await self.door()

    # --- afterwards ----------------------------------------------------------------------------------------------

    async def _end_attempt(self) -> None:
        """Each part whatever became of the one before."""
        one, self._attempt = self._attempt, None
        if one is not None:
            for part in (one.end_job, one.close_ways, one.remove_files, one.forget_bag):
                await self._tried(part, one.nonce)

    async def _leave_server(self) -> None:
        if self._mine is not None:
            try:
                await asyncio.to_thread(_revoke, self._mine)
            finally:
                self._mine.close()

    async def _tried(self, part: Work, nonce: str = "") -> None:
        try:
            await part()
        except WindfallError as error:
            self._left.append(f"{error.message} ({nonce})" if nonce else error.message)

    def _sum_up(self, took: float) -> None:
        if self._left:
            self._tell(Step("clean", False, "; ".join(self._left), "look for what is named at the site", took))
        elif self._made:
            self._tell(Step("clean", True, "no job, file or token of the trial is left", "", took))


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """To its end, whoever cancels us meanwhile."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and not task.cancelled():
        raise asyncio.CancelledError


def _revoke(client: Client) -> None:
    """The last token to go is the one that does it."""
    for token in sorted(client.tokens(), key=lambda each: bool(each["scope"] == "user")):
        client.remove_token(token["id"])
