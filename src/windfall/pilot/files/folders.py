"""The pilot's folders, closed to other users (0700).

    DIR/cache          blobs, shared by the pilots of this directory
    DIR/environments   packed Python environments, unpacked, by hash; the least recently used are evicted
    DIR/outbox/RUN     undelivered results; --outbox puts them elsewhere, where other programs find them
    DIR/run-RUN        scratch of one pilot, locked while the pilot lives and removed when it ends

A pilot without --dir makes a DIR of its own in TMPDIR.  If the pilot is killed whole, the next pilot of the same user
on the same host removes that DIR, unless results are in its outbox.
"""

import fcntl
import os
import stat

from windfall.errors import BadInput
from windfall.pilot.run import slot

OWN = "windfall-pilot-"  # begins the names of directories that pilots make in TMPDIR
HOST = ".host"  # names the host whose processes lock a run folder: some file systems keep locks per host


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
            for folder in (self.cache, self.environments):
                os.makedirs(folder, 0o700, exist_ok=True)  # now, so that no other user can make it later
            self.lock = _lock(self.run)
            with open(os.path.join(self.run, HOST), "w") as file:
                file.write(os.uname().nodename)
        except OSError as error:
            slot.remove(self.run)
            raise BadInput("cannot use the directory {}: {}".format(self.base, error.strerror))
        for folder in (self.cache, self.environments, self.outbox):
            if os.path.lexists(folder) and not _same_owner(folder, self.run):
                slot.remove(self.run)
                raise BadInput("another user made the directory {}, and could put files there".format(folder),
                               "give --dir a directory of your own")

    def clear_others(self):
        """Remove the scratch of pilots that were killed."""
        _clear_runs(self.base, self.run)
        if self.own:
            import threading  # late: the start need not wait for it
            threading.Thread(target=_clear_bases, args=(_abandoned(self.base),), daemon=True).start()

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
        for folder in (self.cache, self.environments):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # it has something for later pilots
        if self.own and not os.path.isdir(os.path.join(self.base, "outbox")):
            slot.remove(self.base)


def _same_owner(folder, mine):
    """Does a directory, and a link to it, belong to the user who made `mine`?  Some file systems show other numbers."""
    try:
        owners = {os.lstat(folder).st_uid, os.stat(folder).st_uid}
        return os.path.isdir(folder) and owners == {os.stat(mine).st_uid}
    except OSError:
        return False


def _clear_runs(base, mine=None):
    for name in os.listdir(base):
        path = os.path.join(base, name)
        if name.startswith("run-") and path != mine and not os.path.islink(path):
            lock = _lock(path)
            if lock is not None:
                slot.remove(path)
                os.close(lock)


def _clear_bases(bases):
    """Remove directories, their run folders last: by these the next pilot knows what this one did not finish."""
    for base in bases:
        for name in ("cache", "environments"):
            slot.remove(os.path.join(base, name))
        _clear_runs(base)
        slot.remove(base)


def _abandoned(mine):
    """Return the directories beside `mine` whose pilots were killed on this host, with nothing to deliver in them."""
    parent = os.path.dirname(mine)
    try:
        names = [name for name in os.listdir(parent) if name.startswith(OWN)]
        return [path for path in (os.path.join(parent, name) for name in names) if path != mine and _is_abandoned(path)]
    except OSError:
        return []


def _is_abandoned(base):
    try:
        about = os.lstat(base)
        if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
            return False
        names = os.listdir(base)
        runs = [os.path.join(base, name) for name in names if name.startswith("run-")]
        return bool(runs) and "outbox" not in names and all(_was_killed_here(run) for run in runs)
    except OSError:
        return False


def _was_killed_here(run):
    with open(os.path.join(run, HOST)) as file:
        if file.read(300) != os.uname().nodename:
            return False
    lock = _lock(run)
    if lock is not None:
        os.close(lock)
    return lock is not None


def _fresh():
    path = os.path.join(os.environ.get("TMPDIR") or "/tmp", OWN + os.urandom(6).hex())
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
