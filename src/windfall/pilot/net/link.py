"""An HTTP/1.1 connection to the server, over a route that works (routes.py).

This small client replaces `http.client`, which takes 30 ms to import and cannot be driven by a poller.
`begin` and `pump` serve the agent's loop (socket not blocking); `call` serves threads (socket blocking).
"""

import socket
from collections import namedtuple

from windfall.errors import WindfallError
from windfall.wire.messages import MAX_MESSAGE

PIECE = 1 << 18
MAX_HEAD = 64 << 10


class Broken(WindfallError):
    """The connection failed before a whole answer came; the request may be sent again."""

    code = "broken"
    retry = True


class HttpRequest(namedtuple("HttpRequest", "method path headers body")):
    """An HTTP request."""

    __slots__ = ()

    def __new__(cls, method, path, headers=(), body=b""):
        return super().__new__(cls, method, path, headers, body)


class Reply:
    __slots__ = ("status", "headers", "body")

    def __init__(self, status, headers):
        self.status = status
        self.headers = headers
        self.body = b""

    def retry_after(self):
        """Return how many seconds the server asks the pilot to wait, or None."""
        try:
            return max(0.0, float(self.headers.get("retry-after", "")))
        except ValueError:
            return None


class _Reader:
    """Incremental parser: bytes in, one Reply out.  The body of a success (2xx) goes to `sink` if there is one."""

    def __init__(self, bodiless, sink):
        self.bodiless = bodiless
        self.sink = sink
        self.buffer = bytearray()
        self.reply = None
        self.pieces = []
        self.kept = 0
        self.left = None     # bytes of the body still to come; None: until the connection ends
        self.chunked = False
        self.done = False

    def feed(self, data):
        self.buffer += data
        if self.reply is None and not self._head():
            return
        if self.chunked:
            self._chunks()
        else:
            self._plain()

    def end(self):
        """Note that the server has closed the connection; raise Broken if the answer is not whole."""
        if self.reply is not None and self.left is None and not self.chunked:
            self._finish()
        if not self.done:
            raise Broken("the server closed the connection")

    def _head(self):
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > MAX_HEAD:
                raise Broken("the answer's headers are longer than {} bytes".format(MAX_HEAD))
            return False
        lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        del self.buffer[:end + 4]
        parts = lines[0].split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
            raise Broken("the answer is not HTTP")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        status = int(parts[1])
        if 100 <= status < 200:
            return bool(self.buffer) and self._head()
        self.reply = Reply(status, headers)
        self._expect(headers)
        return True

    def _expect(self, headers):
        if self.bodiless or self.reply.status in (204, 304):
            self.left = 0
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            self.chunked = True
        elif headers.get("content-length", "").isdigit():
            self.left = int(headers["content-length"])
        if not 200 <= self.reply.status < 300:
            self.sink = None

    def _plain(self):
        if self.left is None:
            self._body(bytes(self.buffer))
            del self.buffer[:]
            return
        if self.buffer:
            piece = bytes(self.buffer[:self.left])
            del self.buffer[:self.left]
            self.left -= len(piece)
            self._body(piece)
        if self.left == 0:
            self._finish()

    def _chunks(self):
        while not self.done:
            end = self.buffer.find(b"\r\n")
            if end < 0:
                return
            try:
                size = int(bytes(self.buffer[:end]).split(b";")[0], 16)
            except ValueError:
                raise Broken("the answer's chunks are malformed")
            if size > MAX_MESSAGE:
                raise Broken("the answer has a chunk of {} bytes".format(size))
            if len(self.buffer) < end + 2 + size + 2:
                return
            self._body(bytes(self.buffer[end + 2:end + 2 + size]))
            del self.buffer[:end + 4 + size]
            if size == 0:
                self._finish()

    def _body(self, piece):
        if not piece:
            return
        if self.sink is not None:
            self.sink(piece)
            return
        self.kept += len(piece)
        if self.kept > MAX_MESSAGE:
            raise Broken("the answer is larger than {} bytes".format(MAX_MESSAGE))
        self.pieces.append(piece)

    def _finish(self):
        self.reply.body = b"".join(self.pieces)
        self.done = True


class HttpLink:
    """A connection that carries one request at a time."""

    def __init__(self, routes):
        self.routes = routes
        self.route = None        # the route of the last connection
        self.sock = None
        self.out = memoryview(b"")
        self.cut = False         # the server closed before it had the whole request
        self.reader = None

    def connect(self):
        """Connect, blocking.  Raise NoServer, or TrustError when another server answers."""
        self.close()
        self.sock, self.route = self.routes.connect()
        return self

    def where(self):
        return self.route.shown()

    def fileno(self):
        return self.sock.fileno()

    def silent(self):
        """Is the request under way without a byte of its answer?"""
        return self.reader is not None and self.reader.reply is None and not self.reader.buffer

    def abort(self):
        """Break the connection from another thread, so that the thread waiting for it goes on."""
        sock = self.sock
        if sock is not None:
            try:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's own shutdown is not for other threads
            except OSError:
                pass

    def close(self):
        if self.sock is not None:
            try:
                self.sock.close()
            except OSError:
                pass
        self.sock = None
        self.reader = None

    def begin(self, request, sink=None):
        """Queue a request; `pump` sends it and receives the answer."""
        method, path, headers, body = request
        head = ["{} {} HTTP/1.1".format(method, path),
                "Host: {}".format(self.route.host())]
        head.extend("{}: {}".format(*pair) for pair in headers)
        if body or method in ("POST", "PUT"):
            head.append("Content-Length: {}".format(len(body)))
        data = ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")
        # One write for small requests: two would wait for Nagle's algorithm and the server's delayed ACK.
        self.out = memoryview(data + body)
        self.cut = False
        self.reader = _Reader(method == "HEAD", sink)

    def pump(self):
        """Send and receive as far as the socket allows; return the Reply when it is whole, else None.  Raise Broken."""
        try:
            while self.out:
                self._send_some()
            while not self.reader.done:
                data = self.sock.recv(PIECE)
                if not data:
                    self.reader.end()
                else:
                    self.reader.feed(data)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                return None
            raise Broken("the connection broke: {}".format(error.strerror or error))
        return self._whole()

    def _send_some(self):
        try:
            self.out = self.out[self.sock.send(self.out):]
        except (BrokenPipeError, ConnectionResetError):
            # A server that refuses a long body answers and closes: read its answer.
            self.out = memoryview(b"")
            self.cut = True

    def _whole(self):
        reader, self.reader = self.reader, None
        endless = reader.left is None and not reader.chunked
        if self.cut or endless or reader.reply.headers.get("connection", "").lower() == "close":
            self.close()
        return reader.reply

    def call(self, request, sink=None, timeout=60.0):
        """Send a request and return the reply, blocking.  Connect when needed, and again if a kept connection broke."""
        fresh = self.sock is None
        if fresh:
            self.connect()
        try:
            return self._call(request, sink, timeout)
        except Broken:
            self.close()
            if fresh or sink is not None:
                raise
            self.connect()
            return self._call(request, sink, timeout)

    def _call(self, request, sink, timeout):
        self.sock.settimeout(timeout)
        self.begin(request, sink)
        reply = self.pump()
        if reply is None:  # the blocking socket timed out
            raise Broken("the server did not answer within {:.0f} s".format(timeout))
        return reply
