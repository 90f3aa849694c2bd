"""Listeners: a Unix socket, TLS, or both; and throttling of new connections.

A TLS handshake costs a third of a millisecond.  Ten thousand pilots that return at once would block the server for
seconds, so the server accepts connections at a bounded rate; the others wait in the kernel's queue.  Clients that
connect and send nothing cannot keep others out: when too many handshakes are open, the server drops the oldest.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from windfall.errors import BadInput
from windfall.server.http.server import Connection, HttpServer, log
from windfall.server.local.data_folder import BACKLOG

if TYPE_CHECKING:
    import ssl

BURST = 8  # connections accepted at once
PAUSE_S = 0.004  # between bursts: 2,000 a second, about half a core
HANDSHAKE_S = 20.0
MAX_HANDSHAKES = 2048  # open at once
PATIENCE_S = 2.0  # before the server drops a handshake in favour of waiting connections


async def unix(http: HttpServer, listener: socket.socket) -> asyncio.AbstractServer:
    return await http.loop.create_unix_server(lambda: Connection(http, local=True), sock=listener, backlog=BACKLOG)


def address(listen: str) -> tuple[str, int]:
    """Parse `host:port`, `:port` or `port`; the default host is 127.0.0.1."""
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise BadInput(f"cannot listen on '{listen}'", "write HOST:PORT, for instance 0.0.0.0:7430")
    return host.strip("[]") or "127.0.0.1", int(port)


class TlsListener:
    """The TLS port, which accepts connections at a bounded rate."""

    def __init__(self, http: HttpServer, context: ssl.SSLContext, host: str, port: int) -> None:
        self._http = http
        self._context = context
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[None], float] = {}  # open handshakes → start, oldest first
        self._socket = _bind(host, port)
        self.port: int = self._socket.getsockname()[1]
        http.loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(BURST):
            try:
                accepted, _ = self._socket.accept()
            except OSError as error:
                if not isinstance(error, BlockingIOError):
                    log.warning("cannot accept a connection: %s", error)
                    self._pause(0.1)
                return
            self._begin_handshake(accepted)
        self._pause(PAUSE_S)

    def _pause(self, seconds: float) -> None:
        self._http.loop.remove_reader(self._socket)
        self._timer = self._http.loop.call_later(seconds, self._again)

    def _again(self) -> None:
        if len(self._tasks) >= MAX_HANDSHAKES:
            self._make_room()
            self._timer = self._http.loop.call_later(0.05, self._again)
            return
        self._timer = None
        self._http.loop.add_reader(self._socket, self._accept)

    def _make_room(self) -> None:
        """Drop a tenth of the handshakes, the oldest; if those behind them are silent too, the next call drops them."""
        limit = self._http.loop.time() - PATIENCE_S
        for task, since in list(self._tasks.items())[: MAX_HANDSHAKES // 10 + 1]:
            if since < limit:
                task.cancel()

    def _begin_handshake(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        task = self._http.loop.create_task(self._handshake(accepted))
        self._tasks[task] = self._http.loop.time()
        task.add_done_callback(self._handshake_ended)

    async def _handshake(self, accepted: socket.socket) -> None:
        try:
            await self._http.loop.connect_accepted_socket(
                lambda: Connection(self._http, local=False), accepted, ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S, ssl_shutdown_timeout=2.0)
        except (OSError, TimeoutError):
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise

    def _handshake_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a TLS handshake failed: %s", task.exception())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._http.loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._tasks:
            task.cancel()


def own(host: str) -> str:
    """Return the address of this machine that the name stands for; "" if there is none.  Skip loopback addresses: many
    machines map their name to one in /etc/hosts, and no other machine can reach it."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ""
    for family, _, _, _, (address, *_) in found:
        if str(address) != host and (str(address).startswith("127.") or address == "::1"):
            continue
        with socket.socket(family, socket.SOCK_STREAM) as trial, suppress(OSError):
            trial.bind((address, 0))
            return str(address)
    return ""


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        hint = "choose another address with --listen"
        raise BadInput(f"cannot listen on {host}:{port}: {error.strerror}", hint) from error
    return listener
