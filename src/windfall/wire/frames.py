"""Frames that carry many connections over one pair of pipes, between a relay and the process that started it (home).

    kind (1 byte) · connection (4) · length (4) · payload of that length

    HELLO    relay → home, before anything else: the relay's offer, as JSON; connection 0
    OPEN     relay → home: a pilot has connected; the connection's number was free
    DATA     both ways, never beyond the credit
    CREDIT   both ways: the other end may send this many bytes more (a number of 4 bytes)
    CLOSE    both ways, once each: this end sends nothing more.  After both CLOSEs the number is free
    PING     home → relay, answered by PONG: silence means that the other end is gone

No frame names an address: a relay has one server behind it and cannot be asked for another.  A frame that breaks a
rule is Malformed and ends the whole relay: both ends are of the same version, so it is a bug or an attack.
"""

import struct

from windfall.errors import WindfallError

HELLO, OPEN, DATA, CREDIT, CLOSE, PING, PONG = range(1, 8)

HEADER = struct.Struct(">BII")
NUMBER = struct.Struct(">I")
PIECE = 1 << 16          # bytes of payload in one frame, at most
WINDOW = 1 << 20         # credit of a new connection, each way
MAX_NUMBER = 1 << 31


class Malformed(WindfallError):
    """A frame that breaks the protocol."""

    code = "malformed"


def frame(kind, number=0, payload=b""):
    return HEADER.pack(kind, number, len(payload)) + payload


def credit(number, count):
    return frame(CREDIT, number, NUMBER.pack(count))


def data(number, content):
    """Return the DATA frames for content of any length."""
    if len(content) <= PIECE:
        return frame(DATA, number, content)
    return b"".join(frame(DATA, number, content[at:at + PIECE]) for at in range(0, len(content), PIECE))


def credit_of(payload):
    """Return the number of bytes that a CREDIT frame allows."""
    if len(payload) != NUMBER.size:
        raise Malformed("a CREDIT frame has {} bytes instead of {}".format(len(payload), NUMBER.size))
    return NUMBER.unpack(payload)[0]


class Decoder:
    """Incremental parser: bytes in, whole frames out."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, content):
        """Return the frames that `content` completes, as [(kind, number, payload)]."""
        buffer = self.buffer
        buffer += content
        frames, at = [], 0
        while len(buffer) - at >= HEADER.size:
            kind, number, length = HEADER.unpack_from(buffer, at)
            if not HELLO <= kind <= PONG or length > PIECE or number > MAX_NUMBER:
                raise Malformed("a frame of kind {} with {} bytes for connection {}".format(kind, length, number))
            end = at + HEADER.size + length
            if len(buffer) < end:
                break
            frames.append((kind, number, bytes(buffer[at + HEADER.size:end])))
            at = end
        del buffer[:at]
        return frames


class CreditWindow:
    """Flow control of one connection, both ways."""

    __slots__ = ("credit", "room", "owed")

    def __init__(self):
        self.credit = WINDOW     # bytes this end may send
        self.room = WINDOW       # bytes the other end may send
        self.owed = 0            # bytes handed on for which the other end has no new credit yet

    def earn(self, count):
        self.credit += count
        if self.credit > WINDOW:
            raise Malformed("the other end gave more credit than a window holds")

    def take(self, count):
        """Charge bytes that came in against the other end's credit."""
        self.room -= count
        if self.room < 0:
            raise Malformed("the other end sent more bytes than its credit")

    def passed(self, count):
        """Note that bytes were handed on; return the credit to give for them now, or 0."""
        self.owed += count
        if self.owed < WINDOW // 2:
            return 0
        given, self.owed = self.owed, 0
        self.room += given
        return given
