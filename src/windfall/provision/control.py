"""A socket in the home folder by which the commands of the same user talk to a running provisioner.

JSON lines.  The first says what is wanted (`{"do": "ls"}`); the last is `{"done": true}` or `{"error": …}`.
In between either side may say more: a login asks its questions there.  Only the owner can open it; whoever did is asked
of the kernel, too.  What is said here is never logged: it may be a password.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from windfall.errors import BadInput, NoServer, TrustError, WindfallError, from_wire

log = logging.getLogger("windfall.provision")

MAX_LINE = 1 << 16
MAX_PATH = 100  # bytes of a Unix socket's path; the kernel takes 107


class Talk:
    """One conversation."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def hear(self) -> dict[str, Any]:
        """The next line; {} when there is none."""
        try:
            said = json.loads(await self._reader.readline() or b"{}")
        except ValueError:
            raise BadInput("that is no line of JSON") from None
        return said if isinstance(said, dict) else {}

    async def say(self, **fields: Any) -> None:
        self._writer.write(json.dumps(fields).encode() + b"\n")
        await self._writer.drain()


Handler = Callable[[Talk, dict[str, Any]], Awaitable[None]]


def path(home: Path) -> Path:
    """In the folder; elsewhere, where its path is too long for the kernel."""
    inside = home.absolute() / "provision.sock"
    if len(os.fsencode(inside)) <= MAX_PATH:
        return inside
    name = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:16]
    return Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"windfall-{os.geteuid()}-{name}.sock"


async def serve(home: Path, handlers: Mapping[str, Handler]) -> asyncio.AbstractServer:
    """Until it is closed.  A socket that was left behind is replaced."""
    where = path(home)
    where.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(where))
    finally:
        os.umask(before)
    return await asyncio.start_unix_server(lambda r, w: _talk(r, w, handlers), sock=listener, limit=MAX_LINE)


def _owner(connection: socket.socket) -> int:
    """The user at the other end."""
    pid_uid_gid = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", pid_uid_gid)[1])


Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


def call(home: Path, wanted: dict[str, Any], answer: Answer) -> None:
    """For commands: says what is wanted; `answer` gets every line that comes back, and returns what to say to it."""
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(path(home)))
    except OSError:
        raise NoServer(f"nobody starts pilots for {home}", "windfall serve does, or windfall provision") from None
    with connection, connection.makefile("rwb") as lines:
        if _owner(connection) not in (0, os.geteuid()):
            raise TrustError("what answers is somebody else's")
        _say(lines, wanted)
        while line := lines.readline(MAX_LINE):
            said = json.loads(line)
            if said.get("done"):
                return
            if "error" in said:
                raise from_wire(said, 400)
            reply = answer(said)
            if reply is not None:
                _say(lines, reply)
    raise NoServer("the provisioner ended meanwhile", "try again")


def _say(lines: Any, said: dict[str, Any]) -> None:
    lines.write(json.dumps(said).encode() + b"\n")
    lines.flush()


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Mapping[str, Handler]) -> None:
    talk = Talk(reader, writer)
    try:
        if _owner(writer.get_extra_info("socket")) not in (0, os.geteuid()):
            raise TrustError("this is somebody else's provisioner")
        wanted = await talk.hear()
        handler = handlers.get(str(wanted.get("do")))
        if handler is None:
            raise BadInput(f"a provisioner cannot {str(wanted.get('do'))[:40]!r}", "one of " + ", ".join(handlers))
        await handler(talk, wanted)
        await talk.say(done=True)
    except WindfallError as error:
        with suppress(OSError):
            await talk.say(**error.to_wire())
    except (OSError, ValueError):
        pass  # whoever asked is gone
    except Exception:
        log.exception("a command could not be answered")
    finally:
        writer.close()
