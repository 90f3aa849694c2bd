"""Packed Python environments: brought once, unpacked once per pilot directory, looked at before anything runs.

The archive is another's work: paths and links stay inside, and size and number are bounded.  Links are made last, so
that nothing is ever written through one.

The least recently used go when all together are too large.  Pilots may share the directory, so who uses one holds a
shared lock on it (flock), and only who gets it alone removes it; where there are no locks, nothing is removed.
"""

import _thread
import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time

from windfall.errors import BadInput
from windfall.pilot.files.staging import ABANDONED, allowance, inside, touch
from windfall.pilot.run import slot
from windfall.pilot.run.spawn import DEFAULT_PATH
from windfall.wire import archive

MAX_BYTES = 20 << 30
MAX_FILES = 500000
FLOOR = 1 << 30              # what an archive may hold however small it is; beyond that,
RATIO = 100                  # so many times its own size
ASK_SECONDS = 30.0
# What only the archive can be blamed for: names that are in each other's way, links to nowhere.
_ITS_FAULT = (errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
_ASK = "import sys; print('%d.%d' % sys.version_info[:2])"


class Mismatch(Exception):
    """The environment is for another Python than the host's."""


class Environments:
    """Those of a pilot directory."""

    def __init__(self, folder, limit=None):
        self.folder = folder
        self.limit = limit           # bytes; None: what its disk allows
        self.guard = _thread.allocate_lock()
        self.held = {}               # digest → [descriptor with the lock, attempts that use it]

    def prepare(self, entry, cache, blobs, attempt):
        """Bring and unpack what `entry` ([sha256, size, python]) names, unless it is there.  One at a time, please.

        It stays until `leave(attempt)`.
        """
        digest, size, _ = entry
        target = os.path.join(self.folder, inside(digest))
        made = False
        while not self._hold(target, attempt):
            made = True
            fresh = "{}.{}.new".format(target, os.getpid())
            brought = cache.get(blobs, digest, size, attempt, fresh)
            try:
                _make(brought, fresh, target)
            finally:
                cache.copied(fresh)
                slot.remove(fresh)
        if made:
            self.shrink()

    def leave(self, attempt):
        """It no longer uses one."""
        with self.guard:
            for path in [path for path, (_, users) in self.held.items() if attempt in users]:
                fd, users = self.held[path]
                users.discard(attempt)
                if not users:
                    del self.held[path]
                    os.close(fd)

    def _hold(self, path, attempt):
        """Keep it from being removed; False if it is not there."""
        with self.guard:
            if path not in self.held:
                fd = _locked(path)
                if fd is None:
                    return False
                self.held[path] = [fd, set()]
            self.held[path][1].add(attempt)
            touch(path)
        return True

    def shrink(self):
        """Remove the least recently used that nobody uses, until the rest is small enough."""
        sizes = [(path, slot.usage(path, MAX_FILES)) for _, path in sorted(self._found())]
        excess = sum(size for _, size in sizes) - (allowance(self.folder) if self.limit is None else self.limit)
        for path, size in sizes:
            if excess > 0 and _remove_unused(path):
                excess -= size

    def _found(self):
        """[(time of last use, path)]; clears away what pilots that were killed had begun."""
        found = []
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            try:
                used = os.stat(path).st_mtime
            except OSError:
                continue
            if "." not in name:
                found.append((used, path))
            elif time.time() - used > ABANDONED:
                slot.remove(path)
        return found


def _make(brought, fresh, target):
    try:
        slot.remove(fresh)
        os.makedirs(fresh, 0o700)
        unpack(brought, fresh)
        os.rename(fresh, target)
    except OSError:
        if not os.path.isdir(target):  # else another pilot was faster
            raise


def _locked(path):
    """A descriptor that keeps a directory from being removed; None if it is not there."""
    while True:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)  # about to be removed
            time.sleep(0.01)
            continue
        except OSError:
            return fd  # no locks here
        if _is(fd, path):
            return fd
        os.close(fd)  # removed since


def _is(fd, path):
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def _remove_unused(path):
    """True if it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        old = "{}.{}.old".format(path, os.getpid())
        os.rename(path, old)
    except OSError:
        return False  # in use
    finally:
        os.close(fd)
    slot.remove(old)
    return True


def unpack(packed, folder):
    try:
        _unpack(packed, folder)
    except BadInput as error:
        raise BadInput("the packed environment cannot be unpacked: {}".format(error.message))
    except OSError as error:
        if error.errno not in _ITS_FAULT or error.filename == packed:
            raise
        path = str(error.filename2 or error.filename)
        path = path[len(folder) + 1:] if path.startswith(folder + "/") else path
        raise BadInput("the packed environment cannot be unpacked: {}: {}".format(path[:200], error.strerror))


def _unpack(packed, folder):
    most = min(MAX_BYTES, max(FLOOR, RATIO * os.path.getsize(packed)))
    with open(packed, "rb") as file:
        made = archive.unpack(file, folder, most, MAX_FILES)
    if made.others:
        raise BadInput("{}: no file".format(ascii(made.others[0].name[:200])))
    links = {}
    for link in made.links:
        archive.make_parent(folder, archive.path_parts(link.name))
        if link.kind == archive.SYMLINK:
            links[tuple(archive.path_parts(link.name))] = link.link
        else:
            _link(link, folder, links)
    _make_links(links, folder)


def _link(link, folder, links):
    """A second name, if need be of a symbolic link, which is not made yet."""
    where, there = archive.path_parts(link.name), archive.path_parts(link.link)
    if tuple(there) in links:
        links[tuple(where)] = links[tuple(there)]
        return
    source = os.path.join(folder, *there)
    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise BadInput("{}: a link to what is no file".format(link.name[:200]))
    os.link(source, os.path.join(folder, *where))


def _make_links(links, folder):
    """Every directory on their way is a real one by now, and stays one: a link never takes the place of one."""
    for where, there in links.items():
        if not where or not archive.resolves(where, links):
            raise BadInput("a link leads out: {}".format(ascii(there[:200])))
        os.symlink(there, os.path.join(folder, *where))


def apply(environment, folder, entry):
    """Let a task's environment variables lead to it."""
    digest, _, version = entry
    top = os.path.join(folder, inside(digest))
    sites = (os.path.join(top, "lib", "python" + version, "site-packages"), os.path.join(top, "site-packages"), top)
    site = [path for path in sites if os.path.isdir(path)][:1] or [top]
    _prepend(environment, "PYTHONPATH", site[0], "")
    if os.path.isdir(os.path.join(top, "bin")):
        _prepend(environment, "PATH", os.path.join(top, "bin"), DEFAULT_PATH)


def _prepend(environment, name, path, default):
    rest = environment.get(name) or default
    environment[name] = path + ":" + rest if rest else path


def compare(folder, entry, call):
    """Raise Mismatch if what would run is another Python.  An environment may have brought its own."""
    wanted = entry[2]
    if not call and os.path.exists(os.path.join(folder, entry[0], "bin", "python3")):
        return
    have = "{}.{}".format(*sys.version_info[:2]) if call else on_path(os.environ.get("PATH", DEFAULT_PATH))
    if have != wanted:
        raise Mismatch("the environment was made for Python {}, this host has {}".format(wanted, have or "no python3"))


def on_path(path):
    """Version of the host's python3, or ""."""
    try:
        child = subprocess.Popen(["python3", "-I", "-S", "-c", _ASK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, env={"PATH": path}, start_new_session=True)
    except OSError:
        return ""
    with child.stdout:
        try:
            return child.communicate(timeout=ASK_SECONDS)[0].decode("ascii", "replace").strip()
        except subprocess.SubprocessError:
            os.killpg(child.pid, signal.SIGKILL)  # it may be a script that waits for another
            child.wait()
            return ""
