"""The channel to this machine.  Each command runs in its own session, so that all its processes end with it.

A process that a command leaves behind must not delay the answer, so a command inherits nothing but its three streams.
Therefore `subprocess` starts short commands: uvloop would give them a second copy of each stream.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from windfall.errors import SiteRefused, SiteUnreachable
from windfall.sites.channels.channel import MAX_WORDS, Channel, Raw, Stream, checked, too_much
from windfall.sites.dialects.text import CURES, MISSING

MAX_ERRORS = 1 << 20


class Here(Channel):
    def __init__(self, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None, home: str = "") -> None:
        """`prefix`: words before every command, such as `sudo -u somebody`."""
        self._prefix = tuple(prefix)
        self._env = {**os.environ, **(env or {})}
        self._home = home or str(Path.home())

    async def _start(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *self._prefix, *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, env=self._env, cwd=self._home, start_new_session=True)
        except OSError as error:
            raise _absent(argv, error) from None

    async def stream(self, argv: Sequence[str]) -> Stream:
        return _Stream(await self._start(checked(argv)))

    async def raw(self, argv: Sequence[str], stdin: bytes, timeout: float, most: int) -> Raw:
        process = self._begin(argv, stdin)
        try:
            async with asyncio.timeout(timeout):
                return await _outcome(process, most)
        except TimeoutError:
            _kill(process.pid)  # the whole session: even if the command has ended, a process of it holds the output
            raise SiteUnreachable(f"{argv[0]} has not ended within {timeout:g} s") from None
        finally:
            if process.poll() is None:
                _kill(process.pid)
                await asyncio.to_thread(process.wait)

    def _begin(self, argv: Sequence[str], stdin: bytes) -> subprocess.Popen[bytes]:
        """Start a command with its whole input in a file, so that no task has to feed it."""
        with open(os.memfd_create("stdin"), "w+b") as given:
            given.write(stdin)
            given.seek(0)
            try:
                return subprocess.Popen([*self._prefix, *argv], stdin=given, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=self._env, cwd=self._home, start_new_session=True)
            except OSError as error:
                raise _absent(argv, error) from None


class _Stream(Stream):
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._process, self._in, self._out = process, process.stdin, process.stdout
        self._words = asyncio.ensure_future(_read(process.stderr, MAX_WORDS, keep_on=True))

    async def read(self, most: int) -> bytes:
        return await self._out.read(most)

    def write(self, data: bytes) -> None:
        self._in.write(data)

    async def drain(self) -> None:
        try:
            await self._in.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise SiteUnreachable("the command has ended") from None

    async def close(self) -> str:
        self._in.close()
        await _end(self._process)
        return (await self._words).decode("utf-8", "replace")


def _absent(argv: Sequence[str], error: OSError) -> SiteRefused:
    return SiteRefused(f"{argv[0]} cannot run on this machine: {error.strerror}", CURES[MISSING], kind=MISSING)


async def _outcome(process: subprocess.Popen[bytes], most: int) -> Raw:
    assert process.stdout and process.stderr
    out, err = await asyncio.gather(_all(process.stdout, most), _all(process.stderr, MAX_ERRORS, keep_on=True))
    return Raw(await asyncio.to_thread(process.wait), out, err)


async def _all(pipe: IO[bytes], most: int, keep_on: bool = False) -> bytes:
    reader = asyncio.StreamReader()
    connect = asyncio.get_running_loop().connect_read_pipe
    transport, _ = await connect(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        return await _read(reader, most, keep_on)
    finally:
        transport.close()


async def _read(pipe: asyncio.StreamReader, most: int, keep_on: bool = False) -> bytes:
    """Read all output.  Raise if it exceeds the bound; with `keep_on`, drop the rest instead."""
    parts, size = [], 0
    while part := await pipe.read(1 << 16):
        size += len(part)
        if size <= most:
            parts.append(part)
        elif not keep_on:
            raise too_much(most)
    return b"".join(parts)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        _kill(process.pid)
        await process.wait()


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
