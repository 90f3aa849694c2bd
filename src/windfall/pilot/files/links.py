"""Links: a large input is on the disk once, however many tasks read it.

Rules
  * A task gets a link to the cached file only where nobody can write through it: the link is read-only, it belongs to
    the pilot's user, and a probe has shown that a read-only file refuses to be opened for writing.  The probe fails for
    root, whom no mode stops, and on file systems without modes or links.
  * A file that the task may change, since its outputs or its checkpoint name it, is a copy.  So is a small file.
  * A file system that clones needs no links: a clone takes no room, and the task may write to it.
  * A cached file has one modification time, `SEALED`.  A file that has another, or write permission, was changed by a
    task that gave itself permission, or comes from an older pilot: it is hashed again before the next task gets it.
"""

import os
import stat
import tempfile
import time

from windfall.pilot.files.blobs import file_digest

LEAST = 1 << 20              # bytes: smaller files are copied
SEALED = 946684800           # the start of 2000, in seconds: archives refuse times before 1980
_WRITE = 0o222


def seal(path):
    """Make a file of the cache read-only, and give it the modification time by which a change is seen."""
    os.chmod(path, 0o444)
    os.utime(path, (time.time(), SEALED))


def intact(path, digest):
    """Is a file in the cache, with the content that its name says?  Set its time of last use, or remove it if not."""
    try:
        about = os.stat(path)
        if about.st_uid != os.geteuid():
            return True  # another user's file: no task of this user's can write to it
        if about.st_mtime != SEALED or about.st_mode & _WRITE:
            if file_digest(path) != digest:
                os.unlink(path)
                return False
            seal(path)
        os.utime(path, (time.time(), SEALED))
    except FileNotFoundError:
        return False
    except OSError:
        pass  # the disk is full, or read-only
    return True


def safe(folder):
    """Does a read-only link in this folder keep its file from being written?  Raise OSError if the disk has no room."""
    with tempfile.TemporaryDirectory(dir=folder, suffix=".part") as place:
        one, other = os.path.join(place, "one"), os.path.join(place, "other")
        with open(one, "wb") as file:
            file.write(b"probe")
        try:
            os.chmod(one, 0o444)
            os.link(one, other)
        except OSError:
            return False
        try:
            os.close(os.open(other, os.O_WRONLY))
        except OSError:
            return True
        return False


def link(source, target, mode):
    """Link a cached file to a task's directory; return False if the task needs a copy."""
    wanted = 0o555 if mode & 0o100 else 0o444
    try:
        about = os.stat(source)
        if about.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(about.st_mode) != wanted:
            if about.st_nlink > 1:
                return False  # tasks that have it would see the other mode
            os.chmod(source, wanted)
        os.link(source, target)
        return True
    except OSError:
        return False
