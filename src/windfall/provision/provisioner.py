"""The provisioner: reads a user's site files, registers the sites at the server, and keeps a tender for each.

A failure at one site never touches another: each has its own asyncio task, which restarts after growing pauses.  When
a file changes, a new tender starts, and no tender submits by the old contents.  If a file cannot be read, its tender
goes on and `windfall site ls` shows the error.  When a file is removed, its site gets no more pilots, and the tender
runs on to look after those there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.core.messages.facts import Limits
from windfall.errors import NotFound, WindfallError
from windfall.provision import control, site_limits
from windfall.provision.routes import Reach
from windfall.provision.server_link import ServerLink
from windfall.provision.site_files import equip
from windfall.provision.tender import FIRST_S, LANDING_S, LONGEST_S, Superseded, Tender
from windfall.sites import site_file
from windfall.sites.channels.channel import Channel, Question
from windfall.sites.channels.open import channel
from windfall.sites.dialects import text
from windfall.sites.dialects.table import dialect
from windfall.sites.site_file import Site

if TYPE_CHECKING:
    from windfall.client.profile import Profile

log = logging.getLogger("windfall.provision")

LOOK_S = 3.0  # between checks of the site files
AGAIN_S = 120.0  # before this provisioner takes a site back from another one

Open = Callable[[Site], Channel]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return values that change with the file; None if there is no file."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


async def _cores(place: TendedSite) -> int:
    """Return the cores of a machine without batch system whose file sets no limit of pilots; else 0."""
    site, speaks = place.site, dialect(place.site.dialect)
    command = speaks.room("") if site.dialect in ("ssh", "local") and not site.max_pilots else None
    if command is None:
        return 0
    return speaks.roomed(await place.channel.say(command)).total or 1


class TendedSite:
    """A site with its channel and its tender."""

    def __init__(self, site: Site, stamp: Any, channel: Channel) -> None:
        """`channel` outlives tenders: a person may have typed a code to open it."""
        self.site, self.stamp, self.channel = site, stamp, channel
        self.tender: Tender | None = None
        self.task: asyncio.Task[None] | None = None
        self.trouble = ""
        self.closing = False  # the site's file was removed


class Provisioner:
    """`home` is the user's data folder: `sites` in it has the site files, `provision` the tokens kept between runs."""

    def __init__(self, home: Path, line: ServerLink, opened: Open = channel, landing: float = LANDING_S) -> None:
        self.home, self.line, self.opened, self.landing = home, line, opened, landing
        self.places: dict[str, TendedSite] = {}  # by the file's name
        self.bad: dict[str, str] = {}  # files that cannot be read, and why
        self._seen: dict[str, Any] = {}  # stamps of the files at the last check
        self._looking = asyncio.Lock()
        self.handlers: dict[str, control.Handler] = {"ls": self._ls, "login": self._login, "test": self._test}
        self.profile: Callable[[], Profile] = self._profile  # of the server, for trials

    def _profile(self) -> Profile:
        from windfall.client.profile import find

        return find(self.home)

    @staticmethod
    def files(home: Path) -> list[Path]:
        try:
            return sorted(path for path in (home / "sites").glob("*.toml") if path.is_file())
        except OSError:
            return []

    async def run(self) -> None:
        talking = await control.serve(self.home, self.handlers)
        try:
            while True:
                await self.check_files()
                await asyncio.sleep(LOOK_S)
        finally:
            talking.close()
            control.remove(self.home)
            for place in self.places.values():
                if place.task is not None:
                    place.task.cancel()
            await asyncio.gather(*(place.task for place in self.places.values() if place.task is not None),
                                 return_exceptions=True)
            await asyncio.gather(*(place.channel.close() for place in self.places.values()), return_exceptions=True)

    async def stop(self) -> None:
        """Let commands under way end, and report their outcomes; jobs stay in their batch systems."""
        tenders = [place.tender for place in self.places.values() if place.tender is not None]
        await asyncio.gather(*(tender.stop() for tender in tenders), return_exceptions=True)

    async def retire(self) -> None:
        """Set the limit of every site to no pilots, until the next provisioner registers the sites again."""
        for place in self.places.values():
            if not place.closing:
                await self._close(place)

    async def check_files(self) -> None:
        """Start, restart and close tenders as site files appear, change and disappear."""
        async with self._looking:
            await self._check_files()

    async def _check_files(self) -> None:
        found = {path.name: stamp for path in self.files(self.home) if (stamp := _stamp(path))}
        self.bad = {name: why for name, why in self.bad.items() if name in found}
        for name, stamp in found.items():
            place = self.places.get(name)
            if place is None or place.stamp != stamp:
                await self._load(name, stamp)
        for name in [name for name, place in self.places.items() if name not in found and not place.closing]:
            await self._close(self.places[name])
        self._seen = found

    async def _unchanged(self, name: str) -> None:
        """Return once the site's file is read as it is now: after a user has lowered a limit in it, no submission goes
        by the old one."""
        while _stamp(self.home / "sites" / name) != self._seen.get(name):
            looking = asyncio.ensure_future(self.check_files())  # a task of its own: it may cancel this tender
            await asyncio.shield(looking)

    async def _load(self, name: str, stamp: Any) -> None:
        old = self.places.get(name)
        try:
            site = site_file.named(self.home / "sites" / name)
        except WindfallError as error:
            if self.bad.get(name) != str(error):
                log.warning("%s", error)
            self.bad[name] = str(error)
            return
        self.bad.pop(name, None)
        self.places[name] = place = TendedSite(site, stamp, await self._channel(site, old))
        place.task = asyncio.ensure_future(self._keep(place, name))

    async def _channel(self, site: Site, old: TendedSite | None) -> Channel:
        """Return the old channel if it leads to the same account; else open a new one."""
        if old is not None:
            await self._end(old)
            if (old.site.host, old.site.user, old.site.port) == (site.host, site.user, site.port):
                return old.channel
            await old.channel.close()
        return self.opened(site)

    async def _end(self, place: TendedSite) -> None:
        if place.tender is not None:
            await place.tender.stop()
        if place.task is not None:
            place.task.cancel()
            await asyncio.gather(place.task, return_exceptions=True)

    async def _close(self, place: TendedSite) -> None:
        """Limit a site to no pilots: the core stops queued ones and lets running ones end."""
        place.closing = True
        place.stamp = None
        try:
            await self.line.add_site(place.site.name, place.site.dialect, Limits())
        except WindfallError as error:
            place.closing = False
            place.trouble = error.message

    # --- a site -------------------------------------------------------------------------------------------------

    async def _keep(self, place: TendedSite, name: str) -> None:
        pause = FIRST_S
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._tend(place, name)
            except Superseded:
                place.trouble = f"another provisioner starts pilots there; next try in {AGAIN_S:.0f} s"
                log.warning("%s: %s", place.site.name, place.trouble)
                pause = max(pause, AGAIN_S)
            except WindfallError as error:
                if place.closing and isinstance(error, NotFound):
                    await self._forget(place)
                    return
                place.trouble = str(error).replace("NAME", place.site.name)
                log.warning("%s: %s", place.site.name, error)
            except Exception as error:  # the other sites go on
                place.trouble = f"{type(error).__name__}: {error}"
                log.exception("%s: its tender failed", place.site.name)
            if asyncio.get_running_loop().time() - began > LONGEST_S:
                pause = FIRST_S
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_S)
            await place.channel.logged_in()

    async def _forget(self, place: TendedSite) -> None:
        """Forget a site whose file was removed and which the server has removed, too."""
        self.places = {name: each for name, each in self.places.items() if each is not place}
        await place.channel.close()

    async def _tend(self, place: TendedSite, name: str) -> None:
        site = place.site
        limits = Limits() if place.closing else site_limits.limits(site, await _cores(place))
        await self.line.add_site(site.name, site.dialect, limits)
        opened = place.channel
        kept = self.home / "provision" / f"{site.name}.json"
        reach = Reach(site, opened, self.line)
        place.tender = Tender(
            site, opened, self.line, lambda: equip(site, opened, self.line, kept, reach), landing=self.landing,
            current=lambda: self._unchanged(name))
        place.trouble = ""
        try:
            await place.tender.run(early=site.reach != "direct")
        finally:
            place.tender = None
            await reach.close()

    # --- for people ---------------------------------------------------------------------------------------------

    async def _ls(self, talk: control.Talk, wanted: dict[str, Any]) -> None:
        await talk.say(sites=self.status())

    async def _login(self, talk: control.Talk, wanted: dict[str, Any]) -> None:
        """Log in to a site: pass its questions to the person and the answers to the site; keep none of them."""
        async def ask(question: Question) -> list[str]:
            await talk.say(ask={"host": question.site, "text": question.text, "prompts": question.prompts})
            answers = (await talk.hear()).get("answers")
            fits = isinstance(answers, list) and len(answers) == len(question.prompts)
            return [str(each) for each in answers] if fits and answers is not None else []

        await talk.say(says=await (await self._named(wanted)).channel.login(ask))

    async def _test(self, talk: control.Talk, wanted: dict[str, Any]) -> None:
        from windfall.provision import trial_by_proxy

        place = await self._named(wanted)
        await trial_by_proxy.trial(talk, wanted, place.site, place.channel, self.profile())

    async def _named(self, wanted: dict[str, Any]) -> TendedSite:
        await self.check_files()
        place = next((place for place in self.places.values() if place.site.name == wanted.get("site")), None)
        if place is None:
            raise NotFound(f"no site is called {text.plain(wanted.get('site'), 60)!r} here", "windfall site ls")
        return place

    def status(self) -> list[dict[str, Any]]:
        """Return a line for each site file."""
        return [*(self._line(name, place) for name, place in self.places.items()),
                *({"file": name, "site": "", "trouble": why} for name, why in self.bad.items()
                  if name not in self.places)]

    def _line(self, name: str, place: TendedSite) -> dict[str, Any]:
        tender = place.tender
        trouble = self.bad.get(name) or place.trouble or (tender.trouble if tender else "")
        return {"file": name, "site": place.site.name, "tended": tender is not None, "trouble": trouble,
                "listed": int(tender.listed * 1000) if tender else 0,
                "connected": bool(getattr(place.channel, "connected", False)),
                "needs_login": bool(getattr(place.channel, "needs_login", False))}
