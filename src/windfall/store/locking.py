"""One writer, and locks that can be believed.

Rules
  * The lock lies in a file of its own beside the journal.  POSIX drops all of a process's locks on a file when it
    closes *any* descriptor of it, so nobody but SQLite may ever open the journal while it is in use.
  * It is held as long as the journal is open.  The file also says who holds it: the note is for people, the lock
    decides.
  * Before it is believed it is tried: a second descriptor asks for the same lock, once the modern way (which belongs to
    the descriptor) and once the way SQLite asks (which belongs to the process).  Both must be refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

from windfall.errors import LocksUnreliable, StoreLocked

_BUSY = (errno.EAGAIN, errno.EACCES)
_OWN_DESCRIPTOR: int | None = getattr(fcntl, "F_OFD_SETLK", None)
_MOVE = "move the data directory to a local disk (WINDFALL_HOME says where it lies)"


class Lock:
    """Held from `take` to `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Lock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not _try_lock(descriptor, path):
                raise StoreLocked(
                    f"another server has {path.parent} open: {_read_note(descriptor)}",
                    "talk to that server, or stop it first",
                )
            _prove(path)
            _write_note(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    def release(self) -> None:
        if self._descriptor >= 0:
            try:
                os.ftruncate(self._descriptor, 0)
            finally:
                os.close(self._descriptor)
                self._descriptor = -1


def holder(path: Path) -> str:
    """Who the note says holds the lock: for messages only."""
    try:
        return path.read_text(errors="replace")[:200].strip() or "an unnamed process"
    except OSError:
        return "an unnamed process"


def _try_lock(descriptor: int, path: Path) -> bool:
    """False: somebody else has it."""
    try:
        if _OWN_DESCRIPTOR is None:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(descriptor, _OWN_DESCRIPTOR, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise _no_locks(path, error) from error
    return True


def _try_classic(descriptor: int, path: Path) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise _no_locks(path, error) from error
    return True


def _no_locks(path: Path, error: OSError) -> LocksUnreliable:
    return LocksUnreliable(f"the file system of {path.parent} does not keep locks: {error.strerror}", _MOVE)


def _prove(path: Path) -> None:
    """We hold the lock: everybody else must be refused."""
    lied = _child_gets_it(path) if _OWN_DESCRIPTOR is None else _second_descriptor_gets_it(path)
    if lied:
        raise LocksUnreliable(f"the file system of {path.parent} gives the same lock to two at once", _MOVE)


def _second_descriptor_gets_it(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _try_lock(descriptor, path) or _try_classic(descriptor, path)
    finally:
        os.close(descriptor)


def _child_gets_it(path: Path) -> bool:
    """Where locks belong to processes, another process has to ask."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(1 if _try_classic(os.open(path, os.O_RDWR), path) else 0)
        except BaseException:  # nothing may leave the child
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def _write_note(descriptor: int) -> None:
    note = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note, 0)
    except OSError:
        pass  # a full disk must not keep the server from starting


def _read_note(descriptor: int) -> str:
    return os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "an unnamed process"
