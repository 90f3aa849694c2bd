"""The nouns of a site: what is asked of a batch system, and what it says.

A job is started for one committed intent, whose nonce is in the job's name (`wf` and the nonce), so that a listing
shows what became of it even if the answer to its submission was never seen.  An array is one submission of many
pilots: they share the nonce and differ in their index, from 1 on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import BadInput

QUEUED, RUNNING, HELD, ENDED = "queued", "running", "held", "ended"
"""States of a job.  Held: it waits for a person, not for room.  One that is ending still counts as running."""

GRACE = 120  # seconds between the signal and the end

_NONCE = re.compile(r"[a-z0-9]{4,13}")
_NAME = re.compile(r"wf([a-z0-9]{4,13})")  # at most 15 characters: all that some batch systems keep
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FOLDER = re.compile(r"[A-Za-z0-9_./+@-]{1,500}")
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


@dataclass(frozen=True)
class Job:
    """One submission: a pilot, or an array of `count` pilots that differ in their index."""

    nonce: str
    shape: Shape
    command: tuple[str, ...]  # the pilot, exact words
    first: int = 0  # index of the first pilot of an array; 0: no array
    count: int = 1
    folder: str = "windfall"  # for logs; relative to the home directory, or absolute
    account: str = ""
    queue: str = ""  # also called partition
    directives: tuple[str, ...] = ()  # lines for the batch system, as its users write them
    setup: tuple[str, ...] = ()  # shell lines before the pilot starts: modules and the like
    variables: tuple[tuple[str, str], ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)  # what only one dialect knows, by names it documents
    grace: int = GRACE

    @property
    def name(self) -> str:
        return "wf" + self.nonce


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
    nonce: str  # "" for a job that is not ours
    index: int  # 0 outside arrays
    state: str
    reason: str = ""  # why it waits, or how it ended, in the batch system's words
    start: int | None = None  # seconds since 1970, past or expected
    cores: int = 0  # 0: not said


class Balance(NamedTuple):
    """What an account may still use."""

    account: str
    used: int  # core-seconds
    limit: int | None  # core-seconds; nothing: no limit is told


class Room(NamedTuple):
    """For information only: it is old when it arrives."""

    free: int | None  # cores
    total: int | None
    queued: int | None  # jobs of everybody


def nonce_of(name: str) -> str:
    found = _NAME.fullmatch(name)
    return found[1] if found else ""


def check(job: Job) -> Job:
    """The same job, if it can be written down exactly in every dialect; else BadInput."""
    if not _NONCE.fullmatch(job.nonce):
        raise BadInput(f"{job.nonce!r} is no nonce", "4 to 13 small letters and digits")
    if not job.command:
        raise BadInput("a job needs a command")
    _check_shape(job.shape)
    if not (0 <= job.first <= MAX_ARRAY and 1 <= job.count <= MAX_ARRAY) or (job.count > 1 and not job.first):
        raise BadInput(f"an array of {job.count} pilots from index {job.first} is not possible",
                       f"indices begin at 1; at most {MAX_ARRAY} at once")
    if not _FOLDER.fullmatch(job.folder) or job.folder.startswith("-"):
        raise BadInput(f"the folder {job.folder!r} cannot be used",
                       "batch systems give %, $, * and spaces meanings of their own: letters, digits and _./+@- only")
    for what, value in (("account", job.account), ("queue", job.queue)):
        if value and (not _WORD.fullmatch(value) or value.startswith("-")):
            raise BadInput(f"{what}: {value!r} is not a name a batch system could have")
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
