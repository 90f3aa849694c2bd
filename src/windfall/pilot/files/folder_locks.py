"""Who holds a folder: told by a lock on a file in it, where the file system keeps locks.

Some do not: network file systems whose lock service is off, or does not answer.  There a claim has to do, a file that
only one can make.  Whoever made it renews it; one that has grown old was left behind, and only one can take it over.
Times are the file system's own: clocks of hosts differ.
"""

import errno
import fcntl
import os
import threading

from windfall.pilot import clock

SECONDS = 10.0  # for an answer to a lock
RENEWED = 60.0  # seconds between renewals of a claim
OLD = 600.0  # seconds after which a claim that was not renewed is nobody's
_BUSY = (errno.EAGAIN, errno.EACCES)


class Lock:
    """Held as long as its descriptor is open, or its process lives."""

    def __init__(self, fd):
        self._fd = fd

    def renew(self):
        pass

    def release(self):
        os.close(self._fd)


class Claim:
    """`mark`: what we wrote into it."""

    def __init__(self, path, mark):
        self._path = path
        self._mark = mark
        self._renewed = clock.seconds()

    def renew(self):
        """Cheap if it is not needed yet.  One that was taken over, since we slept for long, is not ours any more."""
        if clock.seconds() < self._renewed + RENEWED:
            return
        self._renewed = clock.seconds()
        try:
            if self._ours():
                os.utime(self._path, None)
        except OSError:
            pass

    def release(self):
        try:
            if self._ours():
                os.unlink(self._path)
        except OSError:
            pass

    def _ours(self):
        with open(self._path, "rb") as file:
            return file.read(100) == self._mark


def take(folder):
    """A lock or a claim, or None if somebody else has it; OSError if nobody can."""
    try:
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None  # it went meanwhile
        raise
    got = _locked(fd)
    if got:
        return Lock(fd)
    os.close(fd)
    return _claimed(os.path.join(folder, "claim")) if got is None else None


def _locked(fd):
    """True, or False if somebody else has it; None: there are no locks here, or nobody answers."""
    answers = []

    def ask():
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            answers.append(True)
        except OSError as error:
            answers.append(False if error.errno in _BUSY else None)

    asking = threading.Thread(target=ask, daemon=True)  # a call that hangs cannot be interrupted otherwise
    asking.start()
    asking.join(SECONDS)
    return answers[0] if answers else None


def _claimed(path):
    mark = os.urandom(8).hex().encode()
    for last in (False, True):
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(mark)
            return Claim(path, mark)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        if last or not _taken_over(path):
            return None
    return None


def _taken_over(path):
    """Is it nobody's any more?  Of all who try, one renames it."""
    aside = "{}.{}".format(path, os.urandom(6).hex())
    try:
        if _age(path) <= OLD:
            return False
        os.rename(path, aside)
        os.unlink(aside)
        return True
    except OSError:
        return False


def _age(path):
    """Seconds since it was made or renewed, by the clock of whoever keeps it."""
    mark = "{}.{}.now".format(path, os.urandom(6).hex())
    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        return os.stat(mark).st_mtime - os.stat(path).st_mtime
    finally:
        os.unlink(mark)
