"""The pilot of a trial: put its files at the site, submit it, wait for it, give it a task, and remove every trace."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from windfall.client.client import Client
from windfall.errors import SiteError, SiteRefused, SiteUnreachable
from windfall.model import units
from windfall.model.bagfile import reader
from windfall.provision import job_log
from windfall.provision.routes import Reach, Route, Routes
from windfall.provision.server_link import AddressSource
from windfall.provision.site_files import Equipped
from windfall.sites.channels.channel import Channel, read_aside
from windfall.sites.dialects import text
from windfall.sites.dialects.job import ENDED, HELD, QUEUED, RUNNING, Job, Listed, Shape
from windfall.sites.dialects.script import prepare
from windfall.sites.dialects.table import dialect
from windfall.sites.site_file import Site

WALL_S = 600  # of the job, beside the grace
IDLE_S = 120  # after which the pilot ends by itself, in case the trial is killed
COME_S = 90.0  # from the start of the job until its pilot must have enrolled
TRYING_S = 8.0  # for which a pilot's log may report that the server is not reached
FIRST_S, LONGEST_S = 0.5, 15.0  # between two listings
AGAIN_S = (1.0, 3.0, 8.0)  # after a listing without an answer
GONE_S = 90.0  # for a cancelled job to end
LANDING_S = 10.0  # after which a submission without an answer is listed, or was not taken
PILOT, TICKET = "pilot.pyz", "ticket.json"
TASK = '[bag]\nname = "trial"\ncommand = "hostname"\n[task]\nretries = 0\ntime = "1min"\n'

_NEVER: tuple[tuple[str, str], ...] = (  # reasons of a queued job that waiting does not change, and the cure
    (r"invalidaccount|accountnotallowed|invalidqos|qosnotallowed", text.CURES[text.ACCOUNT]),
    (r"partitiontimelimit|partitionnodelimit|badconstraints|nodes required for job are down|partitionconfig",
     text.CURES[text.SHAPE]),
    (r"partition(?:down|inactive)", text.CURES[text.QUEUE]),
)


class Step(NamedTuple):
    name: str
    ok: bool | None  # None: the step goes on
    says: str
    hint: str = ""
    seconds: float = 0.0


Tell = Callable[[Step], None]


async def listing(site: Site, user: str, channel: Channel) -> list[Listed]:
    """List the user's jobs; ask again if the batch system is too busy to answer."""
    speaks = dialect(site.dialect)
    for pause in AGAIN_S:
        try:
            return await read_aside(speaks.listed, await channel.say(speaks.listing(user)))
        except SiteUnreachable:
            await asyncio.sleep(pause)
    return await read_aside(speaks.listed, await channel.say(speaks.listing(user)))


class Unreached(SiteError):
    """The pilot runs, but does not reach the server."""


class TrialSetting(NamedTuple):
    """The parts of a trial that all its attempts share."""

    user: str  # the account at the site
    channel: Channel
    client: Client  # with the token of the trial's own user
    tokens: Any  # the server's answer
    doors: AddressSource
    tell: Tell
    patience: float  # seconds until the pilot must have started; 0: no limit


class Attempt:
    """A try with one `reach`."""

    def __init__(self, site: Site, setting: TrialSetting) -> None:
        self.site, self._user, self._channel, self._client = site, setting.user, setting.channel, setting.client
        self._tokens, self._tell, self._patience = setting.tokens, setting.tell, setting.patience
        self.nonce = f"t{os.urandom(4).hex()}-1"
        self._speaks = dialect(site.dialect)
        self._place = f"{site.folder}/trial-{self.nonce}"
        self._folder = self._digest = ""
        self._reach = Reach(site, setting.channel, setting.doors)
        self._routes: list[Route] = []
        self._bag = 0
        self._equipped = self._sent = self._answered = False
        self._trying = 0.0  # since when the job's log has named a cause
        self._began = 0.0  # when a listing first showed the job running

    # --- the folder ----------------------------------------------------------------------------------------------

    async def equip(self) -> str:
        """Put the pilot's file and its ticket into a folder that the nodes see."""
        self._equipped = True
        try:
            for folder in (self.site.folder, self._place):
                answer = await self._channel.say(prepare(folder))
                if answer.exit:
                    raise SiteError(text.plain(answer.err) or "the folder cannot be made")
                self._folder = answer.out.strip().rpartition("\n")[2]
            body = await asyncio.to_thread(_bundle)
            self._digest = hashlib.sha256(body).hexdigest()
            await self._channel.put(f"{self._folder}/{PILOT}", body, 0o600)
        except SiteError as error:
            raise _unwritable(self.site.folder, error) from None
        found = await self._reach.routes(f"{self._folder}/{PILOT}", f"{self._folder}/relay", self._write)
        ways = ", ".join(dict.fromkeys(route["kind"] for route in found.routes)) or "a socket of this machine"
        return f"{self.site.folder} can be written; pilots will reach the server by {ways}"

    async def _write(self, found: Routes) -> None:
        self._routes = found.routes
        ticket = {**found._asdict(), "token": self._tokens["enrol"], "site": self._tokens["site"]}
        await self._channel.put(f"{self._folder}/{TICKET}", json.dumps(ticket).encode(), 0o600)

    # --- the job -------------------------------------------------------------------------------------------------

    async def submit(self) -> str:
        self._bag = await asyncio.to_thread(self._client.submit, reader.parse(TASK).bag)
        self._sent = True
        job = self._job()
        try:
            id = self._speaks.submitted(await self._channel.say(self._speaks.submit(job)))
        except SiteRefused:
            self._sent = False
            raise
        self._answered = True
        return f"job {id}, {_shown(job.shape)}"

    def _job(self) -> Job:
        """Return a job like any other of the site, but short, and with a pilot that writes a log."""
        first = self.site.shapes[0]
        shape = first._replace(walltime=min(first.walltime, self.site.grace + WALL_S), least=0)
        job = Equipped(self._user, self._folder, PILOT, TICKET, self._digest).job(self.site, self.nonce, shape, 1)
        words = [word for word in job.command if word != "--quiet"]
        return replace(job, command=(*words, "--idle", str(IDLE_S)))

    async def start(self) -> str:
        """Wait until the batch system lists the job as running or no more, or its pilot has enrolled."""
        begun, pause, reason = time.monotonic(), FIRST_S, ""
        while True:
            job = await self._listed()
            if await self._pilot() or job is None or job.state in (RUNNING, ENDED):
                self._began = time.monotonic()
                return f"after {units.format_duration(int((self._began - begun) * 1000))} in the queue"
            _check_startable(job)
            state = f"{job.state}: {job.reason}" if job.reason else job.state
            if state != reason:
                self._tell(Step("start", None, f"{state} (Ctrl-C cancels it)", "", time.monotonic() - begun))
                reason = state
            if self._patience and time.monotonic() - begun > self._patience:
                raise SiteError(f"the job has not started within {self._patience:g} s; the batch system says: {state}",
                                "the site is busy: wait longer (--timeout), or ask for a smaller or shorter pilot")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_S)

    async def _listed(self) -> Listed | None:
        jobs = await listing(self.site, self._user, self._channel)
        return next((job for job in jobs if job.nonce == self.nonce), None)

    async def _pilot(self) -> Any:
        pilots = await asyncio.to_thread(self._client.pilots)
        return next((pilot for pilot in pilots if pilot["nonce"] == self.nonce), None)

    async def wait_for_pilot(self) -> str:
        """Wait until the pilot has enrolled; if it does not, find the cause in the job's log."""
        pause = FIRST_S
        while True:
            job, log = await self._listed(), await self._log()
            pilot = await self._pilot()  # last, so that state and log of the job are older than this answer
            if pilot is not None:
                return f"on {text.plain(pilot['host'], 80)}, {_cores(pilot['cores'])}; it reaches the server"
            self._check_log(log, job)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_S)

    def _check_log(self, log: str, job: Listed | None) -> None:
        """Raise the cause that the job's log tells, unless the pilot still tries; raise if the pilot takes too long."""
        ended, now = job is None or job.state == ENDED, time.monotonic()
        cause = job_log.cause(log)
        self._trying = (self._trying or now) if cause is not None else 0.0
        if cause is not None and (cause.sure or ended or now - self._trying > TRYING_S):
            raise (Unreached if cause.kind in ("route", "trust") else SiteError)(cause.says, cause.cure)
        if ended or now - self._began > COME_S:
            raise _silent(ended, log, job)

    async def _log(self) -> str:
        """Return the job's log.  Batch systems name it differently, but always with the nonce in it; skip scripts."""
        lines = (f'for file in {quote(self._folder)}/*{self.nonce}* {self._elsewhere()}; do',
                 '    [ -d "$file" ] && file=$file/log',
                 '    case $file in *.sh|*.sub) continue ;; esac',
                 '    [ -f "$file" ] && tail -c 20000 "$file"',
                 "done", "exit 0")
        return (await self._channel.say(text.shell(*lines))).out

    def _elsewhere(self) -> str:
        """Return patterns of further places where some batch systems put a job's log."""
        where = (f"{quote(self.site.folder)}/wf", '"$HOME"/wf', '"$HOME"/.windfall/jobs/*/')
        return " ".join(f"{each}{self.nonce}*" for each in where)

    async def run_task(self) -> str:
        begun = time.monotonic()
        while time.monotonic() - begun < COME_S:
            counts = (await asyncio.to_thread(self._client.bag, self._bag))["counts"]
            if counts["succeeded"] or counts["failed"]:
                row: Any = (await asyncio.to_thread(lambda: list(self._client.results(self._bag))))[0]
                if counts["failed"]:
                    raise SiteError(f"the task failed on the node: {text.plain(row)}",
                                    "does `hostname` work on a node?")
                return f"`hostname` ran on {text.plain(row['host'], 80)}, and the server has its result"
            await asyncio.sleep(FIRST_S)
        raise SiteError(f"the pilot enrolled, but its task has not ended within {COME_S:.0f} s",
                        f"the pilot's log says: {job_log.last(await self._log()) or 'nothing'}")

    async def route_used(self) -> str:
        """Return the kind of route by which the pilot enrolled; "" if its log is not visible before the job's end."""
        found = re.search(r"windfall-pilot: enrolled at (?:the spool )?(\S+) with", await self._log())
        where = found[1] if found else ""
        return next((route["kind"] for route in self._routes if route["address"].removeprefix("https://") == where), "")

    # --- afterwards ----------------------------------------------------------------------------------------------

    async def end_job(self) -> None:
        if not self._sent:
            return
        now, pause = time.monotonic(), FIRST_S
        landed, until = now + (0 if self._answered else LANDING_S), now + GONE_S
        while True:
            job = await self._listed()
            gone = job is None or job.state == ENDED
            if gone and time.monotonic() >= landed:
                return
            if job is not None and not gone:
                for command in self._speaks.cancel([job.id]):
                    self._speaks.cancelled(await self._channel.say(command))
                if time.monotonic() > until:
                    raise SiteError(f"job {job.id} does not end")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_S)

    async def close_routes(self) -> None:
        await self._reach.close()

    async def remove_files(self) -> None:
        if self._equipped:
            folder, place = quote(self.site.folder), quote(self._place)
            parents = "" if folder.startswith("/") else "-p"
            answer = await self._channel.say(text.shell(
                f"rm -rf {place} {self._elsewhere()}",
                f"find {folder} -maxdepth 1 -name 'trial-t*' -mtime +1 -exec rm -rf '{{}}' + 2>/dev/null",
                f"rmdir {parents} {folder} 2>/dev/null", f"[ ! -e {place} ]"))
            if answer.exit:
                raise SiteError(f"{self._place} cannot be removed: {text.plain(answer.err)}")

    async def forget_bag(self) -> None:
        if self._bag:
            await asyncio.to_thread(self._client.cancel, self._bag)
            await asyncio.to_thread(self._client.remove, self._bag)


def _check_startable(job: Listed) -> None:
    for pattern, cure in _NEVER:
        if re.search(pattern, job.reason.lower()) and job.state in (QUEUED, HELD):
            raise SiteRefused(f"the job will never start: {job.reason}", cure)
    if job.state == HELD:
        raise SiteRefused(f"the batch system holds the job: {job.reason or 'it gives no reason'}",
                          "ask the site's support if the reason does not tell you what to do")


def _bundle() -> bytes:
    from windfall.pilot import bundle

    with tempfile.TemporaryDirectory() as folder:
        return Path(bundle.build(folder)[0]).read_bytes()


def _unwritable(folder: str, error: SiteError) -> SiteError:
    if re.search("quota exceeded|no space left|disc quota", error.message.lower()):
        return SiteError(f"there is no room in {folder} at the site: {error.message}",
                         "make room there (quota -s and du show what takes it), or name another folder in its file")
    return SiteError(f"{folder} at the site cannot be used: {error.message}", "name another folder in the site's file")


def _silent(ended: bool, log: str, job: Listed | None) -> SiteError:
    lines = job_log.last(log)
    how = f" ({job.reason})" if job is not None and job.reason else ""
    if not lines:
        return SiteError(f"the job {'ended' + how if ended else 'runs'}, but no pilot enrolled and its log is empty",
                         "does the folder exist on the nodes?  A job that cannot write its log fails without a message")
    return SiteError(f"the job {'ended' + how if ended else 'runs'}, but no pilot enrolled; its log ends so:\n{lines}",
                     "correct what the log names: set-up lines, python and folder are in the site's file")


def _cores(count: int) -> str:
    return f"{count} core{'s' * (count > 1)}"


def _shown(shape: Shape) -> str:
    return f"{_cores(shape.cores)} for {units.format_duration(shape.walltime * 1000)}"
