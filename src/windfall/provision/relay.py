"""The provisioner's end of a site's relay: it opens a connection to the server for each one that a pilot makes there.

The relay (pilot/net/relay.py) runs on the head node as a command over the site's one SSH connection; its stdin and
stdout carry frames (wire/frames.py).  This end forwards bytes unread: TLS is between pilot and server.  The credit of
each connection and the room in the pipe bound the memory; while the pipe is full, this end does not read from the
server.

`Relay` starts the relay again when it ends or the connection breaks, on the same port if possible, so that the tickets
of queued pilots stay true.  Pilots keep trying meanwhile; their leases cover the gap.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from windfall.errors import SiteError, SiteRefused, SiteUnreachable, WindfallError
from windfall.sites.channels.channel import Channel, Stream
from windfall.sites.dialects.text import plain
from windfall.wire import frames

log = logging.getLogger("windfall.provision")

PIPE_ROOM = 4 << 20  # bytes that may wait for the pipe before this end stops reading from the server
MAX_CONNECTIONS = 10_000
HELLO_S = 30.0
PING_S, SILENCE_S = 20.0, 90.0
PAUSES_S = (0.2, 1.0, 5.0, 15.0, 30.0)  # before the relay is started again
STEADY_S = 120.0  # a relay that lived this long is started again at once
CONNECT_S = 10.0


class Hello(NamedTuple):
    """A relay's greeting: the head node's name, port and addresses, and the folder for routes through files."""

    host: str
    port: int
    addresses: tuple[str, ...]
    spool: str


def hello(payload: bytes) -> Hello:
    """Parse a relay's greeting, with checks: the head node is not trusted."""
    try:
        fields = json.loads(payload)
        found = Hello(fields["host"], fields["port"], tuple(fields["addresses"]), fields["spool"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise frames.Malformed("the relay's greeting cannot be read") from None
    texts = (found.host, found.spool, *found.addresses)
    if not all(isinstance(text, str) and len(text) < 4096 and text.isprintable() for text in texts):
        raise frames.Malformed("the relay's greeting has invalid addresses")
    if not isinstance(found.port, int) or not 0 <= found.port < 65536 or len(found.addresses) > 16:
        raise frames.Malformed("the relay's greeting has an invalid port")
    return found


class _Connection(asyncio.Protocol):
    """The connection to the server that belongs to one connection of a pilot to the relay."""

    def __init__(self, mux: Mux, number: int) -> None:
        self.mux, self.number = mux, number
        self.flow = frames.CreditWindow()
        self.transport: Any = None
        self.early: list[bytes] = []  # bytes from the pilot that arrived before the server accepted
        self.late = b""  # bytes from the server that arrived without credit
        self.told = self.left = False  # this end has sent CLOSE; the relay has sent CLOSE
        self.full = False  # the server's buffer is full
        self.unpaid = 0

    # --- from the server

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=frames.WINDOW // 2)
        if self.told:
            transport.abort()
            return
        early, self.early = self.early, []
        for payload in early:
            self._forward(payload)
        if self.left:
            transport.close()

    def data_received(self, data: bytes) -> None:
        self._say(self.late + data)

    def _say(self, data: bytes) -> None:
        now, self.late = data[: self.flow.credit], data[self.flow.credit :]
        if now:
            self.flow.credit -= len(now)
            self.mux.send(frames.data(self.number, now))
        if self.late or self.mux.choked:
            self.transport.pause_reading()
            self.mux.waiting.add(self)

    def resume(self) -> None:
        """Read from the server again if there is credit, and room in the pipe."""
        if self.told or self.mux.choked or not self.flow.credit:
            return
        self.mux.waiting.discard(self)
        late, self.late = self.late, b""
        self.transport.resume_reading()
        if late:
            self._say(late)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.close()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        unpaid, self.unpaid = self.unpaid, 0
        self._pay(unpaid)

    # --- from the relay

    def take(self, payload: bytes) -> None:
        self.flow.take(len(payload))
        if self.told:
            return
        if self.transport is None:
            self.early.append(payload)
        else:
            self._forward(payload)

    def _forward(self, payload: bytes) -> None:
        self.transport.write(payload)
        if self.full:
            self.unpaid += len(payload)
        else:
            self._pay(len(payload))

    def _pay(self, count: int) -> None:
        given = self.flow.passed(count)
        if given and not self.told:
            self.mux.send(frames.credit(self.number, given))

    def leave(self) -> None:
        """Close the connection to the server after the pilot has closed its own."""
        self.left = True
        if self.transport is not None:
            self.transport.close()
        if self.told or self.transport is None:
            self.close()

    def close(self) -> None:
        if not self.told:
            late, self.late = self.late, b""
            if late and not self.left and self.flow.credit >= len(late):
                self.mux.send(frames.data(self.number, late))
            self.told = True
            self.early.clear()
            self.mux.waiting.discard(self)
            self.mux.send(frames.frame(frames.CLOSE, self.number))
        if self.left:
            self.mux.connections.pop(self.number, None)

    def abort(self) -> None:
        self.told = True
        if self.transport is not None:
            self.transport.abort()


class Mux:
    """The connections of one relay process, multiplexed over its stdin and stdout."""

    def __init__(self, stream: Stream, server: tuple[str, int]) -> None:
        self._stream, self._server = stream, server
        self.connections: dict[int, _Connection] = {}
        self.waiting: set[_Connection] = set()  # connections that are not read for now
        self._out: list[bytes] = []
        self._size = 0
        self._bell = asyncio.Event()
        self._decoder = frames.Decoder()
        self._dialling: set[asyncio.Task[None]] = set()
        self._heard = 0.0
        self.opened = 0

    @property
    def choked(self) -> bool:
        return self._size > PIPE_ROOM

    def send(self, data: bytes) -> None:
        self._out.append(data)
        self._size += len(data)
        self._bell.set()

    async def serve(self, ready: Callable[[Hello], None]) -> None:
        """Serve the relay until it ends; call `ready` with its greeting."""
        writing = asyncio.ensure_future(self._write())
        watching = asyncio.ensure_future(self._watch())
        reading = asyncio.ensure_future(self._read(ready))
        tasks = (writing, watching, reading)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for each in (*tasks, *self._dialling):
                each.cancel()
            for connection in list(self.connections.values()):
                connection.abort()
            await asyncio.gather(*tasks, *self._dialling, return_exceptions=True)

    async def _read(self, ready: Callable[[Hello], None]) -> None:
        loop = asyncio.get_running_loop()
        greeted = False
        while content := await self._stream.read(1 << 18):
            self._heard = loop.time()
            for kind, number, payload in self._decoder.feed(content):
                if not greeted and kind != frames.HELLO:
                    raise frames.Malformed("the relay does not begin with a greeting")
                if kind == frames.HELLO:
                    ready(hello(payload))
                    greeted = True
                elif kind != frames.PONG:
                    self._frame(kind, number, payload)

    def _frame(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.OPEN:
            self._open(number)
            return
        connection = self.connections.get(number)
        if connection is None or connection.left:
            raise frames.Malformed(f"frame {kind} for connection {number}, which is not open")
        if kind == frames.DATA:
            connection.take(payload)
        elif kind == frames.CREDIT:
            connection.flow.earn(frames.credit_of(payload))
            connection.resume()
        elif kind == frames.CLOSE:
            connection.leave()
        else:
            raise frames.Malformed(f"a relay may not send frame {kind}")

    def _open(self, number: int) -> None:
        if number in self.connections or len(self.connections) >= MAX_CONNECTIONS:
            raise frames.Malformed(f"connection {number} cannot be opened")
        connection = self.connections[number] = _Connection(self, number)
        task = asyncio.ensure_future(self._dial(connection))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)
        self.opened += 1

    async def _dial(self, connection: _Connection) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().create_connection(lambda: connection, *self._server)
        except (OSError, TimeoutError):
            connection.close()  # the pilot tries again

    async def _write(self) -> None:
        while True:
            await self._bell.wait()
            self._bell.clear()
            out, self._out, was_choked = self._out, [], self.choked
            self._size = 0
            self._stream.write(b"".join(out))
            await self._stream.drain()
            if was_choked and not self.choked:
                for connection in list(self.waiting):
                    connection.resume()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        while loop.time() - self._heard < SILENCE_S:
            self.send(frames.frame(frames.PING))
            await asyncio.sleep(PING_S)
        raise SiteUnreachable(f"the relay has sent nothing for {SILENCE_S:.0f} s")


class Relay:
    """A site's relay, started again whenever it ends.  `changed` is called with its greeting each time it is up."""

    def __init__(self, channel: Channel, argv: tuple[str, ...], server: tuple[str, int],
                 changed: Callable[[Hello], None] = lambda hello: None) -> None:
        """`argv`: the relay's command, without a port; `server`: host and port of the server's TLS."""
        self._channel, self._argv, self._server, self._changed = channel, argv, server, changed
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.offer: Hello | None = None
        self.trouble: WindfallError | None = None
        self.lives = 0
        self.mux: Mux | None = None

    async def ready(self, seconds: float = HELLO_S) -> Hello:
        """Return the relay's greeting once it is up; raise the error that prevents its start."""
        if self._task is None or self._task.done():
            self.trouble, self.offer = None, None
            self._task = asyncio.ensure_future(self._run())
        try:
            async with asyncio.timeout(seconds):
                while self.offer is None:
                    if self.trouble is not None:
                        raise self.trouble
                    await self._news.wait()
                return self.offer
        except TimeoutError:
            raise SiteUnreachable(f"the relay has not come up within {seconds:g} s") from None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self.offer = None

    async def _run(self) -> None:
        """Start the relay again and again.  After a refusal, wait until a person has logged in at the site."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            begun = loop.time()
            try:
                await self._live()
                self._trouble(SiteUnreachable("the relay has ended"))
            except SiteRefused as error:
                self._trouble(error)
                await self._channel.logged_in()
            except (WindfallError, OSError) as error:
                self._trouble(error if isinstance(error, WindfallError) else SiteUnreachable(plain(error)))
            failures = 0 if loop.time() - begun > STEADY_S else failures + 1
            log.info("relay: %s", self.trouble.message if self.trouble else "")
            await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])

    async def _live(self) -> None:
        port = ("--port", str(self._port)) if self._port else ()
        stream = await self._channel.stream((*self._argv, *port))
        self.lives += 1
        self.mux = Mux(stream, self._server)
        words = ""
        try:
            await self.mux.serve(self._up)
        finally:
            self.offer = None
            words = plain(await stream.close())
        if words:
            raise SiteError(f"the relay ended: {words}", _cure(words))

    _port = 0

    def _up(self, offer: Hello) -> None:
        self._port = offer.port
        self.offer, self.trouble = offer, None
        self._changed(offer)
        self._wake()

    def _trouble(self, error: WindfallError) -> None:
        self.trouble, self.offer = error, None
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _cure(words: str) -> str:
    """Return the cure of a relay that could not start: the site's `python` runs it from the pilot's file."""
    if re.search("not found|no such file|syntaxerror|permission denied", words.lower()):
        return 'is there a Python 3.6 or newer on the head node?  Name it in the site\'s file: python = "…"'
    return ""
