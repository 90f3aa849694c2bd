"""The control socket: commands of the same user talk over it to a running provisioner.

Both sides send JSON lines.  The first names the request (`{"do": "ls"}`); the last is `{"done": true}` or
`{"error": …}`.  In between either side may send more lines: a login sends its questions.  Only the owner can open the
socket, and both sides ask the kernel for the other's user.  If the data folder's path is too long for a socket, the
socket lies in a private folder elsewhere; a folder of another user is refused.  The lines are never logged: a line may
be a password.
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
    """The provisioner's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def hear(self) -> dict[str, Any]:
        """Return the next line; {} if the other side has closed the connection."""
        try:
            line = json.loads(await self._reader.readline() or b"{}")
        except ValueError:
            raise BadInput("the line is not JSON") from None
        return line if isinstance(line, dict) else {}

    async def say(self, **fields: Any) -> None:
        self._writer.write(json.dumps(fields).encode() + b"\n")
        await self._writer.drain()


Handler = Callable[[Talk, dict[str, Any]], Awaitable[None]]


def path(home: Path) -> Path:
    """Return the socket's path: in the data folder, or elsewhere if that path is too long for the kernel."""
    return _paths(home)[0]


def _paths(home: Path) -> list[Path]:
    """Return the paths where the socket may be: the provisioner may have started with another environment."""
    inside = home.absolute() / NAME
    if _short(inside):
        return [inside]
    folder = f"windfall-{os.geteuid()}-{hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:16]}"
    bases = (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp")
    return [where for base in bases if base.startswith("/") and _short(where := Path(base, folder, NAME))]


def _short(where: Path) -> bool:
    return len(os.fsencode(where)) <= MAX_PATH


def _check_private(folder: Path) -> None:
    """Refuse a folder that another user can write to: his socket there could take passwords from our commands."""
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise TrustError(f"{folder} is not a private directory of yours", "remove it, or have it removed; or name "
                         "another folder for sockets (XDG_RUNTIME_DIR), or choose a shorter WINDFALL_HOME")


async def serve(home: Path, handlers: Mapping[str, Handler]) -> asyncio.AbstractServer:
    """Serve the handlers on the control socket; replace a socket that an earlier provisioner left behind."""
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
    """Return the user at the other end, as the kernel knows it."""
    pid_uid_gid = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", pid_uid_gid)[1])


Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


def call(home: Path, wanted: dict[str, Any], answer: Answer) -> None:
    """Send a request to the provisioner.  `answer` gets each line that comes back and returns the line to reply with,
    or None."""
    connection = _connected(home)
    with connection, connection.makefile("rwb") as lines:
        if _owner(connection) not in (0, os.geteuid()):
            raise TrustError("the provisioner that answers belongs to another user")
        _say(lines, wanted)
        while line := lines.readline(MAX_LINE):
            fields = json.loads(line)
            if fields.get("done"):
                return
            if "error" in fields:
                raise from_wire(fields, 400)
            reply = answer(fields)
            if reply is not None:
                _say(lines, reply)
    raise NoServer("the provisioner ended before it answered", "try again")


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
    raise NoServer(f"no provisioner runs for {home}", "start one: windfall serve, or windfall provision")


def _say(lines: Any, fields: dict[str, Any]) -> None:
    lines.write(json.dumps(fields).encode() + b"\n")
    lines.flush()


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Mapping[str, Handler]) -> None:
    talk = Talk(reader, writer)
    try:
        if _owner(writer.get_extra_info("socket")) not in (0, os.geteuid()):
            raise TrustError("this provisioner belongs to another user")
        wanted = await talk.hear()
        handler = handlers.get(str(wanted.get("do")))
        if handler is None:
            raise BadInput(f"the provisioner has no request {str(wanted.get('do'))[:40]!r}",
                           "ask for one of " + ", ".join(handlers))
        await handler(talk, wanted)
        await talk.say(done=True)
    except WindfallError as error:
        with suppress(OSError):
            await talk.say(**error.to_wire())
    except (OSError, ValueError):
        pass  # the command has hung up
    except Exception:
        log.exception("a request on the control socket failed")
    finally:
        writer.close()
