"""A channel runs commands at a site and moves small files.  Bounded in time and in what it takes in.

An answer is complete or there is none: output over the bound, a lost connection and a passed time limit are errors,
so that half a listing is never taken for a whole one.  Commands run in the home directory.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from windfall.errors import BadInput, SiteError, TooLarge
from windfall.sites.dialects.job import Answer, Command
from windfall.sites.dialects.text import plain

T = TypeVar("T")

TIMEOUT = 60.0
MAX_OUTPUT = 64 << 20  # a line each for 200,000 jobs
MAX_FILE = 64 << 20
MAX_WORDS = 4000  # bytes of what a stream's command said last, for a message
MAX_ARGUMENTS = 100_000  # characters: below what every system takes

_PUT = ('umask 077; d=$(dirname -- "$1") && mkdir -p -- "$d" && cat >"$1.new.$$" && chmod "$2" "$1.new.$$" && '
        'mv -f -- "$1.new.$$" "$1" || { rm -f -- "$1.new.$$"; exit 73; }')
_GET = 'cat -- "$1"'


class Question(NamedTuple):
    site: str  # or the host on the way to it that asks
    text: str  # instructions, may be empty
    prompts: tuple[tuple[str, bool], ...]  # what is asked for, and whether the answer may be shown


Ask = Callable[[Question], Awaitable[Sequence[str]]]  # no answers: the person does not want to


class Raw(NamedTuple):
    exit: int
    out: bytes
    err: bytes


async def read_aside(reads: Callable[[Answer], T], answer: Answer) -> T:
    """What a site says may be long: it is read where nobody waits."""
    return await asyncio.get_running_loop().run_in_executor(None, reads, answer)


class Stream(ABC):
    """A command that runs as long as somebody talks with it."""

    @abstractmethod
    async def read(self, most: int) -> bytes:
        """What it says; nothing: it has ended, or cannot be reached any more."""

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    async def drain(self) -> None:
        """Waits while much is on its way; raises SiteUnreachable when nobody is there."""

    @abstractmethod
    async def close(self) -> str:
        """Ends it; returns its last words."""


class Channel(ABC):
    async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = TIMEOUT) -> Answer:
        raw = await self.raw(checked(argv), stdin.encode(), timeout, MAX_OUTPUT)
        return Answer(raw.exit, raw.out.decode("utf-8", "replace"), raw.err.decode("utf-8", "replace"))

    async def say(self, command: Command, timeout: float = TIMEOUT) -> Answer:
        return await self.run(command.argv, command.stdin, timeout)

    async def put(self, path: str, data: bytes, mode: int = 0o600, timeout: float = TIMEOUT) -> None:
        """The whole file or none; nobody else can read it while it is written."""
        if len(data) > MAX_FILE:
            raise TooLarge(f"{path}: {len(data)} bytes are too many for a channel")
        words = checked(("/bin/sh", "-c", _PUT, "put", path, f"{mode & 0o777:o}"))
        raw = await self.raw(words, data, timeout, MAX_OUTPUT)
        if raw.exit:
            raise SiteError(f"{path} cannot be written at the site: {plain(raw.err.decode('utf-8', 'replace'))}",
                            "make room there, or name another folder")

    async def get(self, path: str, most: int = MAX_FILE, timeout: float = TIMEOUT) -> bytes:
        raw = await self.raw(checked(("/bin/sh", "-c", _GET, "get", path)), b"", timeout, most)
        if raw.exit:
            raise SiteError(f"{path} cannot be read at the site: {plain(raw.err.decode('utf-8', 'replace'))}")
        return raw.out

    @abstractmethod
    async def raw(self, argv: Sequence[str], stdin: bytes, timeout: float, most: int) -> Raw: ...

    @abstractmethod
    async def stream(self, argv: Sequence[str]) -> Stream:
        """Starts a command to talk with."""

    async def login(self, ask: Ask) -> str:
        """Logs in, if that takes somebody who answers; returns what there is to say."""
        return "commands run here: there is nothing to log in to"

    async def logged_in(self) -> None:
        """Waits while somebody has to log in first."""
        return None

    async def close(self) -> None:
        return None


def checked(argv: Sequence[str]) -> tuple[str, ...]:
    words = tuple(argv)
    if not words or any(char in word for word in words for char in "\n\r\0"):
        raise BadInput("a command's words hold no line breaks")
    if sum(map(len, words)) > MAX_ARGUMENTS:
        raise TooLarge("the command is too long for one call")
    return words


def too_much(most: int) -> SiteError:
    return SiteError(f"the site printed more than {most} bytes", "this many jobs cannot be listed at once")
