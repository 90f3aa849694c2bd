"""A task's own directory: the pilot puts inputs into it before the task starts, and describes outputs after it ended.

Inputs come out of the host's cache: cloned where the file system can, else linked or copied, as `links.py` says.
"""

import _thread
import errno
import json
import os
import stat
import threading
import time
from collections import namedtuple

from windfall.errors import BadInput
from windfall.pilot.files import links
from windfall.pilot.files.blobs import READ, stream_digest
from windfall.pilot.files.limits import Closing
from windfall.wire.patterns import Pattern

_FICLONE = 0x40049409
CACHE_BYTES = 10 << 30       # most bytes that the cache takes, or that unpacked environments take,
CACHE_PART = 0.2             # and most of their disk
ABANDONED = 86400.0          # seconds without a change after which an unfinished transfer is removed


class Blob(namedtuple("Blob", "digest size")):
    """The content of a file: its SHA-256 and its size."""

    __slots__ = ()


def inside(path):
    """Return a relative path in its shortest form; raise BadInput if it leads out of its directory."""
    clean = os.path.normpath(path)
    if not path or "\0" in path or os.path.isabs(clean) or clean == ".." or clean.startswith("../"):
        raise BadInput("the path {!r} leads out of the working directory".format(path))
    return clean


def allowance(folder):
    """Return how many bytes of a folder's disk the pilot may fill with files kept for later tasks."""
    about = os.statvfs(folder)
    return min(CACHE_BYTES, int(CACHE_PART * about.f_blocks * about.f_frsize))


class Room:
    """Room on the cache's disk.  A file that is being written has its whole size promised: when two files fit only one
    after the other, the second waits for the first, and neither fails.
    """

    def __init__(self, folder):
        self.folder = folder
        self.promised = {}           # path being written → its size in the end
        self.changed = threading.Condition()

    def take(self, files, make_way, closing):
        """Promise room for {path: size}; wait for other transfers if they will free it, else raise ENOSPC."""
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
    """Return how many bytes of {path: size} are not written yet."""
    total = 0
    for path, size in files.items():
        try:
            total += max(0, size - os.stat(path).st_size)
        except OSError:
            total += size
    return total


class Cache:
    """The host's cache of blobs, by hash; evicts the least recently used when it grows too large."""

    def __init__(self, folder, limit=None):
        self.folder = folder
        self.limit = limit           # bytes; None: not determined yet
        self.clones = None           # does the file system clone, so that copies take no room?  None: not tried yet
        self.links = None            # are links safe?  None: not tried yet
        self.room = Room(folder)
        self.guard = _thread.allocate_lock()
        self.locks = {}              # digest → [lock, users]: of two threads that want one blob, one downloads it
        self.held = {}               # target → digest of the blob that a thread copies there: not evicted

    def get(self, blobs, blob, attempt, target=None):
        """Return the path of a blob in the cache, downloading it if need be.

        With a target, (path, bytes), reserve room there, and keep the blob from eviction, until `copied(path)`.
        """
        if len(blob.digest) != 64 or not all(c in "0123456789abcdef" for c in blob.digest):
            raise BadInput("{!r} is not a SHA-256 (64 hexadecimal digits)".format(blob.digest))
        os.makedirs(self.folder, 0o700, exist_ok=True)
        lock = self._take(blob.digest)
        try:
            with lock:
                while not self._ready(blobs, blob, attempt, target):
                    self._copied(target)
        except BaseException:
            self._copied(target)
            raise
        finally:
            self._leave(blob.digest)
        return self._path(blob)

    def _path(self, blob):
        return os.path.join(self.folder, blob.digest)

    def keep(self, blob, path):
        """Take a file with a blob's content into the cache, without a copy."""
        try:
            os.makedirs(self.folder, 0o700, exist_ok=True)
            if blob.size <= self._most():
                self._shrink(self._most() - blob.size)
                os.chmod(path, 0o400)  # not sealed: it is hashed again before a task gets it
                os.link(path, self._path(blob))
        except OSError:
            pass  # it is there already, or the cache is on another disk

    def _copied(self, target):
        if target is not None:
            self.copied(target[0])

    def copied(self, path):
        """Release what `get` reserved for a copy."""
        with self.guard:
            self.held.pop(path, None)
        self.room.leave(path)

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

    def _ready(self, blobs, blob, attempt, target):
        """Make room and download the blob unless it is cached; return False if it was evicted during the wait."""
        path = self._path(blob)
        part = "{}.{}.part".format(path, os.getpid())  # other pilots may share the cache
        cached = links.intact(path, blob.digest)
        files = {} if cached else {part: blob.size}
        if target is not None:
            files[target[0]] = target[1]
        self.room.take(files, self.purge, blobs.closing)
        if target is not None:
            with self.guard:
                self.held[target[0]] = blob.digest
        if cached:
            return os.path.exists(path)
        self._download(blobs, blob, attempt, part)
        return True

    def _download(self, blobs, blob, attempt, part):
        try:
            self._shrink(self._most() - blob.size)
            blobs.fetch(blob.digest, blob.size, part, attempt)
            links.seal(part)
            os.rename(part, self._path(blob))
        except OSError:
            _unlink(part)  # a part that filled the disk must not go on filling it
            raise
        finally:
            self.room.leave(part)

    def way(self, size, changes):
        """Return how an input goes into a task's directory: "clone", "link" or "copy".  May the task change it?"""
        os.makedirs(self.folder, 0o700, exist_ok=True)
        if self._can_clone():
            return "clone"
        return "link" if size >= links.LEAST and not changes and self._can_link() else "copy"

    def _can_link(self):
        if self.links is None:
            try:
                self.links = links.safe(self.folder)
            except OSError:
                return False  # the disk has no room for the probe: the next call tries again
        return self.links

    def _can_clone(self):
        if self.clones is None:
            import tempfile
            try:
                with tempfile.TemporaryFile(dir=self.folder) as one, tempfile.TemporaryFile(dir=self.folder) as other:
                    one.write(bytes(4096))
                    one.flush()
                    self.clones = _clone(one, other)
            except OSError:
                return False  # the disk has no room for the probe: the next call tries again
        return self.clones

    def _most(self):
        if self.limit is None:
            self.limit = allowance(self.folder)
        return self.limit

    def purge(self):
        """Evict all blobs but those that a thread is about to copy."""
        self._shrink(0)

    def _shrink(self, most):
        """Evict the least recently used blobs until the others take at most `most` bytes."""
        with self.guard:
            held = set(self.held.values())
        for _, size, path in sorted(self._blobs(), reverse=True):
            most -= size
            if most < 0 and os.path.basename(path) not in held:
                _unlink(path)

    def _blobs(self):
        """Return [(time of last use, size, path)] of the blobs; remove abandoned transfers."""
        found = []
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else ():
            path = os.path.join(self.folder, name)
            try:
                about = os.stat(path)
            except OSError:
                continue
            if not name.endswith(".part"):
                found.append((about.st_atime, about.st_size, path))
            elif time.time() - about.st_mtime > ABANDONED:
                _unlink(path)
        return found


def touch(path):
    """Set a file's time of last use to now; return False if there is no such file."""
    try:
        os.utime(path)
        return True
    except FileNotFoundError:
        return False
    except OSError:
        return os.path.exists(path)  # the file belongs to another user, or the disk is full


def _unlink(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def stage_in(folder, field, cache, blobs, attempt):
    """Put the inputs of a task, [[path, sha256, size, mode]], into its directory.  `field` gives what a task says."""
    os.makedirs(folder, 0o700, exist_ok=True)
    changes = changed_files(field)
    for path, digest, size, mode in field("inputs") or ():
        path = inside(path)
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        _unlink(target)  # of two inputs with one path the second counts, and must not be written through a link
        way = cache.way(size, size >= links.LEAST and changes(path))
        room = (target, size if way == "copy" else 0)
        try:
            _put(cache.get(blobs, Blob(digest, size), attempt, room), target, mode, way)
        except OSError as error:
            # Another program filled the disk, or another pilot evicted the blob before the copy began.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ENOENT):
                raise
            _unlink(target)
            cache.copied(target)
            cache.purge()
            _put(cache.get(blobs, Blob(digest, size), attempt, room), target, mode, way)
        finally:
            cache.copied(target)


def _put(source, target, mode, way):
    if way != "link" or not links.link(source, target, mode):
        copy(source, target, mode)


def changed_files(field):
    """Return a function that says whether a task may change the file at a path: its outputs or checkpoint name it."""
    patterns = [Pattern(path) for key in ("outputs", "checkpoint") for path in field(key) or ()]
    return lambda path: any(pattern.matches(path) for pattern in patterns)


def _staged():
    """Return {name: path} of the files in place at this site, which the pilot's job script passes on."""
    try:
        found = json.loads(os.environ.get("WINDFALL_STAGED") or "{}")
    except ValueError:
        return {}
    return {str(name): str(path) for name, path in found.items()} if isinstance(found, dict) else {}


def link_placed(folder, placed):
    """Link files that are on the host already, [[path, absolute path or staged name]]; BadInput names a missing one."""
    for path, name in placed or ():
        there = name if os.path.isabs(name) else _staged().get(name, "")
        if not there:
            raise BadInput("the site file does not say where {} lies".format(name), "add it under [staged] there")
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


def describe(folder, outputs, blobs):
    """Return [[path, sha256, size, mode]] of a task's outputs; BadInput names one that is missing.  The limits of the
    sending by `blobs` hold.
    """
    files = []
    for path in outputs or ():
        try:
            with open_inside(folder, path) as file:
                about = os.fstat(file.fileno())
                blobs.limits.add(path, about.st_size)
                digest = stream_digest(file, blobs.check)
                files.append([path, digest, about.st_size, stat.S_IMODE(about.st_mode)])
        except FileNotFoundError:
            raise BadInput("the output {} is missing".format(path))
        except BadInput as error:
            raise BadInput("the output {}".format(error.message))
        except OSError as error:
            raise BadInput("the output {} cannot be read: {}".format(path, error.strerror))
    return files


def open_inside(folder, path):
    """Open a task's file for reading.  A link may lead to it, but not out of the folder: a task in a container sees
    less than the pilot does, and must not read the rest through it.  Pipes and devices are not opened.
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
