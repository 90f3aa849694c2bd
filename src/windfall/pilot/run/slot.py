"""A slot of a spawner: a private working directory and two pipes, reused from task to task while that is safe.

A new directory per task would cost a third of the throughput.  After each task the slot checks that the task has not
touched the directory or changed the pipes, and empties or replaces them if in doubt.  One fstat tells that a directory
is untouched: its modification time is still the 1970 that the slot gave it, and mode, change time and links are the
same.  The slot replaces its pipes whenever the task left a process behind, which might still write.
"""

import fcntl
import os
import select
import stat

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Slot:
    def __init__(self, number, base):
        self.number = number
        self.base = base         # path under which directories are made
        self.made = 0
        self.path = None
        self.handle = -1         # descriptor of the directory
        self.identity = None
        self.out_r = self.out_w = self.err_r = self.err_w = -1
        self.fds = ()            # a task's descriptors 0, 1, 2
        self.poller = None       # over both reading ends
        self.job = None
        self.runner = None

    # --- directory

    def directory(self):
        """Return the path of a clean directory; raise OSError when none can be made."""
        if self.path is None:
            self.made += 1
            path = "{}-{}".format(self.base, self.made)
            os.mkdir(path, 0o700)
            self.handle = os.open(path, _OPEN)
            self.path = path
            self._remember()
        return self.path

    def _remember(self):
        os.utime(self.handle, (0, 0))
        self.identity = _identity(self.handle)

    def tidy(self):
        """Keep the directory after a task if it is untouched, else empty it, else abandon it."""
        if self.path is None:
            return
        if _identity(self.handle) == self.identity:
            return
        try:
            about = os.lstat(self.path)
            if about.st_mode == self.identity[0] and os.path.samestat(about, os.fstat(self.handle)):
                if empty(self.path):
                    self._remember()
                    return
        except OSError:
            pass
        self.abandon()

    def abandon(self):
        """Remove the directory and take a new one next time; what cannot be removed goes with the pilot's directory."""
        remove(self.path)
        os.close(self.handle)
        self.path, self.handle = None, -1

    # --- pipes

    def make_pipes(self, null):
        self.out_r, self.out_w = os.pipe()
        self.err_r, self.err_w = os.pipe()
        self.fds = (null, self.out_w, self.err_w)
        self.poller = select.poll()
        for fd in (self.out_r, self.err_r):
            os.set_blocking(fd, False)
            self.poller.register(fd, select.POLLIN)

    def pipes_intact(self):
        """Are the pipes still blocking?  A task may have changed its end, and the next task must not inherit that."""
        return not (fcntl.fcntl(self.out_w, fcntl.F_GETFL) | fcntl.fcntl(self.err_w, fcntl.F_GETFL)) & os.O_NONBLOCK

    def close_pipes(self):
        for fd in (self.out_r, self.out_w, self.err_r, self.err_w):
            if fd >= 0:
                os.close(fd)
        self.out_r = self.out_w = self.err_r = self.err_w = -1


def _identity(handle):
    about = os.fstat(handle)
    return about.st_mode, about.st_mtime, about.st_ctime, about.st_nlink


def empty(path):
    """Remove the content of a directory; return True if it is empty then.  Follow no link out of it."""
    try:
        fd = os.open(path, _OPEN)
    except OSError:
        return False
    try:
        return _empty(fd)
    finally:
        os.close(fd)


def _empty(top):
    """Empty a directory without recursion, however deep it is: move nested content up to the top, then remove it."""
    clean, todo = True, os.listdir(top)
    fresh = _fresh(frozenset(todo))
    while todo:
        name = todo.pop()
        if _unlink(name, top):
            continue
        fd = _enter(name, top)
        for inner in os.listdir(fd) if fd >= 0 else ():
            if not _unlink(inner, fd):
                moved = next(fresh)
                if _move(inner, fd, moved, top):
                    todo.append(moved)
        if fd >= 0:
            os.close(fd)
        clean = _rmdir(name, top) and clean
    return clean


def _fresh(taken):
    """Yield names that no entry has."""
    count = 0
    while True:
        count += 1
        name = "moved-{}".format(count)
        if name not in taken:
            yield name


def _unlink(name, parent):
    """Remove a file; return True if it is gone."""
    try:
        os.unlink(name, dir_fd=parent)
        return True
    except OSError as error:
        return isinstance(error, FileNotFoundError)


def _enter(name, parent):
    """Return a descriptor of a directory, after opening its permissions; -1 if it is not a directory."""
    try:
        if not stat.S_ISDIR(_mode(name, parent)):
            return -1
        os.chmod(name, 0o700, dir_fd=parent)
        return os.open(name, _OPEN, dir_fd=parent)
    except OSError:
        return -1


def _move(name, parent, fresh, top):
    try:
        os.close(_enter(name, parent))  # a directory must be writable to be moved
        os.rename(name, fresh, src_dir_fd=parent, dst_dir_fd=top)
        return True
    except OSError:
        return False


def _rmdir(name, parent):
    try:
        os.rmdir(name, dir_fd=parent)
        return True
    except OSError:
        return False


def _mode(name, parent):
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except OSError:
        return 0


def remove(path):
    """Remove a directory with its content; return True if it is gone."""
    try:
        os.chmod(path, 0o700)
    except OSError:
        pass
    empty(path)
    try:
        os.rmdir(path)
        return True
    except FileNotFoundError:
        return True
    except OSError:
        return False


def usage(path, entries=20000):
    """Return the bytes of disk under a directory; stop counting after `entries` files."""
    total, todo = 0, [path]
    while todo and entries > 0:
        try:
            with os.scandir(todo.pop()) as listed:
                for entry in listed:
                    entries -= 1
                    about = entry.stat(follow_symlinks=False)
                    total += about.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue
    return total
