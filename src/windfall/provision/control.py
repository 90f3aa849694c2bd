"""A socket in the home folder by which the commands of the same user talk to a running provisioner.

JSON lines.  The first says what is wanted (`{"do": "ls"}`); the last is `{"done": true}` or `{"error": …}`.
In between either side may say more: a login asks its questions there.  Only the owner can open it; whoever did is asked
of the kernel, too.  Where the folder's path is too long for a socket, it lies in a private one elsewhere: one that is
somebody else's is refused.  What is said here is never logged: it may be a password.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from windfall.errors import BadInput, NoServer, TrustError, WindfallError, from_wire

log = logging.getLogger("windfall.provision")

NAME = "provision.sock"
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
    return _paths(home)[0]


def _paths(home: Path) -> list[Path]:
    """Where it is, or may be: who began the provisioner need not have had our environment."""
    inside = home.absolute() / NAME
    if _short(inside):
        return [inside]
    folder = f"windfall-{os.geteuid()}-{hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:16]}"
    bases = (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp")
    return [where for base in bases if base.startswith("/") and _short(where := Path(base, folder, NAME))]


def _short(where: Path) -> bool:
    return len(os.fsencode(where)) <= MAX_PATH


def _check_private(folder: Path) -> None:
    """Whoever else could put a socket there would be asked instead of us: for passwords, among other things."""
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise TrustError(f"{folder} is not a private directory of yours", "remove it, or have it removed; or say where "
                         "else sockets can be (XDG_RUNTIME_DIR), or choose a shorter WINDFALL_HOME")


async def serve(home: Path, handlers: Mapping[str, Handler]) -> asyncio.AbstractServer:
    """Until it is closed.  A socket that was left behind is replaced."""
    where = path(home)
    if where.parent != home.absolute():
        where.parent.mkdir(mode=0o700, exist_ok=True)
        _check_private(where.parent)
    where.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(where))
    finally:
        os.umask(before)
    return await asyncio.start_unix_server(lambda r, w: _talk(r, w, handlers), sock=listener, limit=MAX_LINE)


def remove(home: Path) -> None:
    where = path(home)
    where.unlink(missing_ok=True)
    if where.parent != home.absolute():
        with suppress(OSError):
            where.parent.rmdir()


def _owner(connection: socket.socket) -> int:
    """The user at the other end."""
    pid_uid_gid = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", pid_uid_gid)[1])


Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


def call(home: Path, wanted: dict[str, Any], answer: Answer) -> None:
    """For commands: says what is wanted; `answer` gets every line that comes back, and returns what to say to it."""
    connection = _connected(home)
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


def _connected(home: Path) -> socket.socket:
    for where in _paths(home):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if where.parent != home.absolute():
                _check_private(where.parent)
            connection.connect(str(where))
            return connection
        except OSError:
            connection.close()
    raise NoServer(f"nobody starts pilots for {home}", "windfall serve does, or windfall provision")


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
