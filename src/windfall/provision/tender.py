"""The tender of one site: takes the core's orders, carries them out through the site's channel, reports the outcomes.

`order_book` turns orders into commands.  The tender bounds how many commands run at once, lists all jobs by one
command, and makes growing pauses while the site does not answer.  Like a pilot, it has two requests at the server: one
waits for orders, the other reports outcomes at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from windfall.errors import BadInput, NotFound, SiteError, SiteRefused, TrustError, WindfallError
from windfall.provision import site_limits
from windfall.provision.order_book import Cancel, Command, ListJobs, OrderBook, Pair, Salvage, Submit
from windfall.provision.server_link import NO_END, NOT_SAID, ListedJob, ServerLink, SiteFigures, TendReply, TendRequest
from windfall.provision.site_files import Equipped
from windfall.sites.channels.channel import Channel, read_aside
from windfall.sites.dialects import text
from windfall.sites.dialects.job import ENDED, HELD, RUNNING, Answer, Command as Words, Job, Listed
from windfall.sites.dialects.table import dialect
from windfall.sites.site_file import Site

log = logging.getLogger("windfall.provision")

POLL_S = 20.0
PAUSE_S = 0.1  # between two polls
FIRST_S, LONGEST_S = 2.0, 300.0  # pauses after failures
PARTING_S = (0.3, 1.0, 2.0, 4.0, 8.0)  # between listings that tell whether a cancelled job is gone
LANDING_S = 30.0  # after which a submission without an answer is in the queue, or was not taken
SUBMISSIONS, CANCELLATIONS, SALVAGES = 2, 1, 2  # commands at once
DAY_S = 86_400.0
SALVAGE_S = 90.0  # for one salvage to send its results
PATIENCE_S = 10.0  # for commands under way when the tender stops


class Superseded(Exception):
    """Raised when another provisioner tends this site now."""


class Tender:
    def __init__(self, site: Site, channel: Channel, line: ServerLink, equip: Callable[[], Awaitable[Equipped]],
                 landing: float = LANDING_S, current: Callable[[], Awaitable[None]] | None = None) -> None:
        """`current` returns at once if the site's file has not changed since `site` was read; if it has changed, it
        ends this tender."""
        self.site, self.channel, self.line, self._current = site, channel, line, current
        self.name = f"{socket.gethostname()[:60]}-{os.getpid()}-{os.urandom(6).hex()}"
        self._trouble = ""  # the last error of the site, with its hint; "" after a command worked
        self._held = ""  # a sentence about jobs that the batch system holds
        self._books = ""  # why the account's balance is not known
        self.listed = 0.0  # when the jobs were last listed, time.time()
        self._dialect = dialect(site.dialect)
        self._book = OrderBook(site_limits.ARRAY if site.arrays else 1, site_limits.CANCELS, site_limits.SALVAGES)
        self._equip, self._equipping = equip, asyncio.Lock()
        self._equipped: Equipped | None = None
        self._since = 0.0  # loop time
        self._landing = landing
        self._lost = 0.0  # when the last submission got no answer, loop time
        self._resolved = asyncio.Event()  # set while no submission lacks an answer; others wait for that
        self._resolved.set()
        self._confirming = False
        self._parting: dict[Pair, int] = {}  # cancelled jobs → listings that still showed them
        self._others = 0  # the user's jobs that are not this server's
        self._pause = FIRST_S
        self._fresh = asyncio.Event()
        self._submits, self._cancels = asyncio.Semaphore(SUBMISSIONS), asyncio.Semaphore(CANCELLATIONS)
        self._salvages = asyncio.Semaphore(SALVAGES)
        self._work: dict[asyncio.Task[None], None] = {}
        self._broken: asyncio.Future[None] | None = None
        self._doing: set[asyncio.Future[Answer]] = set()  # commands under way that submit or cancel
        self._stopping = False

    # --- the exchange -------------------------------------------------------------------------------------------

    async def run(self, early: bool = False) -> None:
        """Tend the site until cancelled; raise Superseded, or an error after which the tender must start anew.
        `early`: put the files there at once, since pilots of an earlier tender may still run and need the relay."""
        self._broken = asyncio.get_running_loop().create_future()
        if early:
            self._spawn(self._equip_early())
        if self.site.room:
            self._spawn(self._tell_room())
        telling = asyncio.ensure_future(self._send_news())
        polling = asyncio.ensure_future(self._poll())
        try:
            await asyncio.wait((telling, polling, self._broken), return_when=asyncio.FIRST_COMPLETED)
            for each in (telling, polling, self._broken):
                if each.done():
                    each.result()
        finally:
            for task in (telling, polling, *self._work):
                task.cancel()
            await asyncio.gather(telling, polling, *self._work, return_exceptions=True)
            if not self._broken.done():
                self._broken.cancel()

    async def stop(self) -> None:
        """Begin no new commands; let those under way end, and report their outcomes."""
        self._stopping = True
        if self._doing:
            await asyncio.wait(list(self._doing), timeout=PATIENCE_S)
            await asyncio.sleep(0)
        if any(self._book.news()):
            try:
                await asyncio.wait_for(self._ask(), PATIENCE_S)
            except (WindfallError, TimeoutError):
                pass  # the next tender learns the outcomes from a listing

    async def _poll(self) -> None:
        orders = await self._ask_until_answered(hello=True)
        while True:
            if orders.over:
                raise Superseded
            await asyncio.sleep(PAUSE_S)
            orders = await self._ask_until_answered(wait=int(POLL_S * 1000))

    async def _ask_until_answered(self, **more: Any) -> TendReply:
        pause = FIRST_S
        while True:
            try:
                return await self._ask(**more)
            except WindfallError as error:
                if not error.retry:
                    raise
                log.warning("%s: the server does not answer, next try in %d s: %s", self.site.name, pause,
                            error.message)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_S)

    async def _send_news(self) -> None:
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            try:
                await self._ask()
            except WindfallError as error:
                if not error.retry:
                    raise
                await asyncio.sleep(FIRST_S)  # the poll carries the news, too
                self._fresh.set()

    async def _ask(self, **more: Any) -> TendReply:
        book = self._book
        news = book.news()
        more.setdefault("seen", book.seen)
        request = TendRequest(
            0, self.site.name, self.name, accepted=news.accepted, refused=news.refused, stopped=news.stopped,
            unstopped=news.unstopped, salvages=True, salvaged=news.salvaged, **more)
        orders = await self.line.tend(request)
        if not orders.over and not self._stopping:
            self._begin(book.answered(orders, news))
        return orders

    # --- commands -----------------------------------------------------------------------------------------------

    def _begin(self, commands: Iterable[Command]) -> None:
        for command in commands:
            self._spawn(self._carry_out(command))

    def _spawn(self, what: Any) -> None:
        task = asyncio.ensure_future(what)
        self._work[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End this tender if a command raised an unexpected error; the next tender begins with a listing."""
        self._work.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _carry_out(self, command: Command) -> None:
        match command:
            case Submit():
                async with self._submits:
                    await self._resolved.wait()
                    if self._current is not None:
                        await self._current()
                    for each in self._book.still_wanted(command):
                        await self._submit(each)
                    self._fresh.set()
            case Cancel():
                async with self._cancels:
                    await self._cancel(command)
            case ListJobs():
                await self._report_jobs(command)
            case Salvage():
                async with self._salvages:  # after a whole rack has failed, spare the login node
                    await self._salvage(command)

    async def _equip_early(self) -> None:
        pause = FIRST_S
        while self._equipped is None:
            try:
                await self.equipped()
            except (SiteError, BadInput, TrustError) as error:
                self._failed(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_S)

    async def _do(self, command: Words) -> Answer:
        """Run a command to its end, even if the tender stops meanwhile: nobody would know the outcome of half of it."""
        doing = asyncio.ensure_future(self.channel.say(command))
        self._doing.add(doing)
        doing.add_done_callback(self._doing.discard)
        return await doing

    async def equipped(self) -> Equipped:
        """Return the site's folder and files; put them there, or once a day renew the token and sweep the folder."""
        async with self._equipping:
            now = asyncio.get_running_loop().time()
            if self._equipped is None or now > self._since + DAY_S:
                self._equipped, self._since = await self._equip(), now
            return self._equipped

    # --- submit -------------------------------------------------------------------------------------------------

    async def _submit(self, submit: Submit) -> None:
        try:
            equipped = await self.equipped()
            shape = site_limits.site_shape(self.site, submit.shape)
            job = equipped.job(self.site, submit.nonces[0], shape, len(submit.nonces))
            command = self._dialect.submit(job)
        except (SiteError, BadInput, TrustError) as error:
            self._failed(error)
            self._refused(submit.nonces, error)
            return
        try:
            id = self._dialect.submitted(await self._do(command))
        except SiteRefused as error:
            self._failed(error)
            self._not_taken(submit, error)
        except SiteError as error:  # the batch system may have taken it
            self._failed(error)
            self._book.lost(submit)
            self._lost = asyncio.get_running_loop().time()
            if self._resolved.is_set():
                self._resolved.clear()
                self._spawn(self._resolve())
        else:
            self._accepted(job, id)

    def _accepted(self, job: Job, id: str) -> None:
        log.info("%s: %s submitted as %s", self.site.name, _counted(job.count, "pilot"), id)
        self._worked()
        self._begin(self._book.accepted(dict(zip(job.nonces, self._dialect.names(job, id), strict=True))))
        self._fresh.set()

    def _refused(self, nonces: Iterable[str], error: WindfallError) -> None:
        self._begin(self._book.refused(nonces, text.plain(error.message)))
        self._fresh.set()

    def _not_taken(self, submit: Submit, error: SiteRefused) -> None:
        """Submit half of a refused array if it was too large for the site, or too many for now."""
        half = len(submit.nonces) // 2
        first, second = Submit(submit.shape, submit.nonces[:half]), Submit(submit.shape, submit.nonces[half:])
        if half and error.kind == text.ARRAY:
            self._book.most = max(half, 1)
            self._begin((first, second))
        elif half and error.kind == text.LIMIT:
            self._begin((first,))
            self._refused(second.nonces, error)
        else:
            self._refused(submit.nonces, error)

    async def _resolve(self) -> None:
        """Find out by a listing which submissions without an answer the batch system has taken."""
        loop = asyncio.get_running_loop()
        while self._book.unsure:
            await asyncio.sleep(max(self._lost + self._landing - loop.time(), 0))
            began = loop.time()
            try:
                listed = await self._list()
            except SiteError as error:
                await self._note_and_pause(error)
                continue
            if self._lost + self._landing <= began:
                there = {job.nonce: job.id for job in listed}
                self._begin(self._book.resolve(there, "the site did not answer, and does not list the job"))
                self._fresh.set()
        self._resolved.set()

    # --- cancel and list ----------------------------------------------------------------------------------------

    async def _cancel(self, cancel: Cancel) -> None:
        try:
            for command in self._dialect.cancel(await self._ids(cancel)):
                self._dialect.cancelled(await self._do(command))
        except (SiteError, BadInput) as error:
            await self._note_and_pause(error)
            self._book.not_cancelled(cancel)
            self._fresh.set()
            return
        self._worked()
        self._parting.update(dict.fromkeys(cancel.jobs, 0))
        if not self._confirming:
            self._confirming = True
            self._spawn(self._confirm_ends())

    async def _confirm_ends(self) -> None:
        """List until cancelled jobs are gone, and only then report them as stopped: a listed job may hold its slot."""
        while self._parting:
            await asyncio.sleep(PARTING_S[min(self._parting.values())])
            asked = list(self._parting)
            try:
                listed = await self._list()
            except SiteError as error:
                await self._note_and_pause(error)
                continue
            there = {job.id for job in listed} | {job.nonce for job in listed}
            gone = [pair for pair in asked if (pair[1] or pair[0]) not in there]
            self._note_ends(asked, gone)
        self._confirming = False

    def _note_ends(self, asked: list[Pair], gone: list[Pair]) -> None:
        looks = {pair: self._parting.pop(pair) + 1 for pair in asked}
        stay = [pair for pair in asked if pair not in dict.fromkeys(gone)]
        self._parting.update({pair: looks[pair] for pair in stay if looks[pair] < len(PARTING_S)})
        self._book.cancelled(Cancel(tuple(gone)))
        self._book.not_cancelled(Cancel(tuple(pair for pair in stay if looks[pair] >= len(PARTING_S))))
        self._fresh.set()

    async def _ids(self, cancel: Cancel) -> list[str]:
        """Return the batch system's names of jobs to cancel; look up those that are not known by their nonces."""
        known = {pair: pair[1] or self._book.name(pair[0]) for pair in cancel.jobs}
        ids = [id for id in known.values() if id]
        if nameless := {pair[0] for pair, id in known.items() if not id}:
            ids += [job.id for job in await self._list() if job.nonce in nameless]
        return list(dict.fromkeys(ids))

    async def _report_jobs(self, order: ListJobs) -> None:
        try:
            seen = self._book.seen
            listed = await self._list()
            jobs = [ListedJob(job.nonce, job.id, job.state == RUNNING) for job in listed]
            await self._ask(listed=jobs, began=order.began, info=await self._info(), seen=seen)
        except (SiteError, BadInput) as error:
            await self._note_and_pause(error)
        except NotFound:
            raise
        except WindfallError as error:
            log.warning("%s: the server did not take a listing: %s", self.site.name, error.message)
        finally:
            self._book.listing_ended()

    async def _list(self) -> list[Listed]:
        """List this server's jobs that have not ended, all by one command."""
        equipped = await self.equipped()
        answer = await self.channel.say(self._dialect.listing(equipped.user))
        jobs = await read_aside(self._dialect.listed, answer)
        self.listed = time.time()
        self._others = sum(not job.nonce and job.state != ENDED for job in jobs)
        self._worked()
        self._note_held([job for job in jobs if job.nonce and job.state == HELD])
        return [job for job in jobs if job.nonce and job.state != ENDED]

    def _note_held(self, jobs: list[Listed]) -> None:
        """Report held jobs as trouble: they count as queued, but wait for a person."""
        held = ""
        if jobs:
            why = next((f": {job.reason}" for job in jobs if job.reason), "")
            held = (f"the batch system holds {_counted(len(jobs), 'pilot')}, such as job {jobs[0].id}{why}; release or "
                    "cancel the held jobs there: Windfall submits others in place of cancelled ones")
        if held and not self._held:
            log.warning("%s: %s", self.site.name, held)
        self._held = held

    async def _tell_room(self) -> None:
        """Report how full the site is, for policies that use such figures."""
        while (command := self._dialect.room(self.site.queue)) is not None:
            try:
                room = await read_aside(self._dialect.roomed, await self.channel.say(command))
                if room.free is not None and room.queued is not None:
                    await self._ask(info=SiteFigures(room.free, room.queued))
            except WindfallError as error:
                log.info("%s: cannot find out how full the site is: %s", self.site.name, error.message)
            await asyncio.sleep(POLL_S)

    async def _info(self) -> SiteFigures | None:
        """Return the figures that the site's file asks for, and no others: each query burdens the login node."""
        if not self.site.balance:
            return SiteFigures(-1, -1, others=self._others) if self.site.max_jobs else None
        try:
            balance = await self._balance()
            self._books = ""
        except SiteError as error:  # the accounting may be down while the listing works
            if isinstance(error, SiteRefused) and error.kind == "login":
                raise
            if self._books != str(error):
                log.warning("%s: %s", self.site.name, error)
            self._books, balance = str(error), NOT_SAID
        return SiteFigures(-1, -1, others=self._others, balance=balance)

    async def _balance(self) -> int:
        """Return the ms of cores that the account may still use; NO_END if it has no limit."""
        command = self._dialect.balance((await self.equipped()).user, self.site.account)
        known = await read_aside(self._dialect.balanced, await self.channel.say(command)) if command else []
        ours = [each for each in known if self.site.account in ("", each.account)]
        if not ours:
            raise SiteError(f"the site gives no balance for {self.site.account or 'any account'}",
                            "check the account in the site's file; or replace balance = true there by core-hours = N")
        left = [each.limit - each.used - each.running for each in ours if each.limit is not None]
        return max(min(left), 0) * 1000 if left else NO_END

    # --- salvage ------------------------------------------------------------------------------------------------

    async def _salvage(self, salvage: Salvage) -> None:
        """Send results that pilots could not deliver from the site to the server, by a command of the pilot's file."""
        missed, found = list(salvage.nonces), dict[str, int]()
        try:
            equipped = await self.equipped()
            answer = await self.channel.run(equipped.salvage(self.site, salvage.nonces), timeout=SALVAGE_S)
            found = {nonce: many for nonce, many in _salvage_counts(answer.out).items() if nonce in salvage.nonces}
            self._salvaged(found)
            missed = [nonce for nonce in salvage.nonces if nonce not in found]
            if missed:
                others = " and others" if len(missed) > 1 else ""
                raise SiteError(f"the results that {missed[0]}{others} left at the site cannot be sent to the server: "
                                + text.plain(answer.err or answer.out))
            self._worked()
        except (SiteError, BadInput, TrustError) as error:
            await self._note_and_pause(error)
        self._book.not_salvaged(missed, alone=bool(found))
        self._fresh.set()

    def _salvaged(self, found: dict[str, int]) -> None:
        for nonce, many in found.items():
            log.info("%s: sent %s of pilot %s to the server", self.site.name, _counted(max(many, 0), "result"), nonce)
        self._book.salvaged(found)
        self._fresh.set()

    # --- how the site is ----------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """Return what is wrong at the site, and what to do; "" if nothing is."""
        return self._trouble or self._held or self._books

    def _worked(self) -> None:
        if self._trouble:
            log.info("%s: the site works again", self.site.name)
        self._trouble, self._pause = "", FIRST_S

    def _failed(self, error: WindfallError) -> None:
        message = str(error).replace("NAME", self.site.name)  # in a hint
        if self._trouble != message:
            log.warning("%s: %s", self.site.name, message)
        self._trouble = message
        if isinstance(error, SiteRefused) and error.kind == "login":
            raise error  # no command gets through: the next tender begins after a person has logged in

    async def _note_and_pause(self, error: WindfallError) -> None:
        self._failed(error)
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_S)
        await asyncio.sleep(pause)


def _salvage_counts(output: str) -> dict[str, int]:
    """Parse the number of results per pilot from the last line of a salvage's output."""
    try:
        found = dict(json.loads(output.strip().rpartition("\n")[2])["found"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {nonce: many for nonce, many in found.items() if type(many) is int and -1 <= many < 1 << 30}


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
