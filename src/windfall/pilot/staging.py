"""A task's own directory, for tasks with files: inputs put in before it starts, outputs described after it ends.

Inputs are copied out of the pilot's cache (cloned where the file system can): never linked, since a task that writes
to its input would change it for all that come after.
"""

import _thread
import errno
import os
import stat

from windfall.errors import BadInput

from .blobs import READ, file_digest

_FICLONE = 0x40049409


def inside(path):
    """The path, if it stays inside the directory it is relative to."""
    clean = os.path.normpath(path)
    if not path or "\0" in path or os.path.isabs(clean) or clean == ".." or clean.startswith("../"):
        raise BadInput("the path {!r} leads out of the working directory".format(path))
    return clean


class Cache:
    """Blobs on this host, by hash."""

    def __init__(self, folder):
        self.folder = folder
        self.locks = {}              # digest → lock: two threads that want one blob bring it once

    def get(self, blobs, digest, size, attempt):
        """Path of the blob, brought here if need be."""
        if len(digest) != 64 or not all(c in "0123456789abcdef" for c in digest):
            raise BadInput("{!r} is no SHA-256".format(digest))
        path = os.path.join(self.folder, digest)
        with self.locks.setdefault(digest, _thread.allocate_lock()):
            if not os.path.exists(path):
                os.makedirs(self.folder, 0o700, exist_ok=True)
                part = "{}.{}.part".format(path, os.getpid())  # other pilots may share the cache
                blobs.fetch(digest, size, part, attempt)
                os.chmod(part, 0o400)
                os.rename(part, path)
        return path

    def purge(self):
        """Make room.  What is being copied stays readable: it is open."""
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else ():
            try:
                os.unlink(os.path.join(self.folder, name))
            except OSError:
                pass


def stage_in(folder, inputs, cache, blobs, attempt):
    os.makedirs(folder, 0o700, exist_ok=True)
    for path, digest, size, mode in inputs or ():
        target = os.path.join(folder, inside(path))
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        try:
            copy(cache.get(blobs, digest, size, attempt), target, mode)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            cache.purge()
            copy(cache.get(blobs, digest, size, attempt), target, mode)


def copy(source, target, mode):
    with open(source, "rb") as reader:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as writer:
            if not _clone(reader, writer):
                _copy_bytes(reader, writer)
        os.chmod(target, mode & 0o777 | 0o600)


def _clone(reader, writer):
    import fcntl
    try:
        fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        return True
    except OSError:
        return False


def _copy_bytes(reader, writer):
    while True:
        piece = reader.read(READ)
        if not piece:
            return
        writer.write(piece)


def describe(folder, outputs):
    """[[path, sha256, size, mode]] of a task's outputs; BadInput naming the one that is not there."""
    files = []
    for path in outputs or ():
        full = os.path.join(folder, inside(path))
        try:
            about = os.stat(full)
        except OSError:
            raise BadInput("the output {} is missing".format(path))
        if not stat.S_ISREG(about.st_mode):
            raise BadInput("the output {} is not a file".format(path))
        try:
            digest = file_digest(full)
        except OSError as error:
            raise BadInput("the output {} cannot be read: {}".format(path, error.strerror))
        files.append([path, digest, about.st_size, stat.S_IMODE(about.st_mode)])
    return files
