"""The channel between the agent and a spawner: frames over a stream socket, and a table in shared memory.

A frame is a length and a marshalled value.  Both ends are the same interpreter, and marshal is several times faster
than JSON; no task ever holds an end of such a socket.  Runners execute the user's code, so another module reads their
results, with bounds (runners.py).

The table tells the agent what ran when a spawner dies.  Its first ROW holds the serial number of the last task begun;
a ROW for each slot then holds the attempt and the pid (0: none) of the process that runs there.
"""

import marshal
import struct

ROW = struct.Struct("=qq")
HEADER = struct.Struct("=I")
PIECE = 1 << 16          # bytes read at once; Python would map a larger buffer anew each time
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
        """Queue a value and send what the socket takes; return True when nothing is left to send."""
        data = self.dumps(value)
        self.outbox += HEADER.pack(len(data))
        self.outbox += data
        return self.push()

    def push(self):
        """Send what the socket takes; return True when nothing is left.  OSError when the other end is gone."""
        try:
            while self.outbox:
                sent = self.sock.send(self.outbox)
                del self.outbox[:sent]
        except BlockingIOError:
            pass
        return not self.outbox

    def receive(self):
        """Return the values that have come in whole; None when the other end is gone and nothing is left."""
        is_open = fill(self.sock, self.inbox)
        values = []
        while len(self.inbox) >= HEADER.size:
            size, = HEADER.unpack_from(self.inbox)
            if size > LIMIT:
                raise ValueError("a frame has {} bytes, more than {}".format(size, LIMIT))
            end = HEADER.size + size
            if len(self.inbox) < end:
                break
            values.append(self.loads(bytes(self.inbox[HEADER.size:end])))
            del self.inbox[:end]
        return values if is_open or values else None


def fill(sock, inbox):
    """Append the bytes that have come to `inbox`; return False when the other end is gone."""
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
