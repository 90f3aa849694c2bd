"""Frames between our own processes: a length and a marshalled value over a stream socket.

Marshal, because both ends are the same interpreter and it is several times faster than JSON; no task ever holds
an end of such a socket.  Runners execute the user's code, so what they say is taken apart with care (see runners.py).
"""

import marshal
import struct

HEADER = struct.Struct("=I")
PIECE = 1 << 16          # a larger buffer would be mapped anew each time
LIMIT = 256 << 20


class Frames:
    """Both directions over one socket that does not block."""

    def __init__(self, sock, dumps=marshal.dumps, loads=marshal.loads):
        sock.setblocking(False)
        self.sock = sock
        self.dumps = dumps
        self.loads = loads
        self.inbox = bytearray()
        self.outbox = bytearray()

    def fileno(self):
        return self.sock.fileno()

    def close(self):
        self.sock.close()

    def send(self, value):
        """Queue a value and push; True when nothing is left to be sent."""
        data = self.dumps(value)
        self.outbox += HEADER.pack(len(data))
        self.outbox += data
        return self.push()

    def push(self):
        """Raises OSError when the other end is gone."""
        try:
            while self.outbox:
                sent = self.sock.send(self.outbox)
                del self.outbox[:sent]
        except BlockingIOError:
            pass
        return not self.outbox

    def receive(self):
        """Values that have come in whole; None when the other end is gone and nothing is left."""
        open_ = fill(self.sock, self.inbox)
        values = []
        while len(self.inbox) >= HEADER.size:
            size, = HEADER.unpack_from(self.inbox)
            if size > LIMIT:
                raise ValueError("a frame of {} bytes".format(size))
            end = HEADER.size + size
            if len(self.inbox) < end:
                break
            values.append(self.loads(bytes(self.inbox[HEADER.size:end])))
            del self.inbox[:end]
        return values if open_ or values else None


def fill(sock, inbox):
    """Add what has come to `inbox`; False when the other end is gone."""
    try:
        while True:
            data = sock.recv(PIECE)
            if not data:
                return False
            inbox += data
            if len(data) < PIECE:
                return True
    except BlockingIOError:
        return True
    except OSError:
        return False
