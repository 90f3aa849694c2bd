"""A small synchronous HTTP/1.1 client: one kept-alive connection over a Unix socket or TLS with a pinned certificate.

`http.client` would import the whole of `email`: 25 ms of every command's start.

Rules
  * `Http` repeats a repeatable request after a broken connection, and when the server says that trying again
    helps.  Repeatable are GET, HEAD, PUT, DELETE, a POST with an idempotency key, and a POST that its caller
    calls repeatable.
  * Bodies of unknown size are streamed.  Memory holds at most a block of them; JSON responses are held whole, and
    are bounded.
  * `Http` waits for a Unix socket only if a server has answered there before: without one, the server is not there.
  * Every failure is one of `errors.py`.
"""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from windfall import errors
from windfall.client.profile import Profile

if TYPE_CHECKING:
    import ssl

MAX_BODY = 256 << 20
MAX_HEAD = 64 << 10
MAX_LINE = 64 << 20
BLOCK = 256 << 10
TIMEOUT = 60.0
HEARTBEAT_TIMEOUT = 45.0  # three heartbeats of the server
PATIENCE = 30.0  # seconds in which a repeatable request is repeated
UPLOAD_BLOCK = 8 << 20


class _Broken(Exception):
    """The connection failed; the server may or may not have seen the request."""


class Request(NamedTuple):
    method: str
    path: str
    body: bytes | memoryview = b""
    headers: Mapping[str, str] = {}
    timeout: float = TIMEOUT


class Response:
    """Status and headers of a response.  Its methods read the body, whose end must come before the next request."""

    def __init__(self, reader: BinaryIO, method: str):
        self._reader = reader
        self.status, self.headers = _read_head(reader)
        self.closes = self.headers.get("connection", "").lower() == "close"
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        self._left: int | None = int(length) if length is not None and length.isdigit() else None
        if method == "HEAD" or self.status in (204, 304):
            self._chunked, self._left = False, 0
        elif self._left is None and not self._chunked:
            self.closes = True  # the body ends with the connection
        self._in_chunk = 0
        self.done = self._left == 0

    def read(self, size: int = BLOCK) -> bytes:
        """Return the bytes that have arrived, at most `size`; b"" at the end of the body."""
        if self.done:
            return b""
        try:
            data = self._read_chunked(size) if self._chunked else self._read_plain(size)
        except (OSError, ValueError) as error:
            raise _Broken(str(error)) from None
        self.done = self.done or not data
        return data

    def _read_plain(self, size: int) -> bytes:
        data = self._reader.read1(size if self._left is None else min(size, self._left))  # type: ignore[attr-defined]
        if self._left is not None:
            if not data:
                raise _Broken("the response was cut off")
            self._left -= len(data)
            self.done = self._left == 0
        return bytes(data)

    def _read_chunked(self, size: int) -> bytes:
        if self._in_chunk == 0:
            line = self._reader.readline(1024)
            if not line:
                raise _Broken("the response was cut off")
            self._in_chunk = int(line.split(b";")[0], 16)
            if self._in_chunk == 0:
                while self._reader.readline(MAX_HEAD) not in (b"\r\n", b"\n", b""):
                    pass
                self.done = True
                return b""
        data = self._reader.read1(min(size, self._in_chunk))  # type: ignore[attr-defined]
        if not data:
            raise _Broken("the response was cut off")
        self._in_chunk -= len(data)
        if self._in_chunk == 0:
            self._reader.readline(16)
        return bytes(data)

    def all(self) -> bytes:
        parts, total = [], 0
        while data := self.read():
            parts.append(data)
            total += len(data)
            if total > MAX_BODY:
                raise errors.WindfallError(f"the server's response is larger than {MAX_BODY >> 20} MiB")
        return b"".join(parts)

    def lines(self) -> Iterator[bytes]:
        rest = b""
        while data := self.read():
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
            if len(rest) > MAX_LINE:
                raise errors.WindfallError(f"the server sent a line of more than {MAX_LINE >> 20} MiB")
        if rest:
            yield rest


def _read_head(reader: BinaryIO) -> tuple[int, dict[str, str]]:
    line = reader.readline(MAX_HEAD)
    if not line:
        raise _Broken("the connection was closed")
    parts = line.decode("latin-1").split(None, 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise _Broken("the response is not HTTP")
    headers: dict[str, str] = {}
    total = 0
    while (line := reader.readline(MAX_HEAD)) not in (b"\r\n", b"\n"):
        total += len(line)
        if not line or total > MAX_HEAD:
            raise _Broken("the response's header was cut off")
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(parts[1]), headers


class Http:
    """Requests to one server over one connection.  Use one per thread."""

    def __init__(self, profile: Profile, patience: float = PATIENCE):
        self.profile, self.patience = profile, patience
        self._context: ssl.SSLContext | None = None
        self._socket: socket.socket | None = None
        self._reader: BinaryIO | None = None
        self._answered = False  # has the server ever accepted a connection?
        self._host, self._port = "localhost", 0
        if profile.server.startswith("https://"):
            self._host, self._port = host_port(profile.server)

    # --- connection ----------------------------------------------------------------------------------------

    def close(self) -> None:
        for each in (self._reader, self._socket):
            if each is not None:
                try:
                    each.close()
                except OSError:
                    pass
        self._socket = self._reader = None

    def __del__(self) -> None:
        """Close the connection of a client that its owner forgot to close; Python would warn of an open socket."""
        if getattr(self, "_socket", None) is not None:
            self.close()

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sibling(self) -> Http:
        """Return another connection to the same server, for a stream beside the calls."""
        other = Http(self.profile, self.patience)
        other._context, other._answered = self._context, self._answered
        return other

    def _connect(self, timeout: float) -> BinaryIO:
        if self._reader is not None and self._socket is not None:
            self._socket.settimeout(timeout)
            return self._reader
        try:
            sock = self._open_unix(timeout) if self.profile.server.startswith("unix:") else self._open_tls(timeout)
        except OSError as error:
            raise errors.NoServer(
                f"no server answers at {self.profile.server}: {error.strerror or error}",
                "check that it is running; 'windfall serve --pilot' starts one",
            ) from None
        reader = cast("BinaryIO", sock.makefile("rb", BLOCK))
        self._socket, self._reader, self._answered = sock, reader, True
        return reader

    def _open_unix(self, timeout: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(self.profile.server.removeprefix("unix:"))
        except OSError:
            sock.close()
            raise
        return sock

    def _open_tls(self, timeout: float) -> socket.socket:
        import ssl

        if self._context is None:
            self._context = _pinned(self.profile.certificate)
        sock = socket.create_connection((self._host, self._port), timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(sock)
        except ssl.SSLError as error:
            sock.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise errors.TrustError(
                    f"{self.profile.server} does not show the certificate that is pinned in server.json",
                    "if the server was set up anew, get its new server.json; else do not trust it",
                ) from None
            raise
        except OSError:
            sock.close()
            raise

    # --- requests ------------------------------------------------------------------------------------------

    def send(self, request: Request) -> Response:
        """Send a request once.  Raise NoServer when nothing listens, _Broken when the connection fails on the way."""
        reader = self._connect(request.timeout)
        assert self._socket is not None
        try:
            self._socket.sendall(self._head(request))
            if request.body:
                self._socket.sendall(request.body)
            return Response(reader, request.method)
        except (OSError, ValueError) as error:
            self.close()
            raise _Broken(str(error)) from None
        except _Broken:
            self.close()
            raise

    def _head(self, request: Request) -> bytes:
        host = self._host if not self._port else f"{self._host}:{self._port}"
        lines = [f"{request.method} {request.path} HTTP/1.1", f"Host: {host}",
                 f"Authorization: Bearer {self.profile.token}"]
        if request.body or request.method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(request.body)}")
        for name, value in request.headers.items():
            if "\r" in value or "\n" in value:
                raise errors.BadInput(f"the header {name} cannot contain a line break")
            lines.append(f"{name}: {value}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def retrying(self, attempt: Callable[[], Any], repeatable: bool) -> Any:
        """Call `attempt` until it succeeds, fails for good, or `patience` is over."""
        started, tries = time.monotonic(), 0
        while True:
            fresh = self._socket is None
            try:
                return attempt()
            except _Broken as broken:
                self.close()
                problem: errors.WindfallError = errors.NoServer(f"the connection to the server broke: {broken}")
                if not repeatable:
                    raise problem from None
                if not fresh and tries == 0:  # the server had closed an idle connection
                    tries += 1
                    continue
            except errors.WindfallError as error:
                if not self._may_repeat(error, repeatable):
                    raise
                problem = error
            tries += 1
            pause = _pause(tries, problem)
            if time.monotonic() - started + pause > self.patience:
                raise problem
            time.sleep(pause)

    def _may_repeat(self, error: errors.WindfallError, repeatable: bool) -> bool:
        if isinstance(error, errors.NoServer):  # the server has not seen the request
            worth_waiting = self._answered or not self.profile.server.startswith("unix:")
            return error.retry and worth_waiting
        return error.retry and repeatable

    # --- JSON ----------------------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        return self._call(Request("GET", path), repeatable=True)

    def delete(self, path: str) -> Any:
        return self._call(Request("DELETE", path), repeatable=True)

    def post(self, path: str, body: object, *, key: str = "", repeatable: bool = False) -> Any:
        """Send `body` as JSON; bytes are JSON already.  `key` is the request's idempotency key."""
        data = body if isinstance(body, bytes) else _dumps(body)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        return self._call(Request("POST", path, data, headers), repeatable=repeatable or bool(key))

    def _call(self, request: Request, repeatable: bool) -> Any:
        def attempt() -> Any:
            response = self.send(request)
            content = self.finish(response)
            if response.status >= 400:
                raise _error(response, content)
            return _loads(content) if content else {}

        return self.retrying(attempt, repeatable)

    def finish(self, response: Response) -> bytes:
        """Read the rest of a response's body."""
        content = response.all()
        if response.closes:
            self.close()
        return content

    # --- streams -------------------------------------------------------------------------------------------

    def open(self, path: str, headers: Mapping[str, str] | None = None, timeout: float = TIMEOUT) -> Response:
        """GET `path`; the caller reads the body."""

        def attempt() -> Response:
            response = self.send(Request("GET", path, headers=headers or {}, timeout=timeout))
            if response.status >= 400:
                raise _error(response, self.finish(response))
            return response

        response: Response = self.retrying(attempt, True)
        return response

    def chunks(self, path: str, follow: bool = False, timeout: float = TIMEOUT) -> Iterator[bytes]:
        """Yield the body of a response as it comes; raise NoServer when the connection breaks.

        With `follow`, `timeout` covers the head only: the body waits as long as a task is silent, and the system's
        keep-alive probes find a dead connection.
        """
        response = self.open(path, timeout=timeout)
        if follow and self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket.settimeout(None)
        try:
            while data := response.read():
                yield data
        except _Broken as broken:
            self.close()
            raise errors.NoServer(f"the connection to the server broke: {broken}") from None

    def stream(self, path: str) -> Iterator[Any]:
        """Yield newline-separated JSON values as they come; raise NoServer when the connection breaks."""
        for line in self.lines(path):
            yield _loads(line)

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a response as they come; raise NoServer when the connection breaks."""
        response = self.open(path, timeout=HEARTBEAT_TIMEOUT)
        try:
            yield from filter(bytes.strip, response.lines())
        except _Broken as broken:
            self.close()
            raise errors.NoServer(f"the connection to the server broke: {broken}") from None
        finally:
            if not response.done or response.closes:
                self.close()

    # --- blobs ---------------------------------------------------------------------------------------------

    def upload(self, sha: str, file: str | os.PathLike[str] | bytes) -> int:
        """Send the part of a file, or of bytes, that the server lacks; return the number of bytes sent."""
        sent = 0

        def attempt() -> None:
            nonlocal sent
            with io.BytesIO(file) if isinstance(file, bytes) else open(file, "rb") as stream:
                total = stream.seek(0, os.SEEK_END)
                at = self._received(sha)
                while at is not None:
                    before = at
                    at = self._put_block(sha, stream, at, total)
                    sent += max(0, (total if at is None else at) - before)

        self.retrying(attempt, True)
        return sent

    def _received(self, sha: str) -> int | None:
        """Return how many bytes of a blob the server has; None when it has all."""
        response = self.send(Request("HEAD", f"/v1/blobs/{sha}"))
        self.finish(response)
        if response.status == 200:
            return None
        if response.status != 404:
            raise _error(response, b"")
        return _number(response.headers.get("x-received"))

    def _put_block(self, sha: str, stream: BinaryIO, at: int, total: int) -> int | None:
        """Send the block at `at`; return the position of the next one, None when the blob is complete."""
        stream.seek(at)
        data = stream.read(UPLOAD_BLOCK)
        if not data and total:
            raise errors.BadInput("an input file changed while it was sent",
                                  "submit again, and leave the file alone meanwhile")
        span = f"bytes {at}-{at + len(data) - 1}/{total}" if data else "bytes */0"
        headers = {"Content-Range": span, "Content-Type": "application/octet-stream"}
        response = self.send(Request("PUT", f"/v1/blobs/{sha}", data, headers))
        content = self.finish(response)
        if response.status == 409 and "x-received" in response.headers:
            return _number(response.headers["x-received"])
        if response.status >= 400:
            raise _error(response, content)
        return None if response.status == 201 or at + len(data) >= total else at + len(data)

    def download(self, sha: str, stream: BinaryIO, size: int) -> None:
        """Write a blob to `stream`; after a broken connection continue at the byte where it broke."""
        start = stream.tell()

        def attempt() -> None:
            at = stream.tell() - start
            if at >= size and size:
                return
            response = self.open(f"/v1/blobs/{sha}", {"Range": f"bytes={at}-"} if at else {})
            if at and response.status != 206:
                stream.seek(start)
                stream.truncate()
            while data := response.read():
                stream.write(data)
            if response.closes:
                self.close()

        self.retrying(attempt, True)


# --- helpers ------------------------------------------------------------------------------------------------


def host_port(server: str) -> tuple[str, int]:
    host, _, port = server.removeprefix("https://").rstrip("/").rpartition(":")
    if not host or not port.isdigit():
        raise errors.NoServer(f"'{server}' is not the address of a server", "write it as https://host:port")
    return host.strip("[]"), int(port)


def _pinned(certificate: str) -> ssl.SSLContext:
    """Return a context that trusts this certificate alone, whatever host name it carries."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificate)
    except (ssl.SSLError, ValueError):
        raise errors.TrustError("the certificate in the profile cannot be read",
                                "get a new server.json from the server") from None
    return context


def _pause(tries: int, problem: errors.WindfallError) -> float:
    """Return the seconds before the next try: as the server asked, else doubling with jitter."""
    if problem.retry_after is not None:
        return float(problem.retry_after) + _jitter() * 0.1
    return min(5.0, 0.05 * float(1 << min(tries, 10))) * (0.5 + _jitter() / 2)


def _jitter() -> float:
    return os.urandom(1)[0] / 256  # `random` takes 3 ms to import


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _error(response: Response, content: bytes) -> errors.WindfallError:
    try:
        body = _loads(content) if content else None
    except errors.WindfallError:
        body = None
    if body is None:
        kind = next((k for k in _kinds(errors.Refused) if k.status == response.status), errors.WindfallError)
        error: errors.WindfallError = kind(f"the server answered {response.status} without a reason")
    else:
        error = errors.from_wire(body, response.status)
    after = response.headers.get("retry-after", "")
    if error.retry_after is None and after.isdigit():
        error.retry_after = int(after)
    return error


def _kinds(base: type[errors.WindfallError]) -> Iterator[type[errors.WindfallError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _dumps(body: object) -> bytes:
    import msgspec

    return msgspec.json.encode(body)


def _loads(content: bytes) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise errors.WindfallError(f"the server's response is not JSON: {error}") from None
