"""A trial of a site: one real pilot, by the same commands as any other, that runs one real task.

Rules
  * Every step says what it found; the first that fails says why, and what to do, and ends the trial.
  * It is a user of its own at the server: its pilot takes no task but the trial's, and nobody else takes that one.
  * Its job counts against none of the site's limits: it is one, short, and asked for by name.
  * Whatever happens, afterwards there is no job, no file and no token of it, or it says what it could not remove.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from ..client.client import Client
from ..client.profile import Profile
from ..errors import BadInput, SiteError, SiteRefused, WindfallError
from ..model import bagfile, units
from ..sites import text
from ..sites.channel import Channel
from ..sites.config import Site
from ..sites.dialects import dialect
from ..sites.job import ENDED, HELD, QUEUED, RUNNING, Job, Listed, Shape
from ..sites.script import prepare
from . import lastwords
from .equipment import Equipped

WALL_S = 600  # of the trial's job, beside the grace
IDLE_S = 120  # it leaves by itself after this, should we be killed
COME_S = 90.0  # from the start of a job until its pilot must have come
TRYING_S = 20.0  # for which a pilot may say that it does not find the server
FIRST_S, LONGEST_S = 0.5, 15.0  # between two looks
GONE_S = 90.0  # for a cancelled job to go
LANDING_S = 10.0  # after which a submission that was not answered is listed, or never will be
PILOT, TICKET = "pilot.pyz", "ticket.json"
TASK = '[bag]\nname = "trial"\ncommand = "hostname"\n[task]\nretries = 0\ntime = "1min"\n'

_NEVER: tuple[tuple[str, str, str], ...] = (  # reasons of a queued job that waiting does not mend
    (r"invalidaccount|accountnotallowed", "the account is not valid there", text.CURES[text.ACCOUNT]),
    (r"invalidqos|qosnotallowed", "the quality of service is not valid there", text.CURES[text.ACCOUNT]),
    (r"partitiontimelimit", "the wall time is longer than the partition allows", text.CURES[text.SHAPE]),
    (r"partitionnodelimit|badconstraints|nodes required for job are down|partitionconfig",
     "no node there is what is asked for", text.CURES[text.SHAPE]),
    (r"partition(?:down|inactive)", "the partition starts nothing now", text.CURES[text.QUEUE]),
)


class Step(NamedTuple):
    name: str
    ok: bool | None  # nothing: it goes on
    says: str
    hint: str = ""
    seconds: float = 0.0


Tell = Callable[[Step], None]


class Trial:
    def __init__(self, site: Site, channel: Channel, client: Client, tell: Tell, patience: float = 0.0) -> None:
        """`patience`: seconds until the pilot must have started; 0: any."""
        self.site, self._channel, self._client, self._tell, self._patience = site, channel, client, tell, patience
        self.nonce = f"t{os.urandom(4).hex()}-1"
        self._speaks = dialect(site.dialect)
        self._place = f"{site.folder}/trial-{self.nonce}"
        self._user = self._folder = ""
        self._mine: Client | None = None  # as the trial's own user
        self._made: Any = {}
        self._bag = 0
        self._equipped = self._sent = self._answered = False
        self._began = 0.0  # when the job was seen to run

    async def run(self) -> bool:
        try:
            return await self._steps()
        finally:
            await self._clean()

    async def _steps(self) -> bool:
        for name, step in (("reach", self._reach), ("commands", self._commands), ("server", self._enter),
                           ("folder", self._equip), ("submit", self._submit), ("start", self._start),
                           ("pilot", self._come), ("task", self._run_task)):
            if not await self._take(name, step):
                return False
        return True

    async def _take(self, name: str, step: Callable[[], Awaitable[str]]) -> bool:
        begun = time.monotonic()
        try:
            says = await step()
        except WindfallError as error:
            self._tell(Step(name, False, error.message, error.hint, time.monotonic() - begun))
            return False
        self._tell(Step(name, True, says, "", time.monotonic() - begun))
        return True

    # --- before anything is submitted ---------------------------------------------------------------------------

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
        from ..sites import keys

        why, cure = keys.excuse(self.site.host, self.site.user, self.site.port)
        return SiteRefused(f"{error.message}; {why}" if why else error.message, cure or error.hint, kind="login")

    async def _commands(self) -> str:
        jobs = await self._list()
        system = "processes" if self.site.dialect in ("ssh", "local") else self.site.dialect
        return f"{system} can be listed; you have {len([job for job in jobs if job.state != ENDED])} jobs there"

    async def _list(self) -> list[Listed]:
        return self._speaks.listed(await self._channel.say(self._speaks.listing(self._user)))

    async def _enter(self) -> str:
        profile = self._client.profile
        if profile.server.startswith("unix:") and self.site.host:
            raise BadInput("the server listens on a Unix socket of this machine only, and the site is elsewhere",
                           "windfall serve --listen 0.0.0.0:8765 --name HOST, by a name that the site's nodes know")
        self._made = await asyncio.to_thread(self._client.try_site, self.site.name)
        self._mine = Client(Profile(profile.server, self._made["token"], profile.certificate))
        return f"{profile.server} lets a trial in"

    async def _equip(self) -> str:
        """The pilot and its ticket, where the nodes will look for them."""
        profile = self._client.profile
        ticket = {"server": profile.server, "certificate": profile.certificate, "token": self._made["enrol"],
                  "site": self._made["site"]}
        self._equipped = True
        try:
            answer = await self._channel.say(prepare(self._place))
            if answer.exit:
                raise SiteError(text.plain(answer.err) or "no folder can be made")
            self._folder = answer.out.strip().rpartition("\n")[2]
            await self._channel.put(f"{self._folder}/{PILOT}", await asyncio.to_thread(_bundle), 0o600)
            await self._channel.put(f"{self._folder}/{TICKET}", json.dumps(ticket).encode(), 0o600)
        except SiteError as error:
            raise _unwritable(self.site.folder, error) from None
        return f"{self.site.folder} can be written"

    # --- the job -------------------------------------------------------------------------------------------------

    async def _submit(self) -> str:
        self._bag = await asyncio.to_thread(self._trial.submit, bagfile.parse(TASK).bag)
        self._sent = True
        job = self._described()
        try:
            id = self._speaks.submitted(await self._channel.say(self._speaks.submit(job)))
        except SiteRefused:
            self._sent = False
            raise
        self._answered = True
        return f"job {id}, {_shown(job.shape)}"

    @property
    def _trial(self) -> Client:
        assert self._mine is not None
        return self._mine

    def _shape(self) -> Shape:
        first = self.site.shapes[0]
        return first._replace(walltime=min(first.walltime, self.site.grace + WALL_S))

    def _described(self) -> Job:
        """As any other of the site, but talkative."""
        job = Equipped(self._user, self._folder, PILOT, TICKET).job(self.site, self.nonce, self._shape(), 1)
        words = [word for word in job.command if word != "--quiet"]
        return replace(job, command=(*words, "--idle", str(IDLE_S)))

    async def _start(self) -> str:
        """Until the batch system says that it runs, or its pilot has come, or it is gone again."""
        begun, pause, reason = time.monotonic(), FIRST_S, ""
        while True:
            job = await self._job()
            if await self._pilot() or job is None or job.state in (RUNNING, ENDED):
                self._began = time.monotonic()
                return f"after {units.format_duration(int((self._began - begun) * 1000))} in the queue"
            self._hopeless(job)
            said = f"{job.state}: {job.reason}" if job.reason else job.state
            if said != reason:
                self._tell(Step("start", None, f"{said} (Ctrl-C cancels it)", "", time.monotonic() - begun))
                reason = said
            if self._patience and time.monotonic() - begun > self._patience:
                raise SiteError(f"it has not started within {self._patience:g} s; the batch system says: {said}",
                                "the site is busy: wait longer (--timeout), or ask for a smaller or shorter pilot")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_S)

    def _hopeless(self, job: Listed) -> None:
        for pattern, says, cure in _NEVER:
            if re.search(pattern, job.reason.lower()) and job.state in (QUEUED, HELD):
                raise SiteRefused(f"it will never start: {says} ({job.reason})", cure)
        if job.state == HELD:
            raise SiteRefused(f"the batch system holds the job: {job.reason or 'it does not say why'}",
                              "its reason, or the site's people, say more")

    async def _job(self) -> Listed | None:
        found = [job for job in await self._list() if job.nonce == self.nonce]
        return found[0] if found else None

    async def _pilot(self) -> Any:
        pilots = await asyncio.to_thread(self._trial.pilots)
        return next((pilot for pilot in pilots if pilot["nonce"] == self.nonce), None)

    async def _come(self) -> str:
        """The pilot finds Python and the way to the server; if not, the job's log says what is missing."""
        pause, trying = FIRST_S, 0.0
        while True:
            job, log = await self._job(), await self._log()
            pilot = await self._pilot()  # asked last: what the job and its log say is older
            if pilot is not None:
                return f"on {text.plain(pilot['host'], 80)}, {pilot['cores']} cores; it reaches the server"
            ended, now = job is None or job.state == ENDED, time.monotonic()
            cause = lastwords.cause(log)
            trying = (trying or now) if cause is not None else 0.0
            if cause is not None and (cause.sure or ended or now - trying > TRYING_S):
                raise SiteError(cause.says, cause.cure)
            if ended or now - self._began > COME_S:
                raise _silent(ended, log, job)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_S)

    async def _log(self) -> str:
        """Whatever the batch system calls it, its name has the nonce in it; scripts are no logs."""
        nonce = quote(self.nonce)
        answer = await self._channel.say(text.shell(
            f'for file in {quote(self._folder)}/*{nonce}* "$HOME"/.windfall/jobs/*/{nonce}/log; do',
            '    case $file in *.sh|*.sub) continue ;; esac',
            '    [ -f "$file" ] && tail -c 20000 "$file"',
            "done", "exit 0"))
        return answer.out

    async def _run_task(self) -> str:
        begun = time.monotonic()
        while time.monotonic() - begun < COME_S:
            bag = await asyncio.to_thread(self._trial.bag, self._bag)
            if bag["counts"].get("succeeded"):
                rows = await asyncio.to_thread(lambda: list(self._trial.results(self._bag)))
                return f"`hostname` ran on {text.plain(rows[0]['host'], 80)}; its result is here"
            if bag["counts"].get("failed"):
                rows = await asyncio.to_thread(lambda: list(self._trial.results(self._bag)))
                raise SiteError(f"the task failed there: {text.plain(rows[0])}", "does `hostname` work on a node?")
            await asyncio.sleep(FIRST_S)
        raise SiteError("the pilot came, but its task has not ended within a minute and a half",
                        f"its log says: {lastwords.last(await self._log()) or 'nothing'}")

    # --- afterwards ----------------------------------------------------------------------------------------------

    async def _clean(self) -> None:
        """Also when interrupted; each part whatever became of the one before."""
        begun = time.monotonic()
        parts = (self._end_job, self._remove_files, self._leave_server)
        left = [said for part in parts if (said := await _tried(part))]
        took = time.monotonic() - begun
        if left:
            self._tell(Step("clean", False, "; ".join(left), f"look for {self.nonce} at the site", took))
        elif self._made:
            self._tell(Step("clean", True, "no job, file or token of the trial is left", "", took))

    async def _end_job(self) -> None:
        if not self._sent:
            return
        now, pause = time.monotonic(), FIRST_S
        landed, until = now + (0 if self._answered else LANDING_S), now + GONE_S
        while True:
            jobs = [job for job in await self._list() if job.nonce == self.nonce and job.state != ENDED]
            if not jobs and time.monotonic() >= landed:
                break
            for command in self._speaks.cancel(job.id for job in jobs):
                self._speaks.cancelled(await self._channel.say(command))
            if jobs and time.monotonic() > until:
                raise SiteError(f"job {jobs[0].id} does not end")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_S)

    async def _remove_files(self) -> None:
        if self._equipped:
            folder, place, nonce = quote(self.site.folder), quote(self._place), quote(self.nonce)
            parents = "" if folder.startswith("/") else "-p"
            answer = await self._channel.say(text.shell(
                f'rm -rf {place} "$HOME"/.windfall/jobs/*/{nonce}',
                f"rmdir {parents} {folder} 2>/dev/null", f"[ ! -e {place} ]"))
            if answer.exit:
                raise SiteError(f"{self._place} cannot be removed: {text.plain(answer.err)}")

    async def _leave_server(self) -> None:
        if self._mine is not None:
            try:
                await asyncio.to_thread(_leave, self._mine, self._bag)
            finally:
                self._mine.close()


def _leave(client: Client, bag: int) -> None:
    """The last token to go is the one that does it."""
    if bag:
        client.cancel(bag)
        client.remove(bag)
    tokens = client.tokens()
    for token in sorted(tokens, key=lambda each: each["scope"] == "user"):
        client.remove_token(token["id"])


async def _tried(part: Callable[[], Awaitable[None]]) -> str:
    try:
        await part()
    except WindfallError as error:
        return str(error.message)
    return ""


def _bundle() -> bytes:
    from ..pilot import bundle

    with tempfile.TemporaryDirectory() as folder:
        return Path(bundle.build(folder)[0]).read_bytes()


def _unwritable(folder: str, error: SiteError) -> SiteError:
    if re.search("quota exceeded|no space left|disc quota", error.message.lower()):
        return SiteError(f"there is no room in {folder} at the site: {error.message}",
                         "make room there (quota -s and du say what takes it), or name another folder in its file")
    return SiteError(f"{folder} at the site cannot be used: {error.message}", "name another folder in the site's file")


def _silent(ended: bool, log: str, job: Listed | None) -> SiteError:
    said = lastwords.last(log)
    how = f" ({job.reason})" if job is not None and job.reason else ""
    if not said:
        return SiteError(f"the job {'ended' + how if ended else 'runs'}, but no pilot came and its log is empty",
                         "does the folder exist on the nodes?  A job whose log cannot be written fails without a word")
    return SiteError(f"the job {'ended' + how if ended else 'runs'}, but no pilot came; its log ends so:\n{said}",
                     "mend what it says: set-up lines, python and folder are in the site's file")


def _shown(shape: Shape) -> str:
    return f"{shape.cores} core{'s' * (shape.cores > 1)} for {units.format_duration(shape.walltime * 1000)}"
