"""A task's own directory, for tasks with files: inputs put in before it starts, outputs described after it ends.

Inputs are copied out of the pilot's cache (cloned where the file system can): never linked, since a task that writes
to its input would change it for all that come after.
"""

import _thread
import errno
import json
import os
import stat
import threading
import time

from windfall.errors import BadInput
from windfall.pilot.files.blobs import READ, Closing, stream_digest

_FICLONE = 0x40049409
CACHE_BYTES = 10 << 30       # most the cache takes, or unpacked environments take, and
CACHE_PART = 0.2             # most of its disk
ABANDONED = 86400.0          # seconds after which a transfer nobody goes on with is removed


def inside(path):
    """The path, if it stays inside the directory it is relative to."""
    clean = os.path.normpath(path)
    if not path or "\0" in path or os.path.isabs(clean) or clean == ".." or clean.startswith("../"):
        raise BadInput("the path {!r} leads out of the working directory".format(path))
    return clean


def allowance(folder):
    """Bytes that what is kept there for later may take."""
    about = os.statvfs(folder)
    return min(CACHE_BYTES, int(CACHE_PART * about.f_blocks * about.f_frsize))


class Room:
    """Room on the cache's disk.  What is being written has its whole size promised, so that of two files that fit
    one after the other neither fails: the second waits for the first.
    """

    def __init__(self, folder):
        self.folder = folder
        self.promised = {}           # path being written → its size in the end
        self.changed = threading.Condition()

    def take(self, files, make_way, closing):
        """Promise room for {path: size}, waiting for other transfers if need be; ENOSPC if there can be none."""
        with self.changed:
            if not self._fits(files):
                make_way()
            while not self._fits(files):
                if not self.promised or sum(files.values()) > self._total():
                    raise OSError(errno.ENOSPC, "an input of {:,} bytes does not fit on the disk".format(
                        max(files.values())))
                self.changed.wait(0.5)
                if closing():
                    raise Closing()
                make_way()
            self.promised.update(files)

    def leave(self, path):
        with self.changed:
            self.promised.pop(path, None)
            self.changed.notify_all()

    def _fits(self, files):
        about = os.statvfs(self.folder)
        free = (about.f_bavail if os.geteuid() else about.f_bfree) * about.f_frsize
        return _rest(files) <= free - _rest(self.promised)

    def _total(self):
        about = os.statvfs(self.folder)
        return about.f_blocks * about.f_frsize


def _rest(files):
    """Bytes still to be written of {path: size}."""
    total = 0
    for path, size in files.items():
        try:
            total += max(0, size - os.stat(path).st_size)
        except OSError:
            total += size
    return total


class Cache:
    """Blobs on this host, by hash; the least recently used go when there are too many."""

    def __init__(self, folder, limit=None):
        self.folder = folder
        self.limit = limit           # bytes; None: to be found out
        self.clones = None           # do copies take room?  None: to be found out
        self.room = Room(folder)
        self.guard = _thread.allocate_lock()
        self.locks = {}              # digest → [lock, users]: two threads that want one blob bring it once
        self.held = {}               # target → digest of the blob that is being copied there: it stays

    def get(self, blobs, digest, size, attempt, target=None):
        """Path of the blob, brought here if need be.  With a target, there is room for a copy there, and the blob is
        kept, until `copied(target)`.
        """
        if len(digest) != 64 or not all(c in "0123456789abcdef" for c in digest):
            raise BadInput("{!r} is no SHA-256".format(digest))
        os.makedirs(self.folder, 0o700, exist_ok=True)
        path = os.path.join(self.folder, digest)
        lock = self._take(digest)
        try:
            with lock:
                while not self._ready(blobs, digest, size, path, attempt, target):
                    self.copied(target)
        except BaseException:
            self.copied(target)
            raise
        finally:
            self._leave(digest)
        return path

    def copied(self, target):
        with self.guard:
            self.held.pop(target, None)
        self.room.leave(target)

    def _take(self, digest):
        with self.guard:
            entry = self.locks.setdefault(digest, [_thread.allocate_lock(), 0])
            entry[1] += 1
            return entry[0]

    def _leave(self, digest):
        with self.guard:
            self.locks[digest][1] -= 1
            if not self.locks[digest][1]:
                del self.locks[digest]

    def _ready(self, blobs, digest, size, path, attempt, target):
        """True when it is here to stay; False if it went while we waited for room."""
        part = "{}.{}.part".format(path, os.getpid())  # other pilots may share the cache
        cached = touch(path)
        files = {} if cached else {part: size}
        if target is not None:
            files[target] = 0 if self._can_clone() else size
        self.room.take(files, self.purge, blobs.closing)
        if target is not None:
            with self.guard:
                self.held[target] = digest
        if cached:
            return os.path.exists(path)
        self._bring(blobs, digest, size, path, part, attempt)
        return True

    def _bring(self, blobs, digest, size, path, part, attempt):
        try:
            self._shrink(self._most() - size)
            blobs.fetch(digest, size, part, attempt)
            os.chmod(part, 0o400)
            os.rename(part, path)
        except OSError:
            _unlink(part)  # what filled the disk must not go on filling it
            raise
        finally:
            self.room.leave(part)

    def _can_clone(self):
        if self.clones is None:
            import tempfile
            try:
                with tempfile.TemporaryFile(dir=self.folder) as one, tempfile.TemporaryFile(dir=self.folder) as other:
                    one.write(bytes(4096))
                    one.flush()
                    self.clones = _clone(one, other)
            except OSError:
                return False  # no room even for this; asked again next time
        return self.clones

    def _most(self):
        if self.limit is None:
            self.limit = allowance(self.folder)
        return self.limit

    def purge(self):
        """Make room.  What somebody is about to copy stays."""
        self._shrink(0)

    def _shrink(self, most):
        """Remove the least recently used until the rest takes no more than `most` bytes."""
        with self.guard:
            held = set(self.held.values())
        for _, size, path in sorted(self._blobs(), reverse=True):
            most -= size
            if most < 0 and os.path.basename(path) not in held:
                _unlink(path)

    def _blobs(self):
        """[(time of last use, size, path)]; clears away transfers that were given up."""
        found = []
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else ():
            path = os.path.join(self.folder, name)
            try:
                about = os.stat(path)
            except OSError:
                continue
            if not name.endswith(".part"):
                found.append((about.st_mtime, about.st_size, path))
            elif time.time() - about.st_mtime > ABANDONED:
                _unlink(path)
        return found


def touch(path):
    """Note that it was used now; False if it is not there."""
    try:
        os.utime(path)
        return True
    except FileNotFoundError:
        return False
    except OSError:
        return os.path.exists(path)  # another's, or a disk too full to say so


def _unlink(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def stage_in(folder, inputs, cache, blobs, attempt):
    os.makedirs(folder, 0o700, exist_ok=True)
    for path, digest, size, mode in inputs or ():
        target = os.path.join(folder, inside(path))
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        try:
            _put(target, digest, size, mode, cache, blobs, attempt)
        except OSError as error:
            # Something else took the room, or another pilot removed the blob between our look and our copy.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ENOENT):
                raise
            _unlink(target)
            cache.purge()
            _put(target, digest, size, mode, cache, blobs, attempt)


def _put(target, digest, size, mode, cache, blobs, attempt):
    source = cache.get(blobs, digest, size, attempt, target)
    try:
        copy(source, target, mode)
    finally:
        cache.copied(target)


def _staged():
    """{name: path} that the file of our site has; its job told us."""
    try:
        found = json.loads(os.environ.get("WINDFALL_STAGED") or "{}")
    except ValueError:
        return {}
    return {str(name): str(path) for name, path in found.items()} if isinstance(found, dict) else {}


def link_placed(folder, placed):
    """Links to what is on the host already, [[path, absolute path or name there]]; BadInput naming what is not."""
    for path, name in placed or ():
        there = name if os.path.isabs(name) else _staged().get(name, "")
        if not there:
            raise BadInput("the site's file does not say where {} lies".format(name), "[staged] in it does")
        if not os.path.isabs(there) or not os.path.exists(there):
            raise BadInput("{} is not on this host".format(there))
        if path:
            target = os.path.join(folder, inside(path))
            os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
            _unlink(target)
            os.symlink(there, target)


def copy(source, target, mode):
    with open(source, "rb") as reader:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as writer:
            if not _clone(reader, writer):
                copy_bytes(reader, writer)
        os.chmod(target, mode & 0o777 | 0o600)


def _clone(reader, writer):
    import fcntl
    try:
        fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        return True
    except OSError:
        return False


def copy_bytes(reader, writer):
    while True:
        piece = reader.read(READ)
        if not piece:
            return
        writer.write(piece)


def describe(folder, outputs):
    """[[path, sha256, size, mode]] of a task's outputs; BadInput naming the one that is not there."""
    files = []
    for path in outputs or ():
        try:
            with open_inside(folder, path) as file:
                about = os.fstat(file.fileno())
                files.append([path, stream_digest(file), about.st_size, stat.S_IMODE(about.st_mode)])
        except FileNotFoundError:
            raise BadInput("the output {} is missing".format(path))
        except BadInput as error:
            raise BadInput("the output {}".format(error.message))
        except OSError as error:
            raise BadInput("the output {} cannot be read: {}".format(path, error.strerror))
    return files


def open_inside(folder, path):
    """A task's file, for reading.  A link may lead to it, but not out of the folder: in a container a task sees less
    than we do, and must not have us fetch the rest.  Pipes and devices are not opened.
    """
    top = os.path.realpath(folder)
    real = os.path.realpath(os.path.join(top, inside(path)))
    if not real.startswith(top + os.sep):
        raise BadInput("{} is a link that leads out of the task's directory".format(path))
    parts = real[len(top) + 1:].split(os.sep)
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for number, part in enumerate(parts, 1):
        above = fd
        try:
            kind = os.O_NONBLOCK if number == len(parts) else os.O_DIRECTORY
            fd = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=above)
        finally:
            os.close(above)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BadInput("{} is not a file".format(path))
    return os.fdopen(fd, "rb")
