"""Parsing of batch systems' output, which may be hostile: bounded, tolerant of unknown lines, never evaluated.

A failed listing is an error, never an empty listing: an empty one means that all pilots are gone.  A listing that is
too long is an error, too: cut off, it would mean that the pilots behind the cut are gone.
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
MAX_FIELD = 1 << 16  # characters of a field that no person reads
CHUNK = 500  # ids in one command

_SPACE = re.compile(r"\s+")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


# --- values ----------------------------------------------------------------------------------------------------


def plain(text: object, most: int = MAX_REASON) -> str:
    """Return the text as one line that can be shown to a person."""
    line = _SPACE.sub(" ", _CONTROL.sub(" ", str(text)[: most * 8])).strip()
    return line if len(line) <= most else line[: most - 1] + "…"


def whole(text: object) -> int | None:
    """Parse a number from 0 on; return None for anything else."""
    word = str(text).strip() if isinstance(text, (str, int)) else ""
    return int(word) if 0 < len(word) < 19 and word.isascii() and word.isdigit() else None


def when(text: str, *formats: str) -> int | None:
    """Parse a time in UTC into seconds since 1970; return None if no format fits."""
    for form in formats:
        try:
            return timegm(datetime.strptime(_SPACE.sub(" ", text.strip()[:40]), form).timetuple())
        except ValueError:
            continue
    return None


def lines(text: str) -> Iterator[str]:
    """Yield the lines one at a time: there may be millions."""
    at = 0
    while at < len(text):
        end = text.find("\n", at) % (len(text) + 1)  # the last line may lack its end
        if not (line := text[at:end]).isspace() and line:
            yield line
        at = end + 1


def jobs(found: Iterable[Listed | None]) -> list[Listed]:
    """Return the jobs of a listing; raise if there are too many."""
    every = list(islice((job for job in found if job is not None), MAX_JOBS + 1))
    if len(every) > MAX_JOBS:
        raise _too_many()
    return every


def _too_many() -> SiteError:
    return SiteError(f"the site lists more than {MAX_JOBS} jobs", "Windfall cannot list so many at once")


# --- structured text -------------------------------------------------------------------------------------------


def from_json(text: str) -> Any:
    """Parse JSON; raise if that fails: half a listing would mean that the other half is gone."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SiteUnreachable(f"the site's answer cannot be read: {plain(text, 60)!r}") from None


def from_xml(text: str, root: str, each: str) -> list[dict[str, str]]:
    """Return the elements `each` with the text of their children; refuse entities and document types."""
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
        self.root = ""  # checked at the first element only
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
"""Why a batch system refuses a command.

    limit     the user has as many jobs as the site allows: back-pressure, not a failure; later there is room again
    busy      the batch system's server did not answer; it may have taken the job, a listing will tell
    array     the array is too large, or the batch system knows no arrays: submit fewer at a time
    the rest  the batch system refuses again until a person changes something
"""

CURES = {
    LIMIT: "nothing to do: Windfall submits more pilots as others end",
    BUSY: "nothing to do if it passes; otherwise ask the site whether its batch system is down",
    ACCOUNT: "correct the account in the site's file: ask the site which ones you may charge",
    QUEUE: "correct the partition or queue in the site's file",
    SHAPE: "ask for fewer cores, less memory or a shorter wall time, or for another partition",
    DENIED: "the site does not let this user submit there: check account, partition and host in the site's file",
    DISK: "the home directory is full: free space there",
    MISSING: "the batch system's commands are not found on that host: check host (is it the login node?) and dialect "
             "in the site's file",
    ARRAY: "Windfall submits fewer pilots at a time",
    OTHER: "follow the site's own message; if it names another batch system, correct the dialect in the site's file",
}

Table = tuple[tuple[str, str], ...]  # pattern in lower case, kind; the first pattern found counts

COMMON: Table = (
    (r"quota exceeded|no space left on device|disc quota", DISK),
    (r"command not found|no such file or directory.*(?:sbatch|qsub|bsub|condor)|: not found$", MISSING),
    (r"connection refused|connection timed out|timed out|unable to contact|cannot connect|unreachable", BUSY),
    (r"permission denied|not authori[sz]ed|access denied", DENIED),
)


def refusal(answer: Answer, table: Table, doing: str) -> SiteRefused | SiteUnreachable:
    """Return the error of a failed command: SiteRefused only if it surely did nothing, else SiteUnreachable."""
    output = plain(answer.err[-4000:] + " " + answer.out[-4000:], 4000)
    low = output.lower()
    found = [kind for pattern, kind in (*table, *COMMON) if re.search(pattern, low)]
    kind = BUSY if BUSY in found else found[0] if found else OTHER  # the output may hold a warning beside the cause
    if kind == OTHER and answer.exit == 127:
        kind = MISSING
    message = f"{doing}: {plain(output) or f'exit code {answer.exit}, and no output'}"
    if kind == BUSY:
        return SiteUnreachable(message, CURES[BUSY])
    if answer.exit == 0 or _killed(answer.exit):
        return SiteUnreachable(f"{message} (exit {answer.exit}: it may have been done)", CURES[kind])
    return SiteRefused(message, CURES[kind], kind=kind)


def _killed(code: int) -> bool:
    """Did a signal end the command?  PBS's own errors have exit codes from 153 on."""
    return code < 0 or 128 < code <= 128 + 24


# --- commands --------------------------------------------------------------------------------------------------


def chunks(ids: Iterable[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, ...]]:
    """Yield the ids in chunks for one command each; refuse anything else, since it could be read as an option."""
    every = tuple(ids)
    for each in every:
        if not pattern.fullmatch(each):
            raise BadInput(f"{plain(each, 40)!r} is not a job id of this batch system")
    for at in range(0, len(every), CHUNK):
        yield every[at : at + CHUNK]


def login(user: str) -> str:
    """Return the user's name; refuse anything else."""
    if not _USER.fullmatch(user):
        raise BadInput(f"{plain(user, 40)!r} is not the name of a user")
    return user


def shell(*parts: str) -> Command:
    """Return the command that runs these lines in the site's /bin/sh."""
    return Command(("/bin/sh",), "\n".join(parts) + "\n")


def words(argv: Iterable[str]) -> str:
    return " ".join(quote(word) for word in argv)


def document(path: str, content: str) -> str:
    """Return shell lines that write a file which only its owner can read."""
    end = "WINDFALL"
    while end in content:
        end += "_"
    return f"(umask 077; cat >{quote(path)} <<'{end}'\n{content}{end}\n) || exit 73"
