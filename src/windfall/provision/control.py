"""A socket in the home folder by which the commands of the same user talk to a running provisioner.

JSON lines.  The first says what is wanted (`{"do": "ls"}`); the last is `{"done": true}` or `{"error": …}`.
In between either side may say more: a login asks its questions there.  Only the owner can open it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from windfall.errors import BadInput, WindfallError

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


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Mapping[str, Handler]) -> None:
    talk = Talk(reader, writer)
    try:
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
