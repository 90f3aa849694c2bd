"""The files that a pilot needs at a site: a folder, the pilot's file, its ticket.  The tender puts them there first.

The pilot's file is named by its hash, which every job checks, so that a job never runs another file.  Only its owner
can read the ticket, and with its token pilots of this site can enrol, and nothing else.  The token is never part of a
command line.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from windfall.errors import SiteError
from windfall.provision.routes import Reach, Routes
from windfall.provision.server_link import ServerLink
from windfall.sites.channels.channel import Channel
from windfall.sites.dialects.job import Job, Shape
from windfall.sites.dialects.script import prepare
from windfall.sites.dialects.table import dialect
from windfall.sites.dialects.text import plain, shell
from windfall.sites.site_file import Site, shown

WAITING = 21  # days that a ticket still lasts for the longest pilot, if nobody renews it; a job may wait in a queue
LONGEST = 365  # days that a ticket lasts at most
OUTBOX = "outbox"  # folder for results that pilots could not deliver; a salvage sends them
RENEWED = 7  # days after which the tender makes a new token and writes it into the same file, where queued jobs read it
KEPT = 14  # days that job logs are kept; old pilots' files are kept for OLD, since a queued job may still need one
OLD = 90  # days
_SWEEP = (f"find . -maxdepth 1 -type f '(' '(' -name 'wf*.log' -o -name 'wf*.[op]*[0-9]' ')' -mtime +{KEPT} "
          f"-o -name 'pilot-*.pyz' -mtime +{OLD} ')' -exec rm -f '{{}}' +; true")


class Equipped(NamedTuple):
    user: str  # the account at the site
    folder: str  # absolute
    pilot: str  # names in the folder
    ticket: str
    digest: str = ""  # SHA-256 of the pilot's file; every job checks it

    def job(self, site: Site, nonce: str, shape: Shape, count: int) -> Job:
        """Return the job that runs pilots.  Their wall time ends before the grace, in which the batch system signals
        the end."""
        command = [site.python, self.pilot, "--ticket", self.ticket, "--cores", str(shape.cores),
                   "--walltime", str(max(shape.walltime - site.grace, 1)), "--outbox", OUTBOX, "--quiet"]
        command += ["--memory", str(shape.memory)] if shape.memory else []
        job = site.job(nonce, shape, tuple(command), count)
        return Job(**{**vars(job), "folder": self.folder, "files": (self.pilot, self.ticket), "digest": self.digest})

    def salvage(self, site: Site, nonces: Iterable[str]) -> tuple[str, ...]:
        """Return the command that sends the results of these pilots from the outbox to the server."""
        named = [word for nonce in nonces for word in ("--nonce", nonce)]
        return site.head_node_command((site.python, f"{self.folder}/{self.pilot}", "salvage", "--ticket",
                            f"{self.folder}/{self.ticket}", "--outbox", f"{self.folder}/{OUTBOX}", *named))


def example(site: Site, digest: str) -> str:
    """Return the submission for the preferred shape as text, for a person to read.  `digest`: of the pilot's file."""
    there = Equipped("", site.folder, name_of(digest), f"{site.name}-example.ticket", digest)
    return shown(dialect(site.dialect).submit(there.job(site, "example-1", site.shapes[0], 1)))


async def equip(site: Site, channel: Channel, line: ServerLink, kept: Path, reach: Reach) -> Equipped:
    """Put folder, pilot's file and ticket at a site.  `kept`: the file that keeps the token between runs."""
    user, folder = await _folder(site, channel)
    body = await line.pilot()
    digest = hashlib.sha256(body).hexdigest()
    pilot = name_of(digest)
    await _put_once(channel, f"{folder}/{pilot}", body)
    known = await _token(site, line, kept)
    name = f"{site.name}-{known['id']}.ticket"

    async def write(found: Routes) -> None:
        ticket = {**found._asdict(), "token": known["token"], "site": site.name}
        await channel.put(f"{folder}/{name}", json.dumps(ticket).encode(), 0o600)

    await reach.routes(f"{folder}/{pilot}", f"{folder}/relay-{known['id']}", write)
    return Equipped(user, folder, pilot, name, digest)


def name_of(digest: str) -> str:
    """Return the name of the pilot's file."""
    return f"pilot-{digest[:24]}.pyz"


async def _folder(site: Site, channel: Channel) -> tuple[str, str]:
    """Make the site's folder and sweep old files out of it; return the account and the folder's absolute path.  Without
    the folder, a job cannot write its log and fails without a message."""
    answer = await channel.say(prepare(site.folder, f"{_SWEEP}; id -un || exit"))
    lines = answer.out.split("\n")
    if answer.exit or len(lines) < 2 or not lines[1].startswith("/"):
        raise SiteError(f"the folder {site.folder} cannot be made at {site.name}: {plain(answer.err or answer.out)}",
                        "make room there, or name another folder in the site's file: one that is yours alone")
    return lines[0].strip(), lines[1].strip()


async def _put_once(channel: Channel, path: str, body: bytes) -> None:
    """Send a file to the site, unless a complete one of the same user lies there already."""
    script = f'[ -n "$(find {quote(path)} -prune -type f -user "$(id -u)" -size {len(body)}c)" ] && touch {quote(path)}'
    if (await channel.say(shell(script))).exit:
        await channel.put(path, body, 0o600)


def ticket_days(site: Site) -> int:
    """Return how many days a ticket lasts: a pilot that starts just before its renewal may enrol again to its end."""
    longest = max(shape.walltime for shape in site.shapes)
    return min(RENEWED + WAITING - (-longest // 86_400), LONGEST)


async def _token(site: Site, line: ServerLink, kept: Path) -> dict[str, Any]:
    known = _read(kept)
    old = time.time() - float(known.get("made", 0)) > RENEWED * 86_400
    if old or not await line.knows(str(known.get("name"))):
        name, token = await line.enrolment(site.name, ticket_days(site))
        known = {"name": name, "token": token, "made": int(time.time()), "id": known.get("id") or os.urandom(4).hex()}
        _write(kept, known)
    return known


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes()) if not path.stat().st_mode & 0o077 else None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("token"), str) and "id" in found else {}


def _write(path: Path, known: dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump(known, file)
    fresh.rename(path)
