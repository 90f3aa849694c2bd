"""HTTP/1.1 on httptools, without a framework: connections, requests and responses.

Rules
  * A connection handles one request at a time; requests that a client sends ahead wait in its socket, not in memory.
    While the client does not read an answer, the server reads nothing more from it.
  * The handler of a *fast* route is a plain function, called as soon as the request has arrived.  It may answer later:
    a parked poll is one entry in a table, not a coroutine.  The handlers of all other routes are coroutines.
  * Each route bounds the size of its body.  A *streaming* route takes the body in pieces; the connection stops reading
    while the handler is busy.
  * There is no timer per connection: one sweep closes connections that are idle or too slow.
  * An error of `errors.py` becomes its status; anything else becomes 500 with a number that is also in the log.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from itertools import islice
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, unquote

import httptools
import msgspec

from windfall.errors import BadInput, NotFound, Overloaded, TooLarge, Unavailable, WindfallError
from windfall.server.http import memory

log = logging.getLogger("windfall.server")
json = msgspec.json.Encoder()

MAX_HEAD = 32 << 10  # bytes of a request's line and headers
MAX_BUFFERED = 512 << 20  # bytes of all bodies being received
MAX_OWNED = 384 << 20  # of them, those of one owner
MAX_UNSENT = 64 << 20  # bytes of answers that one owner's clients may leave unread
STEP = 2 << 10  # bytes that the parser takes at once outside a body: a few requests that were sent ahead
CHUNKED_STEP = 16 << 10  # inside a body without a stated length
MAX_UNWANTED = 4 << 20  # bytes of a refused body that the server still reads, so that the client reads the refusal
HIGH_WATER = 256 << 10  # bytes of a streamed body that may wait for their handler
IDLE_S = 120  # until the sweep closes a connection without a request
SILENT_S = 20  # until the sweep closes a connection that never had one
CROWD = 100  # connections that end before the server gives memory back to the system
PATIENCE_S = 2.0  # of silence before a connection may have to make room for another
AT_ONCE = 1_000  # connections looked at for room
DAWDLE_S = 30  # that a request may be late or silent before the sweep refuses it
SLOWEST = 4 << 10  # bytes a second, from a request's first byte on: a slower request is late

JSON = b"application/json"
NDJSON = b"application/x-ndjson"
BYTES = b"application/octet-stream"
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
Headers = tuple[tuple[str, str], ...]
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Route(NamedTuple):
    method: str
    path: str  # a parameter is "{}"
    handler: Callable[..., Any]
    scope: str = "user"  # which tokens may call it: a key of `auth._SCOPES`; "": no token needed
    limit: int = 1 << 20  # bytes of its body
    fast: bool = False
    streaming: bool = False
    takes: Any = None  # type of the request's body, for the OpenAPI document
    gives: Any = None  # type of the response's body
    summary: str = ""  # for the OpenAPI document


class Disconnected(ConnectionError):
    """The client closed the connection."""


class Response(NamedTuple):
    body: bytes = b""
    status: int = 200
    kind: bytes = JSON
    headers: Headers = ()


class Request:
    """A request, with the methods that answer it."""

    __slots__ = (
        "_pieces", "_wake", "answered", "args", "began", "body", "complete", "connection", "expects", "headers", "keep",
        "method", "on_gone", "path", "query", "refusal", "route", "size", "who",
    )

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.began = connection.since
        self.method = self.path = self.query = ""
        self.headers: dict[bytes, bytes] = {}
        self.route: Route | None = None
        self.args: tuple[str, ...] = ()
        self.who: Any = None  # the token's record
        self.body: bytes | bytearray = b""
        self.size = 0
        self.refusal: WindfallError | None = None
        self.complete = self.answered = self.expects = False
        self.keep = True
        self.on_gone: Callable[[], None] | None = None
        self._pieces: deque[bytes] | None = None
        self._wake: asyncio.Future[None] | None = None

    # --- the request ------------------------------------------------------------------------------------------

    @property
    def owner(self) -> str:
        return self.who.owner if self.who is not None else ""

    def header(self, name: bytes, default: str = "") -> str:
        value = self.headers.get(name)
        return default if value is None else value.decode("latin-1")

    def option(self, name: str, default: str = "") -> str:
        for key, value in parse_qsl(self.query, keep_blank_values=True):
            if key == name:
                return value
        return default

    def number(self, name: str, default: int) -> int:
        text = self.option(name)
        if not text:
            return default
        if len(text) > 16:
            raise BadInput(f"the parameter '{name}' is too large: {text[:40]}")
        try:
            return int(text)
        except ValueError:
            raise BadInput(f"the parameter '{name}' is not a number: {text[:40]}") from None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body of a streaming route as it arrives."""
        if self.expects:
            self.connection.write(_CONTINUE)
        assert self._pieces is not None
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self.connection.taken(self, len(piece))
                yield piece
            if self.complete:
                return
            if self.connection.closed:
                raise Disconnected
            await self._more()

    async def _more(self) -> None:
        self._wake = self.connection.server.loop.create_future()
        await self._wake
        self._wake = None

    def wake(self) -> None:
        """Wake the handler that waits for more of the body."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # --- the answer -------------------------------------------------------------------------------------------

    def reply(self, body: bytes, status: int = 200, kind: bytes = JSON, headers: Headers = ()) -> None:
        """Send the whole response at once."""
        if self.answered or self.connection.closed:
            return
        if len(body) > HIGH_WATER and self.connection.server.unsent(self.owner) + len(body) > MAX_UNSENT:
            self.fail(overloaded("too many answers to this user wait for clients that do not read them"))
            return
        self.answered = True
        head = [_LINES[status], b"content-type: ", kind, b"\r\ncontent-length: %d\r\n" % len(body)]
        self._finish_head(head, headers)
        if self.method == "HEAD":
            body = b""
        if len(body) < 65536:
            head.append(body)
            self.connection.write(b"".join(head))
        else:
            self.connection.write(b"".join(head))
            self.connection.write(body)
        self.connection.done(self)

    def _finish_head(self, head: list[bytes], headers: Headers) -> None:
        for name, value in headers:
            head.append(f"{name}: {value}\r\n".encode("latin-1"))
        if not self.keep:
            head.append(b"connection: close\r\n")
        head.append(b"\r\n")

    def fail(self, error: WindfallError) -> None:
        """Send an error; if that fails too, abort the connection, so that the client does not wait for ever."""
        try:
            self._fail(error)
        except Exception:  # the process goes on
            log.exception("an error could not be sent; its connection was aborted")
            self.connection.abort()

    def _fail(self, error: WindfallError) -> None:
        headers: Headers = ()
        if error.status in (429, 503, 507):
            headers = (("Retry-After", str(max(1, round(error.retry_after or 1)))),)
        if not self.complete:
            self.keep = False  # the rest of the body would be read as the next request
        self.reply(_encode_error(error), error.status, JSON, headers)

    def start(self, kind: bytes, length: int | None = None, status: int = 200,
              headers: Headers = ()) -> Stream:
        """Start a response in pieces; without `length`, as chunks."""
        if self.connection.closed:
            raise Disconnected
        self.answered = True
        size = b"transfer-encoding: chunked\r\n" if length is None else b"content-length: %d\r\n" % length
        head = [_LINES[status], b"content-type: ", kind, b"\r\n", size]
        self._finish_head(head, headers)
        self.connection.write(b"".join(head))
        return Stream(self, chunked=length is None)


class Stream:
    """A response being sent in pieces."""

    def __init__(self, request: Request, chunked: bool) -> None:
        self._request = request
        self._connection = request.connection
        self._chunked = chunked

    @property
    def closed(self) -> bool:
        return self._connection.closed

    async def write(self, data: bytes) -> None:
        if self._connection.closed:
            raise Disconnected
        if data:
            self._connection.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        await self._connection.drained()

    def end(self) -> None:
        if self._chunked:
            self._connection.write(b"0\r\n\r\n")
        self._connection.done(self._request)

    def abort(self) -> None:
        """Close the connection, so that the client notices an incomplete response."""
        self._connection.close()


class Connection(asyncio.Protocol):
    __slots__ = (
        "_ahead", "_reading", "_unsent", "_url", "_waiting", "_writable", "closed", "head", "local", "owner", "parser",
        "peer", "request", "server", "silent", "since", "transport",
    )

    def __init__(self, server: HttpServer, local: bool) -> None:
        self.server = server
        self.local = local  # a Unix socket
        self.transport: asyncio.Transport | None = None
        self.parser: Any = None
        self.request: Request | None = None  # arriving, or being handled
        self.head = 0
        self.closed = False
        self.since = 0.0
        self.peer = ""
        self._url = b""
        self._waiting: deque[Request] | None = None  # requests sent ahead
        self._ahead = b""  # bytes sent ahead that the parser has not taken
        self._reading = True
        self._unsent = 0  # bytes of answers that the client does not read
        self.owner = ""  # of the newest request's token
        self.silent = True  # has had no request
        self._writable: asyncio.Future[None] | None = None

    # --- of the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.server.full():
            self.transport.abort()
            self.closed = True
            return
        self.parser = httptools.HttpRequestParser(self)
        if not self.local:
            name = transport.get_extra_info("peername")
            self.peer = str(name[0]) if name else ""
        self.since = self.server.loop.time()
        self.server.connections[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.server.forget(self)
        self.parser = None
        self._hold(b"")
        self.resume_writing()
        request, self.request = self.request, None
        for ahead in self._waiting or ():
            self._account(ahead)
        if request is not None:
            if request._pieces is None:
                self._account(request)  # the handler of a streaming route may still take pieces
            request.wake()
            if request.on_gone is not None:
                request.on_gone()

    def data_received(self, data: bytes) -> None:
        if self.parser is None:
            return
        self.since = self.server.loop.time()
        if self._ahead:
            self._hold(self._ahead + data)
        elif len(data) <= STEP:
            self._parse(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Parse the body that arrives, but of requests sent ahead only a few; hold the rest until they are answered."""
        rest = memoryview(data)
        size = self._step()
        self._parse(rest[:size])
        while (rest := rest[size:]) and self.parser is not None and not self._waiting and self._in_body():
            size = self._step()
            self._parse(rest[:size])
        if rest and self.parser is not None:
            self._hold(bytes(rest))
            self._go_on()

    def _in_body(self) -> bool:
        request = self.request
        return request is not None and request.route is not None and not request.complete

    def _step(self) -> int:
        """Return how many bytes the parser may take at once."""
        request = self.request
        if request is None or not self._in_body() or self._waiting:
            return STEP
        length = request.headers.get(b"content-length")
        return CHUNKED_STEP if length is None else max(int(length) - request.size, 1)

    def _hold(self, data: bytes) -> None:
        """Keep bytes that the parser may not take yet, and read no more meanwhile."""
        self.server.buffered += len(data) - len(self._ahead)
        self._ahead = data
        if data:
            self._read(False)

    def _may_go_on(self) -> bool:
        """Are all earlier requests answered, and have their answers been sent?"""
        return not (self._waiting or self.stuck or (self.request is not None and self.request.complete))

    def _go_on(self) -> None:
        """Take what was sent ahead, in another turn of the loop; or read on."""
        if self._may_go_on():
            if self._ahead:
                self.server.loop.call_soon(self._take_ahead)
            else:
                self._read(True)

    def _take_ahead(self) -> None:
        data = self._ahead
        if data and self.parser is not None and self._may_go_on():
            self._hold(b"")
            self._take(data)
            if not self._ahead:
                self._go_on()

    def _parse(self, data: bytes | memoryview) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(BadInput("this server speaks HTTP/1.1 only: it cannot upgrade the connection"))
        except httptools.HttpParserCallbackError as error:
            self.refuse(_cause(error))
        except httptools.HttpParserError:
            self.refuse(BadInput("the request is not HTTP/1.1"))

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self.server.loop.create_future()

    def resume_writing(self) -> None:
        waiting, self._writable = self._writable, None
        self.server.count_unsent(self.owner, -self._unsent)
        self._unsent = 0
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        if not self.closed and self.request is None:
            self._next()

    def belong_to(self, owner: str) -> None:
        """Count the connection, and what its client leaves unread, as this owner's from now on."""
        if owner != self.owner:
            self.server.count_unsent(self.owner, -self._unsent)
            self.server.count_unsent(owner, self._unsent)
            self.owner = owner

    async def drained(self) -> None:
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def write(self, data: bytes) -> None:
        if not self.closed and self.transport is not None:
            self.transport.write(data)
            if self.stuck:
                self._unsent += len(data)
                self.server.count_unsent(self.owner, len(data))

    def close(self) -> None:
        if not self.closed and self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        if not self.closed and self.transport is not None:
            self.transport.abort()

    @property
    def stuck(self) -> bool:
        """Has the client stopped reading the response?"""
        return self._writable is not None

    # --- of the parser ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.head = 0
        self._url = b""
        request = Request(self)
        self.silent = False
        if self.request is None and not self._waiting and not self.stuck:
            self.request = request
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(request)
        self._read(False)

    def _arriving(self) -> Request:
        request = self._waiting[-1] if self._waiting else self.request
        assert request is not None
        return request

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        headers = self._arriving().headers
        name = name.lower()
        if name in headers:
            if name in (b"host", b"authorization", b"content-length", b"content-range", b"origin"):
                raise BadInput(f"the header {name.decode('latin-1')} is repeated")
            value = headers[name] + b", " + value
        headers[name] = value

    def _count(self, size: int) -> None:
        self.head += size
        if self.head > MAX_HEAD:
            raise TooLarge(f"the request's line and headers are larger than {MAX_HEAD} bytes")

    def on_headers_complete(self) -> None:
        request = self._arriving()
        request.method = self.parser.get_method().decode()
        request.keep = self.parser.should_keep_alive()
        request.path, request.query = _target(self._url)
        request.expects = b"expect" in request.headers
        try:
            self.server.find(request)
        except WindfallError as error:
            self._refuse_later(request, error)
            return
        if request.route is not None and request.route.streaming:
            request._pieces = deque()
            if request is self.request:
                self._start(request)
        elif request.expects:
            self.write(_CONTINUE)

    def _refuse_later(self, request: Request, error: WindfallError) -> None:
        """Refuse a request after its body, if that is short: a client that is cut off while it sends reads no
        answer."""
        request.refusal = error
        length = request.headers.get(b"content-length", b"0")
        if request.expects or int(length) > MAX_UNWANTED:
            raise error

    def on_body(self, data: bytes) -> None:
        request = self._arriving()
        request.size += len(data)
        if request.refusal is not None:
            if request.size > MAX_UNWANTED:
                raise request.refusal
            return
        assert request.route is not None
        self.server.receive(request.owner, len(data))
        if request.size > request.route.limit:
            raise _too_large(request.route)
        if request._pieces is None:
            self._collect(request, data)
            return
        request._pieces.append(data)
        request.wake()
        if sum(map(len, request._pieces)) > HIGH_WATER:
            self._read(False)

    def _collect(self, request: Request, data: bytes) -> None:
        if not request.body:
            request.body = data
            return
        if type(request.body) is bytes:
            request.body = bytearray(request.body)
        request.body += data

    def on_message_complete(self) -> None:
        request = self._arriving()
        request.complete = True
        if request._pieces is not None:
            request.wake()
        elif request is self.request:
            self._start(request)

    # --- one after the other ----------------------------------------------------------------------------------

    def _start(self, request: Request) -> None:
        if request._pieces is None:
            self._account(request)
        if request.refusal is not None:
            request.fail(request.refusal)
        else:
            self.server.handle(request)

    def discard(self, request: Request) -> None:
        """Drop the pieces that the request's handler did not take."""
        if request._pieces:
            self._account(request)

    def _account(self, request: Request) -> None:
        """Subtract the request's body from the bytes held by the server."""
        if request._pieces is None:
            if request.refusal is None:
                self.server.release(request.owner, request.size)
            request.size = 0
        else:
            self.server.release(request.owner, sum(map(len, request._pieces)))
            request._pieces.clear()

    def taken(self, request: Request, size: int) -> None:
        self.server.release(request.owner, size)
        if not self._reading and not self._waiting and not self._ahead:
            self._read(True)

    def _read(self, on: bool) -> None:
        if self._reading == on or self.closed or self.transport is None:
            return
        self._reading = on
        (self.transport.resume_reading if on else self.transport.pause_reading)()

    def done(self, request: Request) -> None:
        """Go on to the next request after an answer has been written, or close the connection."""
        self.since = self.server.loop.time()
        if not request.keep or not request.complete or self.parser is None or self.server.stopping:
            self.close()
            return
        self.request = None
        if self.stuck:
            self._read(False)
        else:
            self._next()

    def _next(self) -> None:
        """Begin with the next request that was sent ahead, or read on."""
        if self._waiting:
            self.request = self._waiting.popleft()
            if self.request.complete or self.request._pieces is not None:
                self.server.loop.call_soon(self._start, self.request)
        self._go_on()

    def refuse(self, error: WindfallError) -> None:
        """Answer unreadable bytes with an error and close; a request that is being handled gets its own answer
        first."""
        request = self.request or Request(self)
        request.keep = False
        self.parser = None
        if self._waiting or (request.complete and not request.answered):
            return
        if not request.answered:
            request.fail(error)
        self.close()


class HttpServer:
    """The open connections, and the table of routes."""

    def __init__(self, routes: list[Route], authenticate: Callable[[Request], None], guard: Callable[[Request], None],
                 limit: int = 20_000) -> None:
        self.loop = asyncio.get_running_loop()
        self.connections: dict[Connection, None] = {}  # oldest first
        self.tasks: set[asyncio.Task[None]] = set()
        self.buffered = 0
        self._owned: dict[str, int] = {}  # of `buffered`: bytes of one owner's bodies
        self._unsent: dict[str, int] = {}  # bytes of answers that an owner's clients do not read
        self._ended = 0  # connections since memory was given back
        self.served = 0
        self.stopping = False
        self.limit = limit
        self._authenticate = authenticate
        self._guard = guard
        self._routes = {(r.method, r.path): r for r in routes}
        self._sweeper = self.loop.call_later(15, self.sweep)

    def full(self) -> bool:
        """Is there no room for another connection?  Old ones that never had a request make room."""
        if len(self.connections) >= self.limit:
            now = self.loop.time()
            for connection in list(islice(self.connections, AT_ONCE)):
                if connection.silent and now - connection.since > PATIENCE_S:
                    connection.abort()
                    self.forget(connection)
        return len(self.connections) >= self.limit

    def forget(self, connection: Connection) -> None:
        if self.connections.pop(connection, self) is None:
            self._ended += 1

    def count_unsent(self, owner: str, more: int) -> None:
        _add(self._unsent, owner, more)

    def unsent(self, owner: str) -> int:
        return self._unsent.get(owner, 0)

    def receive(self, owner: str, more: int) -> None:
        """Count bytes of a body that arrives; raise if there are too many."""
        self.buffered += more
        _add(self._owned, owner, more)
        if self.buffered > MAX_BUFFERED or self._owned[owner] > MAX_OWNED:
            raise Unavailable("the server is receiving too many large bodies at once", "try again in a moment",
                              retry_after=1)

    def release(self, owner: str, size: int) -> None:
        self.buffered -= size
        _add(self._owned, owner, -size)

    # --- from request to handler ------------------------------------------------------------------------------

    def find(self, request: Request) -> None:
        """Check headers, route, token and size before the server takes the first byte of a body."""
        self._guard(request)
        request.route, request.args = self._match(request.method, request.path)
        self._authenticate(request)
        request.connection.belong_to(request.owner)
        length = request.headers.get(b"content-length")
        if length is not None and int(length) > request.route.limit:
            raise _too_large(request.route)

    def _match(self, method: str, path: str) -> tuple[Route, tuple[str, ...]]:
        route = self._routes.get((method, path))
        if route is not None and "{" not in path:  # the path itself may be a template's text
            return route, ()
        parts = path.split("/")
        args = tuple(parts[i] for i in (3, 5) if i < len(parts))
        for i in range(3, min(len(parts), 6), 2):
            parts[i] = "{}"
        route = self._routes.get((method, "/".join(parts)))
        if route is None:
            raise NotFound(f"there is no call {method} {path[:200]}", "GET /v1/openapi.json lists the calls")
        return route, args

    def handle(self, request: Request) -> None:
        self.served += 1
        route = request.route
        assert route is not None
        if route.fast:
            try:
                route.handler(request)
            except Exception as error:  # the process goes on
                request.fail(to_client_error(error))
            return
        task = self.loop.create_task(self._run(request, route.handler))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _run(self, request: Request, handler: Callable[[Request], Awaitable[Response | None]]) -> None:
        try:
            answer = await handler(request)
            if answer is not None:
                request.reply(*answer)
        except (Disconnected, asyncio.CancelledError):
            request.connection.close()
        except Exception as error:  # the process goes on
            if request.answered:
                to_client_error(error)
                request.connection.close()
            else:
                await _drain_body(request)
                request.fail(to_client_error(error))
        finally:
            request.connection.discard(request)

    # --- housekeeping -----------------------------------------------------------------------------------------

    def sweep(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            request = connection.request
            quiet = now - connection.since
            if connection.stuck and quiet > IDLE_S:
                connection.abort()
            elif request is None and quiet > (SILENT_S if connection.silent else IDLE_S):
                connection.close()
            elif request is not None and not request.complete and max(quiet, _late(request, now)) > DAWDLE_S:
                connection.refuse(BadInput("the request does not arrive"))
        self._give_back_memory()
        self._sweeper = self.loop.call_later(15, self.sweep)

    def _give_back_memory(self) -> None:
        """Give freed memory back to the system after many connections have ended."""
        if self._ended > CROWD:
            self._ended = 0
            self.loop.run_in_executor(None, memory.trim)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Close every connection, after `grace_s` at most for requests that are being handled."""
        self.stopping = True
        self._sweeper.cancel()
        for connection in list(self.connections):
            if connection.request is None:
                connection.close()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=grace_s)
        for task in self.tasks:
            task.cancel()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)


# --- helpers --------------------------------------------------------------------------------------------------

_numbers = itertools.count(1)


def to_client_error(error: Exception) -> WindfallError:
    """Return the error to send to the client; log the details of an internal error under the number that it names."""
    if isinstance(error, WindfallError):
        return error
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        return BadInput(str(error))
    if isinstance(error, RecursionError):
        return BadInput("the body is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return BadInput("a text in the body is not UTF-8", "send JSON as UTF-8")
    number = next(_numbers)
    log.exception("internal error %d", number, exc_info=error)
    return WindfallError(f"internal error {number}", "look in the server's log for this number")


def _encode_error(error: WindfallError) -> bytes:
    """Encode an error; replace lone surrogates, which a quotation from a request may contain."""
    try:
        return json.encode(error.to_wire())
    except UnicodeEncodeError:
        fields = error.to_wire()["error"]
        clean = {k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in fields.items()}
        return json.encode({"error": clean})


def _late(request: Request, now: float) -> float:
    """Return by how many seconds a request is later than one that arrives at SLOWEST bytes a second."""
    return now - request.began - request.size / SLOWEST


def _cause(error: BaseException) -> WindfallError:
    inner = error.__context__ or error.__cause__ or error
    return to_client_error(inner if isinstance(inner, Exception) else BadInput("bad request"))


async def _drain_body(request: Request) -> None:
    """Read the rest of a short refused body: the client reads the refusal only after it has sent all."""
    size = 0
    if request._pieces is None or request.complete or (request.expects and not request.size):
        return
    with suppress(Disconnected):
        async for piece in request.pieces():
            size += len(piece)
            if size > MAX_UNWANTED:
                return


def _too_large(route: Route) -> TooLarge:
    return TooLarge(f"the body is larger than {route.limit} bytes", "send less at once")


def _target(url: bytes) -> tuple[str, str]:
    if not url.startswith(b"/"):
        raise BadInput("the request's target does not begin with '/'")
    path, _, query = url.decode("latin-1").partition("?")
    return (unquote(path) if "%" in path else path), query


def reply_json(value: Any, status: int = 200, headers: Headers = ()) -> Response:
    return Response(json.encode(value), status, JSON, headers)


def _add(counts: dict[str, int], owner: str, more: int) -> None:
    count = counts.get(owner, 0) + more
    if count:
        counts[owner] = count
    else:
        counts.pop(owner, None)


def overloaded(message: str = "the server has too many requests waiting") -> WindfallError:
    return Overloaded(message, "try again in a moment", retry_after=1)
