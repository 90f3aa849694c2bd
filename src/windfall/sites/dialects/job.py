"""The records of a site: jobs to submit, and the batch system's answers.

Each pilot is started for one committed intent.  The intent's nonce (`mark-7`) is in the job's name (`wfmark-7`), so
that a listing shows the job's state even if the answer to its submission was lost.  Intents with consecutive numbers
are submitted as one array, whose name holds the first nonce; the index tells which of them a pilot is.  Only the
dialects know of arrays: a listing, and the pilot itself, show the nonce of each pilot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from windfall.errors import BadInput

QUEUED, RUNNING, HELD, ENDED = "queued", "running", "held", "ended"
"""States of a job.  A held job waits for a person, not for free nodes.  A job that is ending counts as running."""

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
    """The resources of one pilot; per node if it has several."""

    walltime: int  # seconds
    cores: int = 1
    memory: int = 0  # bytes; 0: the site's default
    gpus: int = 0
    nodes: int = 1
    whole: bool = False  # no jobs of others on the node
    least: int = 0  # seconds; in a site's file: the wall time may be as short as this


@dataclass(frozen=True)
class Job:
    """A submission: a pilot, or an array of `count` pilots."""

    nonce: str  # of the first pilot
    shape: Shape
    command: tuple[str, ...]  # the pilot, exact words
    count: int = 1
    folder: str = "windfall"  # for logs; relative to the home directory, or absolute
    account: str = ""
    queue: str = ""  # also called partition
    directives: tuple[str, ...] = ()  # lines for the batch system, as in a job script
    setup: tuple[str, ...] = ()  # shell lines before the pilot starts, such as module load
    variables: tuple[tuple[str, str], ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)  # settings that only one dialect has
    grace: int = GRACE
    files: tuple[str, ...] = ()  # files that the pilot needs; they lie in the folder, or were sent with the job
    digest: str = ""  # SHA-256 of the first file; "": not checked

    @property
    def name(self) -> str:
        return _PREFIX + self.nonce

    @property
    def nonces(self) -> list[str]:
        return [nth(self.nonce, index) for index in range(self.count)]


class Command(NamedTuple):
    """A command for a channel: its exact words, and its input."""

    argv: tuple[str, ...]
    stdin: str = ""


class Answer(NamedTuple):
    exit: int
    out: str
    err: str


@dataclass(frozen=True)
class Listed:
    """A job as the batch system sees it."""

    id: str  # for `cancel`
    nonce: str  # of this pilot; "" for a job that is not this server's
    state: str
    reason: str = ""  # why the job waits, or how it ended: the batch system's code with a sentence
    start: int | None = None  # seconds since 1970, past or expected
    cores: int = 0  # 0: not known


class Balance(NamedTuple):
    """The balance of an account."""

    account: str
    used: int  # core-seconds
    limit: int | None  # core-seconds; None: no limit
    running: int = 0  # core-seconds that running jobs of others may still use


class Room(NamedTuple):
    """How full a site is.  The figures are already old when they arrive."""

    free: int | None  # cores
    total: int | None
    queued: int | None  # jobs of all users


def parts(nonce: str) -> tuple[str, int]:
    """Split a nonce into mark and number."""
    found = _NONCE.fullmatch(nonce)
    if not found or len(nonce) > LONGEST - len(_PREFIX):
        raise BadInput(f"{nonce[:40]!r} is not a nonce",
                       "a nonce has small letters and digits, a hyphen, and a number, as in k3x9q-17")
    return found[1], int(found[2])


def nth(nonce: str, index: int) -> str:
    """Return the nonce that follows `index` places after this one."""
    mark, number = parts(nonce)
    return f"{mark}-{number + index}"


def nonce_of(name: str, index: int = 0) -> str:
    """Return the nonce in a job's name, `index` places after the first of its array; "" if it is no pilot's name."""
    nonce = name.strip().removeprefix(_PREFIX)
    if nonce == name.strip() or len(name) > LONGEST or not _NONCE.fullmatch(nonce) or not 0 <= index <= MAX_ARRAY:
        return ""
    return nth(nonce, index) if index else nonce


def check(job: Job) -> Job:
    """Return the job; raise BadInput if some dialect could not write it down exactly."""
    parts(job.nonce)
    if not job.command:
        raise BadInput("a job needs a command")
    _check_shape(job.shape)
    if not 1 <= job.count <= MAX_ARRAY:
        raise BadInput(f"{job.count} pilots cannot be submitted at once", f"submit at most {MAX_ARRAY}")
    _check_names(job)
    _check_files(job)
    for key, lines in (("command", job.command), ("directives", job.directives), ("setup", job.setup)):
        _check_lines(key, lines)
    for name, value in job.variables:
        if not _VARIABLE.fullmatch(name):
            raise BadInput(f"{name!r} is not the name of a variable")
        _check_lines(f"variable {name}", (value,))
    return job


def _check_names(job: Job) -> None:
    if not _FOLDER.fullmatch(job.folder) or job.folder.startswith("-"):
        raise BadInput(f"the folder {job.folder!r} cannot be used",
                       "use letters, digits and _./+@- only: %, $, * and spaces have meanings in batch systems")
    for key, value in (("account", job.account), ("queue", job.queue)):
        if value and (not _WORD.fullmatch(value) or value.startswith("-")):
            raise BadInput(f"{key}: {value!r} is not a name a batch system could have")


def _check_files(job: Job) -> None:
    if any(not _FILE.fullmatch(name) for name in job.files):
        raise BadInput("the name of a file that goes with a job has only letters, digits and _.-")
    if job.digest and not (job.files and _DIGEST.fullmatch(job.digest)):
        raise BadInput(f"{job.digest[:80]!r} is not the SHA-256 of a file")


def _check_shape(shape: Shape) -> None:
    wrong = [name for name, value, least in (
        ("walltime", shape.walltime, 1), ("cores", shape.cores, 1), ("memory", shape.memory, 0),
        ("gpus", shape.gpus, 0), ("nodes", shape.nodes, 1)) if not least <= value < 1 << 50]
    if wrong:
        raise BadInput(f"{wrong[0]} of a pilot cannot be {getattr(shape, wrong[0])}")


def _check_lines(key: str, lines: tuple[str, ...]) -> None:
    if len(lines) > MAX_LINES:
        raise BadInput(f"{key}: more than {MAX_LINES} lines")
    for line in lines:
        if len(line) > MAX_LINE or any(char in line for char in "\n\r\0"):
            raise BadInput(f"{key}: {line[:60]!r} has a line break, or more than {MAX_LINE} characters",
                           "write one line per entry")
