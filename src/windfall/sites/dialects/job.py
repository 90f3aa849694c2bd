"""The nouns of a site: what is asked of a batch system, and what it says.

A pilot is started for one committed intent, whose nonce (`mark-7`) is in the job's name (`wfmark-7`), so that a listing
shows what became of it even if the answer to its submission was never seen.  Intents whose numbers follow each other
are one submission, an array: its name holds the first one's nonce, and the index says which of them a pilot is.  Only
the dialects know of arrays: whoever reads a listing, and the pilot itself, sees the nonce of that very pilot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from windfall.errors import BadInput

QUEUED, RUNNING, HELD, ENDED = "queued", "running", "held", "ended"
"""States of a job.  Held: it waits for a person, not for room.  One that is ending still counts as running."""

GRACE = 120  # seconds between the signal and the end

_NONCE = re.compile(r"([a-z0-9]{1,12})-([1-9]\d{0,8}|0)")
_PREFIX = "wf"
LONGEST = 20  # a name; Torque promises to keep no more than 15 characters
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FOLDER = re.compile(r"[A-Za-z0-9_./+@-]{1,500}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_WORD = re.compile(r"[A-Za-z0-9_./:,+@=*&|()!<> -]{1,200}")
MAX_ARRAY = 100_000
MAX_LINES = 1_000
MAX_LINE = 10_000


class Shape(NamedTuple):
    """What one pilot gets.  Per node, where there are several."""

    walltime: int  # seconds
    cores: int = 1
    memory: int = 0  # bytes; 0: whatever the site gives
    gpus: int = 0
    nodes: int = 1
    whole: bool = False  # nobody else on the node
    least: int = 0  # of a site's file: the wall time may be anything from here on


@dataclass(frozen=True)
class Job:
    """One submission: a pilot, or an array of `count` pilots."""

    nonce: str  # of the first
    shape: Shape
    command: tuple[str, ...]  # the pilot, exact words
    count: int = 1
    folder: str = "windfall"  # for logs; relative to the home directory, or absolute
    account: str = ""
    queue: str = ""  # also called partition
    directives: tuple[str, ...] = ()  # lines for the batch system, as its users write them
    setup: tuple[str, ...] = ()  # shell lines before the pilot starts: modules and the like
    variables: tuple[tuple[str, str], ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)  # what only one dialect knows, by names it documents
    grace: int = GRACE
    files: tuple[str, ...] = ()  # what the pilot is started with; they lie in the folder, or were sent along
    digest: str = ""  # SHA-256 of the first of these; "": it is not checked

    @property
    def name(self) -> str:
        return _PREFIX + self.nonce

    @property
    def nonces(self) -> list[str]:
        return [nth(self.nonce, index) for index in range(self.count)]


class Command(NamedTuple):
    """What a channel is to run: exact words, and what the command reads."""

    argv: tuple[str, ...]
    stdin: str = ""


class Answer(NamedTuple):
    exit: int
    out: str
    err: str


@dataclass(frozen=True)
class Listed:
    """A job as the batch system sees it."""

    id: str  # what `cancel` takes
    nonce: str  # of this pilot; "" for a job that is not ours
    state: str
    reason: str = ""  # why it waits, or how it ended, in the batch system's words
    start: int | None = None  # seconds since 1970, past or expected
    cores: int = 0  # 0: not said


class Balance(NamedTuple):
    """What an account may still use."""

    account: str
    used: int  # core-seconds
    limit: int | None  # core-seconds; nothing: there is none
    running: int = 0  # core-seconds that running jobs of others may still use


class Room(NamedTuple):
    """For information only: it is old when it arrives."""

    free: int | None  # cores
    total: int | None
    queued: int | None  # jobs of everybody


def parts(nonce: str) -> tuple[str, int]:
    """Mark and number."""
    found = _NONCE.fullmatch(nonce)
    if not found or len(nonce) > LONGEST - len(_PREFIX):
        raise BadInput(f"{nonce[:40]!r} is no nonce", "small letters and digits, a hyphen, a number, as in k3x9q-17")
    return found[1], int(found[2])


def nth(nonce: str, index: int) -> str:
    """The nonce that comes `index` after this one."""
    mark, number = parts(nonce)
    return f"{mark}-{number + index}"


def nonce_of(name: str, index: int = 0) -> str:
    """Of a job called so, that many places after the first of its array; "" if it is none of ours."""
    nonce = name.strip().removeprefix(_PREFIX)
    if nonce == name.strip() or len(name) > LONGEST or not _NONCE.fullmatch(nonce) or not 0 <= index <= MAX_ARRAY:
        return ""
    return nth(nonce, index) if index else nonce


def check(job: Job) -> Job:
    """The same job, if it can be written down exactly in every dialect; else BadInput."""
    parts(job.nonce)
    if not job.command:
        raise BadInput("a job needs a command")
    _check_shape(job.shape)
    if not 1 <= job.count <= MAX_ARRAY:
        raise BadInput(f"{job.count} pilots cannot be submitted at once", f"at most {MAX_ARRAY}")
    if not _FOLDER.fullmatch(job.folder) or job.folder.startswith("-"):
        raise BadInput(f"the folder {job.folder!r} cannot be used",
                       "batch systems give %, $, * and spaces meanings of their own: letters, digits and _./+@- only")
    for what, value in (("account", job.account), ("queue", job.queue)):
        if value and (not _WORD.fullmatch(value) or value.startswith("-")):
            raise BadInput(f"{what}: {value!r} is not a name a batch system could have")
    if any(not _FILE.fullmatch(name) for name in job.files):
        raise BadInput("a file that goes with a job has a plain name")
    if job.digest and not (job.files and _DIGEST.fullmatch(job.digest)):
        raise BadInput(f"{job.digest[:80]!r} is the SHA-256 of no file")
    _check_lines("command", job.command)
    _check_lines("directives", job.directives)
    _check_lines("setup", job.setup)
    for name, value in job.variables:
        if not _VARIABLE.fullmatch(name):
            raise BadInput(f"{name!r} is not the name of a variable")
        _check_lines(f"variable {name}", (value,))
    return job


def _check_shape(shape: Shape) -> None:
    wrong = [name for name, value, least in (
        ("walltime", shape.walltime, 1), ("cores", shape.cores, 1), ("memory", shape.memory, 0),
        ("gpus", shape.gpus, 0), ("nodes", shape.nodes, 1)) if not least <= value < 1 << 50]
    if wrong:
        raise BadInput(f"{wrong[0]} of a pilot cannot be {getattr(shape, wrong[0])}")


def _check_lines(what: str, lines: tuple[str, ...]) -> None:
    if len(lines) > MAX_LINES:
        raise BadInput(f"{what}: more than {MAX_LINES} lines")
    for line in lines:
        if len(line) > MAX_LINE or any(char in line for char in "\n\r\0"):
            raise BadInput(f"{what}: a line break in {line[:60]!r}", "one line each")
