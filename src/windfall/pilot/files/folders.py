"""The pilot's folders, closed to other users (0700).

    DIR/cache          blobs, shared by the pilots of this directory
    DIR/environments   packed Python environments, unpacked, by hash; the least recently used are evicted
    DIR/outbox/RUN     undelivered results; --outbox puts them elsewhere, where other programs find them
    DIR/run-RUN        scratch of one pilot, locked while the pilot lives and removed when it ends
"""

import fcntl
import os

from windfall.errors import BadInput
from windfall.pilot.run import slot


class Folders:
    def __init__(self, base=None, outbox=None):
        self.own = base is None      # the pilot made the base directory, so it removes it
        self.base = os.path.abspath(base) if base else _fresh()
        self.name = "{:x}-{}".format(os.getpid(), os.urandom(4).hex())
        self.run = os.path.join(self.base, "run-" + self.name)
        self.cache = os.path.join(self.base, "cache")
        self.environments = os.path.join(self.base, "environments")
        self.outbox = os.path.abspath(outbox) if outbox else os.path.join(self.base, "outbox")
        self.tasks = os.path.join(self.run, "tasks")
        try:
            os.makedirs(self.base, 0o700, exist_ok=True)
            os.mkdir(self.run, 0o700)
            os.mkdir(self.tasks, 0o700)
        except OSError as error:
            raise BadInput("cannot use the directory {}: {}".format(self.base, error.strerror))
        self.lock = _lock(self.run)

    def clear_others(self):
        """Remove the scratch of pilots that were killed."""
        for name in os.listdir(self.base):
            path = os.path.join(self.base, name)
            if name.startswith("run-") and path != self.run:
                lock = _lock(path)
                if lock is not None:
                    slot.remove(path)
                    os.close(lock)

    def clear_scratch(self):
        """Remove the directories of tasks that had no files to upload."""
        try:
            names = os.listdir(self.run)
        except OSError:
            return
        for name in names:
            path = os.path.join(self.run, name)
            if path != self.tasks and os.path.isdir(path):
                slot.remove(path)

    def clear(self):
        slot.remove(self.run)
        if self.own and not os.path.isdir(os.path.join(self.base, "outbox")):
            slot.remove(self.base)


def _fresh():
    path = os.path.join(os.environ.get("TMPDIR") or "/tmp", "windfall-pilot-" + os.urandom(6).hex())
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise BadInput("cannot make a directory {}: {}".format(path, error.strerror), "set TMPDIR, or give --dir")
    return path


def _lock(folder):
    """Return a descriptor that locks a folder until this process ends; None if another process has the lock."""
    try:
        fd = os.open(os.path.join(folder, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except OSError:
        return None
