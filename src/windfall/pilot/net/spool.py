"""A connection through a shared file system, for hosts without any network.

    DIR/owner            the name of the relay that reads `up`; a relay that finds another name there ends
    DIR/up/CONN.N        chunk N of the connection CONN, from the pilot: all connections in one folder, one listing
    DIR/down/CONN/N      chunk N of the connection CONN, to the pilot

Every file has one writer, is written under a hidden name, closed, renamed into place, and deleted by its one reader.
A reader lists the folder and opens each file anew: NFS shows it the newest state only then.  A chunk holds at most
1 MiB and says how many chunks of the other direction its writer has taken; MAX_UNTAKEN of them may wait for that.  The
folder belongs to one user (0700).  The chunks carry TLS, so an intruder who can write here can neither read nor forge.

`dial` gives the pilot an ordinary socket; a thread carries bytes between its other end and the files.
"""

import _thread
import errno
import os
import select
import socket
import stat
import struct
import time

from windfall.errors import NoServer, TrustError
from windfall.pilot import clock

HEADER = struct.Struct(">4sBI")      # magic number, flags, chunks taken of the other direction
MAGIC = b"WFs1"
END = 1
CHUNK = 1 << 20
MAX_UNTAKEN = 16                     # chunks with content that may wait to be taken
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0   # seconds between two listings
GATHER_SECONDS = 0.002               # how long to wait for more bytes for the same chunk


class BadChunk(Exception):
    """A file of the spool that is not a valid chunk."""


def check_folder(path):
    """Return `path` if it is a folder of this user that is closed to others; else raise TrustError or NoServer."""
    try:
        about = os.lstat(path)
    except OSError as error:
        raise NoServer("cannot read the spool {}: {}".format(path, error.strerror))
    if not stat.S_ISDIR(about.st_mode):
        raise TrustError("the spool {} is not a folder".format(path))
    if about.st_uid != os.geteuid():
        raise TrustError("the spool {} belongs to another user (uid {})".format(path, about.st_uid))
    if about.st_mode & 0o077:
        raise TrustError("the spool {} is open to other users (mode {:04o})".format(path, about.st_mode & 0o777),
                         "chmod 700 {}".format(path))
    return path


def write(path, name, content, flags=0, taken=0):
    """Write a chunk, whole or not at all."""
    hidden = os.path.join(path, "." + name)
    fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(HEADER.pack(MAGIC, flags, taken))
            file.write(content)
        os.rename(hidden, os.path.join(path, name))
    except OSError:
        remove(hidden)
        raise


def read(path):
    """Read and delete a chunk; return (flags, chunks taken of the other direction, content)."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise BadChunk("{} is not a regular file of this user".format(path))
        content = file.read(HEADER.size + CHUNK + 1)
    if not HEADER.size <= len(content) <= HEADER.size + CHUNK:
        raise BadChunk("{} has {} bytes, which no chunk has".format(path, len(content)))
    magic, flags, taken = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise BadChunk("{} does not begin as a chunk does".format(path))
    os.unlink(path)
    return flags, taken, content[HEADER.size:]


def remove(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def clear(path):
    """Remove a folder of chunks."""
    try:
        for name in os.listdir(path):
            remove(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        pass


class Written:
    """The chunks that this end has written: the next number, and which of them the other end has not taken."""

    def __init__(self):
        self.next = 0
        self.untaken = []            # numbers of chunks with content

    def has_room(self):
        return len(self.untaken) < MAX_UNTAKEN

    def add(self, content):
        if content:
            self.untaken.append(self.next)
        self.next += 1

    def note_taken(self, count):
        """Note that the other end has taken the first `count` chunks."""
        if count > self.next:
            raise BadChunk("the other end took {} chunks, of {} written".format(count, self.next))
        self.untaken = [number for number in self.untaken if number >= count]


class Taken:
    """The chunks that this end has taken: the next number, and how many of them the other end does not know of."""

    def __init__(self):
        self.next = 0
        self.untold = 0

    def add(self, content):
        self.next += 1
        self.untold += bool(content)

    def note_told(self):
        self.untold = 0

    def owes_notice(self):
        """Must the other end be told, so that it may write more?"""
        return self.untold >= MAX_UNTAKEN // 2


_lines = []              # the connections of this process


def hang_up(seconds):
    """End every connection before the process ends, so that none leaves a file behind."""
    for line in list(_lines):
        line.hang_up()
    until = clock.seconds() + seconds
    while _lines and clock.seconds() < until:
        time.sleep(0.01)


def dial(path):
    """Return a socket connected, through the spool, to the relay.  Whether a relay reads there shows later."""
    base = check_folder(path)
    name = os.urandom(8).hex()
    ours, theirs = socket.socketpair()
    try:
        line = _Line(base, name, theirs)
    except OSError as error:
        ours.close()
        theirs.close()
        raise NoServer("the spool {} cannot be used: {}".format(path, error.strerror))
    _lines.append(line)
    _thread.start_new_thread(line.run, ())
    return ours


class _Line:
    """The pilot's side of one connection; one thread."""

    def __init__(self, base, name, sock):
        self.up = os.path.join(base, "up")
        self.down = os.path.join(base, "down", name)
        self.name = name
        self.sock = sock
        self.written, self.taken = Written(), Taken()
        self.ended = False
        os.mkdir(self.down, 0o700)
        self._write(b"")

    def run(self):
        try:
            self._carry()
        except (OSError, BadChunk):
            pass  # the connection is broken: the pilot sees the end of its socket
        finally:
            self.sock.close()
            self._leave()
            _lines.remove(self)

    def hang_up(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _carry(self):
        pause = FIRST_PAUSE
        while not self.ended:
            content = self._read_pilot(pause)
            if content is None:
                return
            if content:
                self._write(content)
            if self._read_spool() or content:
                pause = FIRST_PAUSE
            else:
                pause = min(pause * 1.5, LONGEST_PAUSE)
            if self.taken.owes_notice():
                self._write(b"")

    def _read_pilot(self, pause):
        """Return what the pilot sends, b"" if that is nothing for `pause` seconds; None when it hung up."""
        if not self.written.has_room():
            time.sleep(FIRST_PAUSE)
            return b""
        if not _readable(self.sock, pause):
            return b""
        pieces, size = [], 0
        while size < CHUNK:
            piece = self.sock.recv(CHUNK - size)
            if not piece:
                return b"".join(pieces) or None
            pieces.append(piece)
            size += len(piece)
            if not _readable(self.sock, GATHER_SECONDS):
                break
        return b"".join(pieces)

    def _read_spool(self):
        """Hand the chunks that have come to the pilot, in order; return True if there were any."""
        names = {name for name in os.listdir(self.down) if name.isdigit()}
        before = self.taken.next
        while str(self.taken.next) in names:
            flags, taken, content = read(os.path.join(self.down, str(self.taken.next)))
            self.written.note_taken(taken)
            self.taken.add(content)
            if content:
                self.sock.sendall(content)
            if flags & END:
                self.ended = True
                break
        return self.taken.next > before

    def _write(self, content, flags=0):
        write(self.up, "{}.{}".format(self.name, self.written.next), content, flags, self.taken.next)
        self.written.add(content)
        self.taken.note_told()

    def _leave(self):
        """Delete the connection's files if no relay has read its first chunk; else write its end."""
        try:
            os.unlink(os.path.join(self.up, self.name + ".0"))
            for number in range(1, self.written.next):
                remove(os.path.join(self.up, "{}.{}".format(self.name, number)))
            clear(self.down)
        except OSError:
            self._write_end()

    def _write_end(self):
        try:
            self._write(b"", END)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                clear(self.down)  # the relay takes a missing folder for the end


def _readable(sock, seconds):
    poller = select.poll()  # select() cannot watch descriptors beyond 1024
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(int(seconds * 1000)))
