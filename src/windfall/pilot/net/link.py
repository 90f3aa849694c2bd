"""One HTTP/1.1 connection to the server, over whichever of the ways to it works (ways.py).

A small client of our own, because `http.client` costs 30 ms to import and cannot be driven by a poller.
`begin` and `pump` serve the agent's loop (socket not blocking); `call` serves threads (socket blocking).
"""

import socket

from windfall.errors import WindfallError
from windfall.wire.messages import MAX_MESSAGE

PIECE = 1 << 18
MAX_HEAD = 64 << 10


class Broken(WindfallError):
    """The connection failed before a whole answer came; the request may be sent again."""

    code = "broken"
    retry = True


class Reply:
    __slots__ = ("status", "headers", "body")

    def __init__(self, status, headers):
        self.status = status
        self.headers = headers
        self.body = b""

    def retry_after(self):
        """Seconds the server asks us to wait, or None."""
        try:
            return max(0.0, float(self.headers.get("retry-after", "")))
        except ValueError:
            return None


class _Reader:
    """Bytes in, one Reply out.  A body goes to `sink` piece by piece if there is one and all is well (2xx)."""

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
        """The peer closed."""
        if self.reply is not None and self.left is None and not self.chunked:
            self._finish()
        if not self.done:
            raise Broken("the server closed the connection")

    def _head(self):
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > MAX_HEAD:
                raise Broken("the answer's headers do not end")
            return False
        lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        del self.buffer[:end + 4]
        parts = lines[0].split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
            raise Broken("what answers is not HTTP")
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


class Link:
    """A connection that carries one request at a time."""

    def __init__(self, ways):
        self.ways = ways
        self.way = None          # the one it took last
        self.sock = None
        self.out = memoryview(b"")
        self.cut = False         # the server would not hear the end of the request
        self.reader = None

    def connect(self):
        """Blocking.  Raises NoServer, or TrustError when what answers is not our server."""
        self.close()
        self.sock, self.way = self.ways.connect()
        return self

    def where(self):
        return self.way.shown()

    def fileno(self):
        return self.sock.fileno()

    def silent(self):
        """Has nothing come yet in answer to the request under way?"""
        return self.reader is not None and self.reader.reply is None and not self.reader.buffer

    def abort(self):
        """From another thread: whoever waits for this connection waits no longer."""
        sock = self.sock
        if sock is not None:
            try:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS's own, which is not for other threads
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

    def begin(self, method, path, headers, body=b"", *, sink=None):
        """Queue one request; `pump` moves it."""
        head = ["{} {} HTTP/1.1".format(method, path),
                "Host: {}".format(self.way.host())]
        head.extend("{}: {}".format(*pair) for pair in headers)
        if body or method in ("POST", "PUT"):
            head.append("Content-Length: {}".format(len(body)))
        data = ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")
        # One write for small requests: two would cost a round trip to Nagle's and the peer's delayed ACK.
        self.out = memoryview(data + body)
        self.cut = False
        self.reader = _Reader(method == "HEAD", sink)

    def pump(self):
        """Send and receive what can be; the Reply when it is whole, else None.  Raises Broken."""
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
            # Whoever refuses a long body says why and hangs up: hear it.
            self.out = memoryview(b"")
            self.cut = True

    def _whole(self):
        reader, self.reader = self.reader, None
        endless = reader.left is None and not reader.chunked
        if self.cut or endless or reader.reply.headers.get("connection", "").lower() == "close":
            self.close()
        return reader.reply

    def call(self, method, path, headers, body=b"", *, sink=None, timeout=60.0):
        """Blocking request and reply.  Connects when needed; tries once more when a kept connection had gone stale."""
        fresh = self.sock is None
        if fresh:
            self.connect()
        try:
            return self._call((method, path, headers, body), sink, timeout)
        except Broken:
            self.close()
            if fresh or sink is not None:
                raise
            self.connect()
            return self._call((method, path, headers, body), sink, timeout)

    def _call(self, request, sink, timeout):
        self.sock.settimeout(timeout)
        self.begin(*request, sink=sink)
        reply = self.pump()
        if reply is None:  # a time-out of a blocking socket
            raise Broken("the server did not answer within {:.0f} s".format(timeout))
        return reply
