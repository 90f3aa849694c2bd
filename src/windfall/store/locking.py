"""The lock that keeps a second server from a journal, and a check that the file system's locks work.

Rules
  * The lock is on a separate file beside the journal.  POSIX drops all of a process's locks on a file when the process
    closes *any* descriptor of it, so only SQLite may open the journal while it is in use.
  * The server holds the lock while the journal is open.  A note in the file tells people who holds it; only the lock
    itself decides.
  * Before the server trusts a lock, it tests it: a second descriptor asks for the same lock, once by the modern call
    (whose locks belong to the descriptor) and once by the call that SQLite uses (whose locks belong to the process).
    The file system must refuse both.
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
_WHOLE_FILE = (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # the fields of struct flock
_MOVE = "move the data directory to a local disk (WINDFALL_HOME tells where it lies)"


class Lock:
    """The lock, held from `take` to `release`."""

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
                    "use that server, or stop it first",
                )
            _check_exclusive(path)
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
    """Return the holder that the note names, for messages only."""
    try:
        return path.read_text(errors="replace")[:200].strip() or "an unnamed process"
    except OSError:
        return "an unnamed process"


def _try_lock(descriptor: int, path: Path) -> bool:
    """Take the lock by the call whose locks belong to the descriptor; return False if another descriptor has it."""
    try:
        if _OWN_DESCRIPTOR is None:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(descriptor, _OWN_DESCRIPTOR, struct.pack("hhqqi4x", *_WHOLE_FILE))
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


def _check_exclusive(path: Path) -> None:
    """Raise LocksUnreliable if the file system grants the lock, which this process holds, a second time."""
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
    """Return whether a child process gets the lock: where locks belong to processes, only another one can test."""
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
