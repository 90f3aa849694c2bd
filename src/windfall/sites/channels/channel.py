"""A channel runs commands at a site and copies small files; it bounds their time and their output.

An answer is complete or there is none: output over the bound, a lost connection and an exceeded time limit are errors,
so that nobody takes half a listing for a whole one.  Commands run in the home directory.
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

TIMEOUT = 60.0  # seconds that a command may take
MAX_OUTPUT = 64 << 20  # a line each for 200,000 jobs
MAX_FILE = 64 << 20
MAX_WORDS = 4000  # bytes of a stream command's last error output, for a message
MAX_ARGUMENTS = 100_000  # characters; every system takes more

_PUT = ('umask 077; d=$(dirname -- "$1") && mkdir -p -- "$d" && cat >"$1.new.$$" && chmod "$2" "$1.new.$$" && '
        'mv -f -- "$1.new.$$" "$1" || { rm -f -- "$1.new.$$"; exit 73; }')
_GET = 'cat -- "$1"'


class Question(NamedTuple):
    site: str  # the host that asks: the site, or one on the way to it
    text: str  # instructions, may be empty
    prompts: tuple[tuple[str, bool], ...]  # each prompt, and whether the terminal may show the answer


Ask = Callable[[Question], Awaitable[Sequence[str]]]  # returns no answers if the person refuses


class Raw(NamedTuple):
    exit: int
    out: bytes
    err: bytes


async def read_aside(reads: Callable[[Answer], T], answer: Answer) -> T:
    """Parse an answer in a thread: it may be long, and the loop must stay free."""
    return await asyncio.get_running_loop().run_in_executor(None, reads, answer)


class Stream(ABC):
    """A running command, with its input and output."""

    @abstractmethod
    async def read(self, most: int) -> bytes:
        """Return output; b"" if the command has ended or the connection broke."""

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    async def drain(self) -> None:
        """Wait while much input is under way; raise SiteUnreachable if the command has ended."""

    @abstractmethod
    async def close(self) -> str:
        """End the command; return the end of its error output."""


class Channel(ABC):
    async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = TIMEOUT) -> Answer:
        raw = await self.raw(checked(argv), stdin.encode(), timeout, MAX_OUTPUT)
        return Answer(raw.exit, raw.out.decode("utf-8", "replace"), raw.err.decode("utf-8", "replace"))

    async def say(self, command: Command, timeout: float = TIMEOUT) -> Answer:
        return await self.run(command.argv, command.stdin, timeout)

    async def put(self, path: str, data: bytes, mode: int = 0o600, timeout: float = TIMEOUT) -> None:
        """Write the whole file or none; other users cannot read it meanwhile."""
        if len(data) > MAX_FILE:
            raise TooLarge(f"{path} has {len(data)} bytes; Windfall copies at most {MAX_FILE} to a site")
        words = checked(("/bin/sh", "-c", _PUT, "put", path, f"{mode & 0o777:o}"))
        raw = await self.raw(words, data, timeout, MAX_OUTPUT)
        if raw.exit:
            raise SiteError(f"{path} cannot be written at the site: {plain(raw.err.decode('utf-8', 'replace'))}",
                            "free space there, or name another folder")

    async def get(self, path: str, most: int = MAX_FILE, timeout: float = TIMEOUT) -> bytes:
        raw = await self.raw(checked(("/bin/sh", "-c", _GET, "get", path)), b"", timeout, most)
        if raw.exit:
            raise SiteError(f"{path} cannot be read at the site: {plain(raw.err.decode('utf-8', 'replace'))}")
        return raw.out

    @abstractmethod
    async def raw(self, argv: Sequence[str], stdin: bytes, timeout: float, most: int) -> Raw: ...

    @abstractmethod
    async def stream(self, argv: Sequence[str]) -> Stream:
        """Start a command and return its streams."""

    async def login(self, ask: Ask) -> str:
        """Log in, with a person who answers questions; return a sentence for that person."""
        return "commands run here: there is nothing to log in to"

    async def logged_in(self) -> None:
        """Wait while a person has to log in first."""
        return None

    async def close(self) -> None:
        return None


def checked(argv: Sequence[str]) -> tuple[str, ...]:
    words = tuple(argv)
    if not words or any(char in word for word in words for char in "\n\r\0"):
        raise BadInput("a command is empty, or one of its words has a line break")
    if sum(map(len, words)) > MAX_ARGUMENTS:
        raise TooLarge(f"the command is longer than {MAX_ARGUMENTS} characters")
    return words


def too_much(most: int) -> SiteError:
    return SiteError(f"the site printed more than {most} bytes", "so many jobs cannot be listed at once")
