"""A connection through a shared file system, for hosts without any network.

    DIR/owner            who reads `up` now; a relay that finds another's name there leaves
    DIR/up/CONN.N        chunk N of the connection CONN, from the pilot: all connections in one folder, one listing
    DIR/down/CONN/N      chunk N to the pilot

Every file has one writer, is written under a hidden name, closed, renamed into place, and deleted by its one reader.
A reader lists the folder and opens each file anew, which is what NFS needs to tell the truth.  A chunk holds at most
1 MiB and says how many chunks of the other direction were taken; AHEAD of them may wait for that.  The folder is ours
alone (0700); what runs inside is TLS, so whoever could write here still could neither read nor say anything.

`dial` gives the pilot an ordinary socket; a thread carries between its other end and the files.
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

HEADER = struct.Struct(">4sBI")      # mark, flags, chunks taken of the other direction
MARK = b"WFs1"
END = 1
CHUNK = 1 << 20
AHEAD = 16                           # chunks with content that wait to be taken
FIRST, LONGEST = 0.02, 1.0           # seconds between two looks
GATHER = 0.002                       # seconds in which more may come for the same chunk


class Bad(Exception):
    """A chunk that is none."""


def folder(path):
    """`path`, if it is a folder of ours that is closed to others; else TrustError or NoServer."""
    try:
        about = os.lstat(path)
    except OSError as error:
        raise NoServer("no spool at {}: {}".format(path, error.strerror))
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise TrustError("{} is not a folder of ours".format(path))
    if about.st_mode & 0o077:
        raise TrustError("{} is open to others (mode {:04o})".format(path, about.st_mode & 0o777),
                         "chmod 700 {}".format(path))
    return path


def write(path, name, content, flags=0, taken=0):
    """Whole or not at all."""
    hidden = os.path.join(path, "." + name)
    fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(HEADER.pack(MARK, flags, taken))
            file.write(content)
        os.rename(hidden, os.path.join(path, name))
    except OSError:
        remove(hidden)
        raise


def read(path):
    """(flags, chunks taken, content) of a chunk, which is then deleted."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise Bad("{} is not a file of ours".format(path))
        content = file.read(HEADER.size + CHUNK + 1)
    if not HEADER.size <= len(content) <= HEADER.size + CHUNK:
        raise Bad("{} has {} bytes".format(path, len(content)))
    mark, flags, taken = HEADER.unpack_from(content)
    if mark != MARK:
        raise Bad("{} is no chunk".format(path))
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


class Sent:
    """One direction's numbers: what was written, and of that what is not taken yet."""

    def __init__(self):
        self.next = 0
        self.waiting = []            # numbers of chunks with content

    def room(self):
        return len(self.waiting) < AHEAD

    def wrote(self, content):
        if content:
            self.waiting.append(self.next)
        self.next += 1

    def taken(self, count):
        if count > self.next:
            raise Bad("{} chunks taken of {}".format(count, self.next))
        self.waiting = [number for number in self.waiting if number >= count]


class Came:
    """The other direction's: what was taken, and whether the other end has to be told."""

    def __init__(self):
        self.next = 0
        self.untold = 0

    def took(self, content):
        self.next += 1
        self.untold += bool(content)

    def told(self):
        self.untold = 0

    def owing(self):
        return self.untold >= AHEAD // 2


_lines = []              # of this process


def hang_up(seconds):
    """Before the process ends: every connection says so, and leaves no file behind."""
    for line in list(_lines):
        line.hang_up()
    until = clock.seconds() + seconds
    while _lines and clock.seconds() < until:
        time.sleep(0.01)


def dial(path):
    """A socket whose other end is, by way of the spool, at the relay.  Whether anybody reads there shows later."""
    base = folder(path)
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
        self.sent, self.came = Sent(), Came()
        self.ended = False
        os.mkdir(self.down, 0o700)
        self._write(b"")

    def run(self):
        try:
            self._carry()
        except (OSError, Bad):
            pass  # the connection is broken: whoever uses it sees its end
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
        pause = FIRST
        while not self.ended:
            content = self._from_pilot(pause)
            if content is None:
                return
            if content:
                self._write(content)
            if self._from_spool() or content:
                pause = FIRST
            else:
                pause = min(pause * 1.5, LONGEST)
            if self.came.owing():
                self._write(b"")

    def _from_pilot(self, pause):
        """What the pilot has to say, b"" after a while; None when it hung up."""
        if not self.sent.room():
            time.sleep(FIRST)
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
            if not _readable(self.sock, GATHER):
                break
        return b"".join(pieces)

    def _from_spool(self):
        """Hand on what has come, in order; was there anything?"""
        there = {name for name in os.listdir(self.down) if name.isdigit()}
        before = self.came.next
        while str(self.came.next) in there:
            flags, taken, content = read(os.path.join(self.down, str(self.came.next)))
            self.sent.taken(taken)
            self.came.took(content)
            if content:
                self.sock.sendall(content)
            if flags & END:
                self.ended = True
                break
        return self.came.next > before

    def _write(self, content, flags=0):
        write(self.up, "{}.{}".format(self.name, self.sent.next), content, flags, self.came.next)
        self.sent.wrote(content)
        self.came.told()

    def _leave(self):
        """Say so, unless nobody has ever read a word of it: then it never happened."""
        try:
            os.unlink(os.path.join(self.up, self.name + ".0"))
            for number in range(1, self.sent.next):
                remove(os.path.join(self.up, "{}.{}".format(self.name, number)))
            clear(self.down)
        except OSError:
            self._say_end()

    def _say_end(self):
        try:
            self._write(b"", END)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                clear(self.down)  # which tells as much


def _readable(sock, seconds):
    poller = select.poll()  # select() itself cannot, beyond 1024 descriptors
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(int(seconds * 1000)))
