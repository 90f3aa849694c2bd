"""A trial of a site (`windfall site test`): one real pilot, started by the usual commands, runs one real task.

Rules
  * Each step reports what it found.  The first step that fails reports cause and cure, and ends the trial.
  * If a pilot cannot reach the server directly, the trial tries relay and files; `found` names the route that worked.
  * The trial has its own user at the server, so that its pilot takes only the trial's task, and no other pilot does.
  * The trial's job counts against none of the site's limits: there is one, it is short, and a person asked for it.
  * At its end the trial removes its job, files and tokens, or reports those that it could not remove.
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
from windfall.provision.server_link import ServerAddress
from windfall.provision.trial_pilot import Attempt, Step, Tell, TrialSetting, Unreached, listing
from windfall.sites.channels.channel import Channel
from windfall.sites.dialects import text
from windfall.sites.dialects.job import ENDED
from windfall.sites.site_file import Site

Work = Callable[[], Awaitable[Any]]


class Trial:
    def __init__(self, site: Site, channel: Channel, client: Client, tell: Tell) -> None:
        self.site, self._channel, self._client, self._tell = site, channel, client, tell
        self._patience = 0.0
        self.found = ""  # the `reach` that works, if the one in the site's file does not
        self._user = ""  # the account at the site
        self._mine: Client | None = None  # a client with the token of the trial's user
        self._made: Any = {}  # the server's answer: the tokens
        self._attempt: Attempt | None = None
        self._cure = ""  # of the step that failed
        self._left: list[str] = []  # errors of the clean-up

    async def run(self, patience: float = 0.0) -> bool:
        """Run the trial and clean up; return whether it passed.  `patience`: seconds until the pilot must have started;
        0: no limit."""
        self._patience = patience
        try:
            return await self._steps()
        finally:
            await _run_to_end(self._clean())

    async def _clean(self) -> None:
        begun = time.monotonic()
        await self._end_attempt()
        await self._try_cleanup(self._leave_server)
        self._sum_up(time.monotonic() - begun)

    async def _steps(self) -> bool:
        for name, step in (("reach", self._reach), ("commands", self._commands), ("server", self._make_tokens)):
            if not await self._run_step(name, step):
                return False
        try:
            return await self._try_route(self.site, self.site.reach == "direct")
        except (Unreached, BadInput) as error:
            unreached = error
        self._tell(Step("pilot", None, f"{unreached.message}; trying the head node and files"))
        await self._end_attempt()
        if await self._try_route(replace(self.site, reach="auto"), False):
            return True
        if not self._cure:  # otherwise a cause was found that no other route would avoid
            self._tell(Step("pilot", False, unreached.message, unreached.hint))
        return False

    async def _try_route(self, site: Site, has_fallback: bool) -> bool:
        """Try one route; with `has_fallback`, raise if the pilot does not reach the server, instead of failing."""
        assert self._mine is not None
        setting = TrialSetting(user=self._user, channel=self._channel, client=self._mine, tokens=self._made, doors=self,
                               tell=self._tell, patience=self._patience)
        one = self._attempt = Attempt(site, setting)
        steps = (("folder", one.equip), ("submit", one.submit), ("start", one.start), ("pilot", one.wait_for_pilot),
                 ("task", one.run_task))
        for name, step in steps:
            if not await self._run_step(name, step, (Unreached, BadInput) if has_fallback else ()):
                return False
        if site.reach != self.site.reach:
            self.found = await one.route_used() or site.reach
            self._tell(Step("route", True, f"pilots reach the server by {self.found}"))
        return True

    async def _run_step(self, name: str, step: Work, beyond: tuple[type[Exception], ...] = ()) -> bool:
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
            raise self._login_error(error) from None
        self._user, host, home = (*answer.out.split("\n"), "", "", "")[:3]
        if answer.exit or not home.startswith("/"):
            raise SiteError(f"the site shows no home directory: {text.plain(answer.err) or text.plain(answer.out)}",
                            "does a plain login (ssh) work?")
        return f"{text.plain(host, 60)} as {text.plain(self._user, 40)}, in {text.plain(home)}"

    def _login_error(self, error: SiteRefused) -> SiteRefused:
        from windfall.sites.channels import keys

        if getattr(self._channel, "needs_login", False):
            return SiteRefused(error.message, error.hint.replace("NAME", self.site.name), kind="login")
        why, cure = keys.explain(self.site.host, self.site.user, self.site.port)
        return SiteRefused(f"{error.message}; {why}" if why else error.message, cure or error.hint, kind="login")

    async def _commands(self) -> str:
        jobs = await listing(self.site, self._user, self._channel)
        system = "processes" if self.site.dialect in ("ssh", "local") else self.site.dialect
        return f"{system} can be listed; you have {len([job for job in jobs if job.state != ENDED])} jobs there"

    async def _make_tokens(self) -> str:
        profile = self._client.profile
        self._made = await asyncio.to_thread(self._client.try_site, self.site.name)
        self._mine = Client(Profile(profile.server, self._made["token"], profile.certificate))
        return f"{profile.server} made the tokens of a trial"

    # --- the server's addresses, for the ticket -------------------------------------------------------------------

    async def pilots_address(self) -> ServerAddress:
        return ServerAddress(self._client.profile.server, self._client.profile.certificate)

    async def local_address(self) -> ServerAddress:
        """Return the server's TLS port on this machine: this process holds the provisioner's end of the relay."""
        if self._made["server"]:
            return ServerAddress(self._made["server"], self._made["certificate"])
        return await self.pilots_address()

    # --- afterwards ----------------------------------------------------------------------------------------------

    async def _end_attempt(self) -> None:
        """End the attempt's job, routes, files and bag; go on if one of these fails."""
        one, self._attempt = self._attempt, None
        if one is not None:
            for part in (one.end_job, one.close_routes, one.remove_files, one.forget_bag):
                await self._try_cleanup(part, one.nonce)

    async def _leave_server(self) -> None:
        if self._mine is not None:
            try:
                await asyncio.to_thread(_revoke, self._mine)
            finally:
                self._mine.close()

    async def _try_cleanup(self, part: Work, nonce: str = "") -> None:
        try:
            await part()
        except WindfallError as error:
            self._left.append(f"{error.message} ({nonce})" if nonce else error.message)

    def _sum_up(self, took: float) -> None:
        if self._left:
            self._tell(Step("clean", False, "; ".join(self._left), "remove the named things at the site", took))
        elif self._made:
            self._tell(Step("clean", True, "no job, file or token of the trial is left", "", took))


async def _run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Run the work to its end, even if the caller is cancelled meanwhile."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and not task.cancelled():
        raise asyncio.CancelledError


def _revoke(client: Client) -> None:
    """Revoke the trial's tokens; last the one that authorises these calls."""
    for token in sorted(client.tokens(), key=lambda each: bool(each["scope"] == "user")):
        client.remove_token(token["id"])
