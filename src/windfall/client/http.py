"""A small synchronous HTTP/1.1 client: one kept-alive connection over a Unix socket or TLS with a pinned certificate.

Written out because `http.client` brings the whole of `email` with it, 25 ms of every command's start.

Rules
  * A request that may be repeated is: after a broken connection, and when the server says that trying again
    helps.  What may be repeated: GET, HEAD, PUT, DELETE, and a POST with an idempotency key or said by the
    caller to be harmless twice.
  * Bodies of unknown size are streamed; nothing larger than a block is held here, but for JSON answers, which
    are bounded.
  * A Unix socket where nothing ever answered is not waited for: its server is not there.  One that did answer is.
  * Every failure is one of `errors.py`.
"""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from windfall import errors
from windfall.client.profile import Profile

if TYPE_CHECKING:
    import ssl

MAX_ANSWER = 256 << 20
MAX_HEAD = 64 << 10
MAX_LINE = 64 << 20
BLOCK = 256 << 10
TIMEOUT = 60.0
HEARTBEAT = 45.0  # three of the server's
PATIENCE = 30.0  # seconds of trying again before giving up


class _Broken(Exception):
    """The connection failed; the server may or may not have seen the request."""


class Answer:
    """Status and headers; the body is read through the methods, to its end, before the connection is used again."""

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
            self.closes = True  # ends with the connection
        self._in_chunk = 0
        self.done = self._left == 0

    def read(self, size: int = BLOCK) -> bytes:
        """At most `size` bytes, b"" at the end; what has arrived, without waiting for more."""
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
                raise _Broken("the answer was cut off")
            self._left -= len(data)
            self.done = self._left == 0
        return bytes(data)

    def _read_chunked(self, size: int) -> bytes:
        if self._in_chunk == 0:
            line = self._reader.readline(1024)
            if not line:
                raise _Broken("the answer was cut off")
            self._in_chunk = int(line.split(b";")[0], 16)
            if self._in_chunk == 0:
                while self._reader.readline(MAX_HEAD) not in (b"\r\n", b"\n", b""):
                    pass
                self.done = True
                return b""
        data = self._reader.read1(min(size, self._in_chunk))  # type: ignore[attr-defined]
        if not data:
            raise _Broken("the answer was cut off")
        self._in_chunk -= len(data)
        if self._in_chunk == 0:
            self._reader.readline(16)
        return bytes(data)

    def all(self) -> bytes:
        parts, total = [], 0
        while data := self.read():
            parts.append(data)
            total += len(data)
            if total > MAX_ANSWER:
                raise errors.WindfallError("the server's answer is larger than anything it should send")
        return b"".join(parts)

    def lines(self) -> Iterator[bytes]:
        rest = b""
        while data := self.read():
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
            if len(rest) > MAX_LINE:
                raise errors.WindfallError("the server sent a line without end")
        if rest:
            yield rest


def _read_head(reader: BinaryIO) -> tuple[int, dict[str, str]]:
    line = reader.readline(MAX_HEAD)
    if not line:
        raise _Broken("the connection was closed")
    parts = line.decode("latin-1").split(None, 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise _Broken("what answers does not speak HTTP")
    headers: dict[str, str] = {}
    total = 0
    while (line := reader.readline(MAX_HEAD)) not in (b"\r\n", b"\n"):
        total += len(line)
        if not line or total > MAX_HEAD:
            raise _Broken("the answer's head was cut off")
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(parts[1]), headers


class Http:
    """Requests to one server.  Not for several threads at once; each may have its own."""

    def __init__(self, profile: Profile, patience: float = PATIENCE):
        self.profile, self.patience = profile, patience
        self._context: ssl.SSLContext | None = None
        self._socket: socket.socket | None = None
        self._reader: BinaryIO | None = None
        self._met = False  # has it ever answered?
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

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sibling(self) -> Http:
        """Another connection to the same server, for a stream beside the calls."""
        other = Http(self.profile, self.patience)
        other._context, other._met = self._context, self._met
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
                "is it running? 'windfall serve --pilot' starts one",
            ) from None
        reader = cast("BinaryIO", sock.makefile("rb", BLOCK))
        self._socket, self._reader, self._met = sock, reader, True
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
                    f"{self.profile.server} does not show the certificate we know",
                    "if the server was set up anew, get its server.json again",
                ) from None
            raise
        except OSError:
            sock.close()
            raise

    # --- requests ------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: bytes | memoryview = b"",
        headers: dict[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> Answer:
        """One attempt.  Raises NoServer when nothing listens, _Broken when the connection fails on the way."""
        reader = self._connect(timeout)
        assert self._socket is not None
        try:
            self._socket.sendall(self._head(method, path, len(body), headers))
            if body:
                self._socket.sendall(body)
            return Answer(reader, method)
        except (OSError, ValueError) as error:
            self.close()
            raise _Broken(str(error)) from None
        except _Broken:
            self.close()
            raise

    def _head(self, method: str, path: str, length: int, headers: dict[str, str] | None) -> bytes:
        host = self._host if not self._port else f"{self._host}:{self._port}"
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {self.profile.token}"]
        if length or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {length}")
        for name, value in (headers or {}).items():
            if "\r" in value or "\n" in value:
                raise errors.BadInput(f"the header {name} cannot contain a line break")
            lines.append(f"{name}: {value}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def retrying(self, attempt: Callable[[], Any], repeatable: bool) -> Any:
        """Call `attempt` until it succeeds, fails for good, or patience is out."""
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
                if not fresh and tries == 0:  # it had been idle, and was closed: nothing is wrong
                    tries += 1
                    continue
            except errors.WindfallError as error:
                absent = isinstance(error, errors.NoServer)
                if not error.retry or not (repeatable or absent) or (absent and not self._worth_waiting):
                    raise
                problem = error
            tries += 1
            pause = _pause(tries, problem)
            if time.monotonic() - started + pause > self.patience:
                raise problem
            time.sleep(pause)

    @property
    def _worth_waiting(self) -> bool:
        return self._met or not self.profile.server.startswith("unix:")

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes = b"",
        key: str = "",
        repeatable: bool | None = None,
    ) -> Any:
        """JSON in, JSON out."""
        data = raw or (b"" if body is None else _dumps(body))
        headers = {"Content-Type": "application/json"} if data else {}
        if key:
            headers["Idempotency-Key"] = key
        if repeatable is None:
            repeatable = method != "POST" or bool(key)

        def attempt() -> Any:
            answer = self.request(method, path, data, headers)
            content = self.finish(answer)
            if answer.status >= 400:
                raise _error(answer, content)
            return _loads(content) if content else {}

        return self.retrying(attempt, repeatable)

    def finish(self, answer: Answer) -> bytes:
        content = answer.all()
        if answer.closes:
            self.close()
        return content

    def open(self, path: str, headers: dict[str, str] | None = None, timeout: float = TIMEOUT) -> Answer:
        """GET, with the body left to be read; errors are raised."""

        def attempt() -> Answer:
            answer = self.request("GET", path, headers=headers, timeout=timeout)
            if answer.status >= 400:
                raise _error(answer, self.finish(answer))
            return answer

        found: Answer = self.retrying(attempt, True)
        return found

    def stream(self, path: str) -> Iterator[Any]:
        """Newline-separated JSON, as it comes.  Ends with the stream; a broken one raises NoServer."""
        for line in self.lines(path):
            yield _loads(line)

    def lines(self, path: str) -> Iterator[bytes]:
        """The same, not decoded."""
        answer = self.open(path, timeout=HEARTBEAT)
        try:
            yield from filter(bytes.strip, answer.lines())
        except _Broken as broken:
            self.close()
            raise errors.NoServer(f"the connection to the server broke: {broken}") from None
        finally:
            if not answer.done or answer.closes:
                self.close()

    # --- blobs ---------------------------------------------------------------------------------------------

    def upload(self, sha: str, file: str | os.PathLike[str] | bytes) -> int:
        """Send what the server lacks of a file, or of bytes; returns the bytes sent."""
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
        """How much of a blob lies there; None: all of it."""
        answer = self.request("HEAD", f"/v1/blobs/{sha}")
        self.finish(answer)
        if answer.status == 200:
            return None
        if answer.status != 404:
            raise _error(answer, b"")
        return _number(answer.headers.get("x-received"))

    def _put_block(self, sha: str, stream: BinaryIO, at: int, total: int) -> int | None:
        """Send one piece from `at`; returns where to go on, None when the blob is complete."""
        stream.seek(at)
        data = stream.read(UPLOAD_BLOCK)
        if not data and total:
            raise errors.BadInput("an input changed while it was sent", "leave it alone until the bag is submitted")
        span = f"bytes {at}-{at + len(data) - 1}/{total}" if data else "bytes */0"
        answer = self.request(
            "PUT", f"/v1/blobs/{sha}", data, {"Content-Range": span, "Content-Type": "application/octet-stream"}
        )
        content = self.finish(answer)
        if answer.status == 409 and "x-received" in answer.headers:
            return _number(answer.headers["x-received"])
        if answer.status >= 400:
            raise _error(answer, content)
        return None if answer.status == 201 or at + len(data) >= total else at + len(data)

    def download(self, sha: str, stream: BinaryIO, size: int) -> None:
        """Write a blob to `stream`, going on where a broken connection left it."""
        start = stream.tell()

        def attempt() -> None:
            at = stream.tell() - start
            if at >= size and size:
                return
            answer = self.open(f"/v1/blobs/{sha}", {"Range": f"bytes={at}-"} if at else {})
            if at and answer.status != 206:
                stream.seek(start)
                stream.truncate()
            while data := answer.read():
                stream.write(data)
            if answer.closes:
                self.close()

        self.retrying(attempt, True)


UPLOAD_BLOCK = 8 << 20


# --- small ones ------------------------------------------------------------------------------------------------


def host_port(server: str) -> tuple[str, int]:
    host, _, port = server.removeprefix("https://").rstrip("/").rpartition(":")
    if not host or not port.isdigit():
        raise errors.NoServer(f"'{server}' is not https://host:port")
    return host.strip("[]"), int(port)


def _pinned(certificate: str) -> ssl.SSLContext:
    """Trusts this one certificate and nothing else; its name does not matter, it is the one we were given."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificate)
    except (ssl.SSLError, ValueError):
        raise errors.TrustError("the profile's certificate cannot be read", "get a new server.json") from None
    return context


def _pause(tries: int, problem: errors.WindfallError) -> float:
    """Seconds before trying again: what the server asked for, else doubling, spread."""
    if problem.retry_after is not None:
        return float(problem.retry_after) + _chance() * 0.1
    return min(5.0, 0.05 * float(1 << min(tries, 10))) * (0.5 + _chance() / 2)


def _chance() -> float:
    return os.urandom(1)[0] / 256  # `random` takes 3 ms to import


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _error(answer: Answer, content: bytes) -> errors.WindfallError:
    try:
        body = _loads(content) if content else None
    except errors.WindfallError:
        body = None
    if body is None:
        kind = next((k for k in _kinds(errors.Refused) if k.status == answer.status), errors.WindfallError)
        error: errors.WindfallError = kind(f"the server answered {answer.status} without saying why")
    else:
        error = errors.from_wire(body, answer.status)
    after = answer.headers.get("retry-after", "")
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
        raise errors.WindfallError(f"the server's answer is not JSON: {error}") from None
