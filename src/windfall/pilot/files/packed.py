"""Packed Python environments: downloaded and unpacked once per pilot directory, and checked before a task runs.

The archive is not trusted: its paths and links must stay inside, and its size and number of files are bounded.  Links
are made last, so that no file is ever written through one.

The pilot evicts the least recently used environments when all together are too large.  Pilots may share the directory:
a user of an environment holds a shared lock on it (flock), and only a pilot that gets an exclusive lock removes it.  On
file systems without locks nothing is removed.
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
from windfall.pilot.files.staging import ABANDONED, Blob, allowance, inside, touch
from windfall.pilot.run import slot
from windfall.pilot.run.spawn import DEFAULT_PATH
from windfall.wire import archive

MAX_BYTES = 20 << 30
MAX_FILES = 500000
FLOOR = 1 << 30              # bytes to which any archive may unpack,
RATIO = 100                  # and how many times its own size a larger one
ASK_SECONDS = 30.0
# Errors that only the archive can cause: entries whose names collide, links to missing files.
_ITS_FAULT = (errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
_ASK = "import sys; print('%d.%d' % sys.version_info[:2])"


class Mismatch(Exception):
    """The environment is for another Python than the host's."""


class Environments:
    """The unpacked environments of a pilot directory."""

    def __init__(self, folder, limit=None):
        self.folder = folder
        self.limit = limit           # bytes; None: a part of its disk
        self.guard = _thread.allocate_lock()
        self.held = {}               # path → [descriptor with the lock, attempts that use the environment]

    def prepare(self, entry, cache, blobs, attempt):
        """Download and unpack the environment `entry` ([sha256, size, python]) unless it is there.

        The environment is not removed before `leave(attempt)`.  The caller calls this from one thread at a time.
        """
        digest, size, _ = entry
        target = os.path.join(self.folder, inside(digest))
        made = False
        while not self._hold(target, attempt):
            made = True
            fresh = "{}.{}.new".format(target, os.getpid())
            archived = cache.get(blobs, Blob(digest, size), attempt, (fresh, size))
            try:
                _make(archived, fresh, target)
            finally:
                cache.copied(fresh)
                slot.remove(fresh)
        if made:
            self.shrink()

    def leave(self, attempt):
        """Note that an attempt no longer uses its environment."""
        with self.guard:
            for path in [path for path, (_, users) in self.held.items() if attempt in users]:
                fd, users = self.held[path]
                users.discard(attempt)
                if not users:
                    del self.held[path]
                    os.close(fd)

    def _hold(self, path, attempt):
        """Keep an environment from being removed; return False if it does not exist."""
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
        """Remove the least recently used environments that no attempt uses, until the others are small enough."""
        sizes = [(path, slot.usage(path, MAX_FILES)) for _, path in sorted(self._found())]
        excess = sum(size for _, size in sizes) - (allowance(self.folder) if self.limit is None else self.limit)
        for path, size in sizes:
            if excess > 0 and _remove_unused(path):
                excess -= size

    def _found(self):
        """Return [(time of last use, path)] of the environments; remove those that killed pilots left unfinished."""
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


def _make(archived, fresh, target):
    try:
        slot.remove(fresh)
        os.makedirs(fresh, 0o700)
        unpack(archived, fresh)
        os.rename(fresh, target)
    except OSError:
        if not os.path.isdir(target):  # otherwise another pilot was faster
            raise


def _locked(path):
    """Return a descriptor that keeps a directory from being removed; None if there is no such directory."""
    while True:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)  # another pilot is removing it
            time.sleep(0.01)
            continue
        except OSError:
            return fd  # the file system has no locks
        if _is(fd, path):
            return fd
        os.close(fd)  # another pilot has removed it


def _is(fd, path):
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def _remove_unused(path):
    """Remove an environment that no pilot uses; return True if it is gone."""
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
        raise BadInput("{}: not a file, directory or link".format(ascii(made.others[0].name[:200])))
    links = {}
    for link in made.links:
        archive.make_parent(folder, archive.path_parts(link.name))
        if link.kind == archive.SYMLINK:
            links[tuple(archive.path_parts(link.name))] = link.link
        else:
            _link(link, folder, links)
    _make_links(links, folder)


def _link(link, folder, links):
    """Make a hard link; note one to a symbolic link in `links`, since that one is not made yet."""
    where, there = archive.path_parts(link.name), archive.path_parts(link.link)
    if tuple(there) in links:
        links[tuple(where)] = links[tuple(there)]
        return
    source = os.path.join(folder, *there)
    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise BadInput("{}: a hard link to something that is not a file".format(link.name[:200]))
    os.link(source, os.path.join(folder, *where))


def _make_links(links, folder):
    """Make the symbolic links.  All directories exist by now, so no link can take the place of one."""
    for where, there in links.items():
        if not where or not archive.resolves(where, links):
            raise BadInput("a link leads out of the environment: {}".format(ascii(there[:200])))
        os.symlink(there, os.path.join(folder, *where))


def apply(environment, folder, entry):
    """Put a packed environment into PYTHONPATH and PATH of a task."""
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
    """Raise Mismatch if the task would run another version of Python, unless the environment has an interpreter."""
    wanted = entry[2]
    if not call and os.path.exists(os.path.join(folder, entry[0], "bin", "python3")):
        return
    have = "{}.{}".format(*sys.version_info[:2]) if call else on_path(os.environ.get("PATH", DEFAULT_PATH))
    if have != wanted:
        raise Mismatch("the environment was made for Python {}, this host has {}".format(wanted, have or "no python3"))


def on_path(path):
    """Return the version of the first python3 on a PATH, or ""."""
    try:
        child = subprocess.Popen(["python3", "-I", "-S", "-c", _ASK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, env={"PATH": path}, start_new_session=True)
    except OSError:
        return ""
    with child.stdout:
        try:
            return child.communicate(timeout=ASK_SECONDS)[0].decode("ascii", "replace").strip()
        except subprocess.SubprocessError:
            os.killpg(child.pid, signal.SIGKILL)  # python3 may be a script with child processes
            child.wait()
            return ""
