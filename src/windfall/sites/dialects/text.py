"""Reading what a batch system prints.  It is hostile: bounded, tolerant of lines it does not know, never evaluated.

A listing that failed is an error, never an empty listing: an empty one says that all pilots are gone.  So is one that
is too long: cut off, it would say so of those behind the cut.
"""

from __future__ import annotations

import json
import re
import xml.parsers.expat
from calendar import timegm
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from shlex import quote
from typing import Any

from windfall.errors import BadInput, SiteError, SiteRefused, SiteUnreachable
from windfall.sites.dialects.job import Answer, Command, Listed

MAX_JOBS = 200_000  # of one user, array members included
MAX_REASON = 200
MAX_FIELD = 1 << 16  # characters, of what is not for people
CHUNK = 500  # ids in one command

_SPACE = re.compile(r"\s+")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


# --- values ----------------------------------------------------------------------------------------------------


def plain(text: object, most: int = MAX_REASON) -> str:
    """One line that can be shown to a person."""
    line = _SPACE.sub(" ", _CONTROL.sub(" ", str(text)[: most * 8])).strip()
    return line if len(line) <= most else line[: most - 1] + "…"


def whole(text: object) -> int | None:
    """A number from 0 on; anything else is nothing."""
    word = str(text).strip() if isinstance(text, (str, int)) else ""
    return int(word) if 0 < len(word) < 19 and word.isascii() and word.isdigit() else None


def when(text: str, *formats: str) -> int | None:
    """UTC → seconds since 1970; what cannot be read is nothing."""
    for form in formats:
        try:
            return timegm(datetime.strptime(_SPACE.sub(" ", text.strip()[:40]), form).timetuple())
        except ValueError:
            continue
    return None


def lines(text: str) -> Iterator[str]:
    """One at a time: there may be as many as the channel takes bytes."""
    at = 0
    while at < len(text):
        end = text.find("\n", at) % (len(text) + 1)  # there need not be one at the end
        if not (line := text[at:end]).isspace() and line:
            yield line
        at = end + 1


def jobs(found: Iterable[Listed | None]) -> list[Listed]:
    """All of a listing."""
    every = list(islice((job for job in found if job is not None), MAX_JOBS + 1))
    if len(every) > MAX_JOBS:
        raise _too_many()
    return every


def _too_many() -> SiteError:
    return SiteError(f"the site lists more than {MAX_JOBS} jobs", "this many cannot be listed at once")


# --- structured text -------------------------------------------------------------------------------------------


def from_json(text: str) -> Any:
    """What is no JSON is an error: half a listing says that the other half is gone."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SiteUnreachable(f"the site's answer cannot be read: {plain(text, 60)!r}") from None


def from_xml(text: str, root: str, each: str) -> list[dict[str, str]]:
    """The elements called `each`, with the text of their children.  Entities and document types are refused."""
    reader = _Xml(root, each)
    try:
        reader.parser.Parse(text.encode("utf-8", "replace"), True)
    except (xml.parsers.expat.ExpatError, ValueError):
        raise SiteUnreachable(f"the site's answer cannot be read: {plain(text, 60)!r}") from None
    return reader.found


class _Xml:
    def __init__(self, root: str, each: str):
        self.root, self.each, self.found = root, each, list[dict[str, str]]()
        self.inside: dict[str, str] | None = None
        self.attributes: dict[str, str] = {}
        self.name = ""
        self.parser = parser = xml.parsers.expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._data
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse

    def _refuse(self, *_: object) -> None:
        raise ValueError("a document type")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self.root not in ("", name):
            raise ValueError("something else")
        self.root = ""  # only the first is looked at
        if name == self.each and self.inside is None:
            self.inside = {f"@{key}": value for key, value in attributes.items()}
        self.name = name

    def _data(self, data: str) -> None:
        if self.inside is not None and self.name and len(self.inside) < 100:
            self.inside[self.name] = (self.inside.get(self.name, "") + data)[:MAX_FIELD]

    def _end(self, name: str) -> None:
        self.name = ""
        if name == self.each and self.inside is not None:
            if len(self.found) == MAX_JOBS:
                raise _too_many()
            self.found.append(self.inside)
            self.inside = None


# --- refusals --------------------------------------------------------------------------------------------------

LIMIT, BUSY, ACCOUNT, QUEUE, SHAPE, DENIED, DISK, MISSING, ARRAY, OTHER = (
    "limit", "busy", "account", "queue", "shape", "denied", "disk", "missing", "array", "other",
)  # fmt: skip
"""Why a batch system says no.

    limit     as many jobs as the site allows: back-pressure, not a failure; later there is room again
    busy      its server did not answer; the job may have been taken all the same, a listing will tell
    array     this many at once is too many, or it knows no arrays: fewer at a time
    the rest  will be refused again until somebody changes something
"""

CURES = {
    LIMIT: "nothing to do: more pilots follow as others end",
    BUSY: "nothing to do if it passes; else ask whether the batch system is down",
    ACCOUNT: "check the site's account: ask the site which ones you may charge",
    QUEUE: "check the site's partition or queue",
    SHAPE: "ask for fewer cores, less memory or a shorter wall time, or for another partition",
    DENIED: "the site does not let this user submit there: check account, partition and host",
    DISK: "the home directory is full: make room there",
    MISSING: "its commands are not found on that host: is that the login node (host in the site's file), and is it "
             "that batch system (dialect)?",
    ARRAY: "submit fewer pilots at a time",
    OTHER: "the site's own message says more; if those are another batch system's commands, the dialect in the site's "
           "file is wrong",
}

Table = tuple[tuple[str, str], ...]  # pattern in lower case, kind; the first that is found counts

COMMON: Table = (
    (r"quota exceeded|no space left on device|disc quota", DISK),
    (r"command not found|no such file or directory.*(?:sbatch|qsub|bsub|condor)|: not found$", MISSING),
    (r"connection refused|connection timed out|timed out|unable to contact|cannot connect|unreachable", BUSY),
    (r"permission denied|not authori[sz]ed|access denied", DENIED),
)


def refusal(answer: Answer, table: Table, doing: str) -> SiteRefused | SiteUnreachable:
    """What a failed command means.  Unsure is what may have been done all the same: a refusal must be one."""
    said = plain(answer.err[-4000:] + " " + answer.out[-4000:], 4000)
    low = said.lower()
    found = [kind for pattern, kind in (*table, *COMMON) if re.search(pattern, low)]
    kind = BUSY if BUSY in found else found[0] if found else OTHER  # a warning may stand beside the true cause
    if kind == OTHER and answer.exit == 127:
        kind = MISSING
    message = f"{doing}: {plain(said) or f'exit {answer.exit} without a word'}"
    if kind == BUSY:
        return SiteUnreachable(message, CURES[BUSY])
    if answer.exit == 0 or _killed(answer.exit):
        return SiteUnreachable(f"{message} (exit {answer.exit}: it may have been done)", CURES[kind])
    return SiteRefused(message, CURES[kind], kind=kind)


def _killed(code: int) -> bool:
    """By a signal, as a process or its shell tells it.  PBS's own errors end with 153 or more."""
    return code < 0 or 128 < code <= 128 + 24


# --- commands --------------------------------------------------------------------------------------------------


def chunks(ids: Iterable[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, ...]]:
    """Ids for one command each; one that is no id of this batch system would be an option, or worse."""
    every = tuple(ids)
    for each in every:
        if not pattern.fullmatch(each):
            raise BadInput(f"{plain(each, 40)!r} is no job of this batch system")
    for at in range(0, len(every), CHUNK):
        yield every[at : at + CHUNK]


def login(user: str) -> str:
    """A user's name, if it is one."""
    if not _USER.fullmatch(user):
        raise BadInput(f"{plain(user, 40)!r} is not the name of a user")
    return user


def shell(*parts: str) -> Command:
    """A script for the site's plain shell."""
    return Command(("/bin/sh",), "\n".join(parts) + "\n")


def words(argv: Iterable[str]) -> str:
    return " ".join(quote(word) for word in argv)


def document(path: str, content: str) -> str:
    """Shell lines that write a file that only its owner reads."""
    end = "WINDFALL"
    while end in content:
        end += "_"
    return f"(umask 077; cat >{quote(path)} <<'{end}'\n{content}{end}\n) || exit 73"
