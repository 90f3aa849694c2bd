"""Ownership of a folder by one process: a lock (flock) on a file in it, or a claim where there are no locks.

Some network file systems have no lock service, or one that does not answer.  There a process makes a claim, a file that
only one process can create, and renews it.  A claim that was not renewed for long was left behind, and one other
process can take it over.  Ages are computed by the file system's clock, since the clocks of hosts differ.
"""

import errno
import fcntl
import os
import threading

from windfall.pilot import clock

SECONDS = 10.0  # how long to wait for the lock service
RENEWED = 60.0  # seconds between renewals of a claim
OLD = 600.0  # seconds without a renewal after which another process may take a claim over
_BUSY = (errno.EAGAIN, errno.EACCES)


class Lock:
    """A lock on a folder, held until `release` or the end of the process."""

    def __init__(self, fd):
        self._fd = fd

    def renew(self):
        pass

    def release(self):
        os.close(self._fd)


class Claim:
    """A claim to a folder; `mark` is the content that this process wrote into its file."""

    def __init__(self, path, mark):
        self._path = path
        self._mark = mark
        self._renewed = clock.seconds()

    def renew(self):
        """Renew the claim if it is time to, unless another process took it over while this host slept."""
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
    """Return a Lock, or a Claim where locks do not work; None if another process holds the folder.

    OSError is raised where no process could hold it."""
    try:
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None  # its owner has just removed the folder
        raise
    got = _locked(fd)
    if got:
        return Lock(fd)
    os.close(fd)
    return _claimed(os.path.join(folder, "claim")) if got is None else None


def _locked(fd):
    """Lock a file; return False if another process has the lock, None if there is no working lock service."""
    answers = []

    def ask():
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            answers.append(True)
        except OSError as error:
            answers.append(False if error.errno in _BUSY else None)

    asking = threading.Thread(target=ask, daemon=True)  # only so can the pilot leave a call that hangs
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
    """Remove a claim that its owner left behind; return False unless this process did it.  Only one can rename it."""
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
    """Return the seconds since a claim was made or renewed, by the file system's clock."""
    mark = "{}.{}.now".format(path, os.urandom(6).hex())
    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        return os.stat(mark).st_mtime - os.stat(path).st_mtime
    finally:
        os.unlink(mark)
