"""Frames between a relay and who started it: many connections over one pair of pipes.

    kind (1 byte) · connection (4) · length (4) · so many bytes

    HELLO    relay → home, first of all: what it offers, as JSON; connection 0
    OPEN     relay → home: somebody has come; a number that is free
    DATA     both ways, never beyond the credit
    CREDIT   both ways: so many bytes more may be sent (a number of 4 bytes)
    CLOSE    both ways, once each: nothing more comes from here.  When both have said it the number is free
    PING     home → relay; PONG its answer: silence means that the other end is gone

Nothing here names an address: a relay has one server behind it and cannot be asked for another.  What breaks a rule
is Malformed, and ends the whole relay: its two ends are of the same version, so it is a bug or an enemy.
"""

import struct

from windfall.errors import WindfallError

HELLO, OPEN, DATA, CREDIT, CLOSE, PING, PONG = range(1, 8)

HEADER = struct.Struct(">BII")
NUMBER = struct.Struct(">I")
PIECE = 1 << 16          # most bytes in one frame
WINDOW = 1 << 20         # credit of a new connection, each way
MAX_NUMBER = 1 << 31


class Malformed(WindfallError):
    """The other end does not keep the rules."""

    code = "malformed"


def frame(kind, number=0, payload=b""):
    return HEADER.pack(kind, number, len(payload)) + payload


def credit(number, count):
    return frame(CREDIT, number, NUMBER.pack(count))


def data(number, content):
    """Frames for content of any length."""
    if len(content) <= PIECE:
        return frame(DATA, number, content)
    return b"".join(frame(DATA, number, content[at:at + PIECE]) for at in range(0, len(content), PIECE))


def amount(payload):
    """What a CREDIT says."""
    if len(payload) != NUMBER.size:
        raise Malformed("a credit of {} bytes".format(len(payload)))
    return NUMBER.unpack(payload)[0]


class Decoder:
    """Bytes in, whole frames out."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, content):
        """[(kind, number, payload), …]"""
        buffer = self.buffer
        buffer += content
        frames, at = [], 0
        while len(buffer) - at >= HEADER.size:
            kind, number, length = HEADER.unpack_from(buffer, at)
            if not HELLO <= kind <= PONG or length > PIECE or number > MAX_NUMBER:
                raise Malformed("no frame begins like this: kind {}, {} bytes".format(kind, length))
            end = at + HEADER.size + length
            if len(buffer) < end:
                break
            frames.append((kind, number, bytes(buffer[at + HEADER.size:end])))
            at = end
        del buffer[:at]
        return frames


class Flow:
    """The credit of one connection, both ways."""

    __slots__ = ("credit", "room", "owed")

    def __init__(self):
        self.credit = WINDOW     # bytes that we may send
        self.room = WINDOW       # bytes that the other end may send
        self.owed = 0            # bytes that went on, for which no credit was given yet

    def earn(self, count):
        self.credit += count
        if self.credit > WINDOW:
            raise Malformed("more credit than there is room")

    def take(self, count):
        """So many bytes came."""
        self.room -= count
        if self.room < 0:
            raise Malformed("more bytes than there was credit")

    def passed(self, count):
        """So many bytes went on; returns the credit to be given for them now, or 0."""
        self.owed += count
        if self.owed < WINDOW // 2:
            return 0
        given, self.owed = self.owed, 0
        self.room += given
        return given
