"""The files that a task's outputs stand for, where these are patterns or directories.

Rules
  * An output that names a file stands for that file alone, whatever characters are in its name.
  * A pattern, or a directory, that stands for no file is an error, like an output that is missing.
  * Links to directories are not followed.  A link that leads out of the task's directory is an error.
  * Count, names, sizes and the entries looked at are bounded; only names that any system can have are taken.
"""

import os

from windfall.errors import BadInput
from windfall.pilot.files.staging import inside
from windfall.wire.patterns import MAX_PARTS, Pattern, fixed_part, is_pattern

MAX_FILES = 10000
MAX_NAMES = 1 << 20          # bytes of all names together: the report carries them
MAX_BYTES = 1 << 40
MAX_SEEN = 200000            # entries of directories
MAX_NAME = 4000


def expand(folder, outputs):
    """Return the paths of all files that the outputs stand for; BadInput says which output stands for none."""
    search, found = _Search(os.path.realpath(folder)), {}
    for output in outputs or ():
        if search.is_plain(output):
            found[output] = None
            continue
        paths = search.files(output)
        if not paths:
            raise BadInput("the output {} matches no file".format(output))
        found.update(dict.fromkeys(paths))
    if len(found) > MAX_FILES or sum(map(len, found)) > MAX_NAMES:
        raise BadInput("the outputs are {:,} files: more than {:,}, or with names of more than 1 MiB; pack them "
                       "into an archive".format(len(found), MAX_FILES))
    return list(found)


class _Search:
    def __init__(self, top):
        self.top = top
        self.seen = 0
        self.bytes = 0

    def is_plain(self, output):
        path = os.path.join(self.top, inside(output))
        if os.path.isdir(path) and not os.path.islink(path):
            return False
        return not is_pattern(output) or (os.path.lexists(path) and not output.endswith("/"))

    def files(self, output):
        """Return the sorted paths of the files that a pattern or a directory stands for."""
        literal = os.path.isdir(os.path.join(self.top, inside(output)))
        start = inside(output) if literal else fixed_part(output)
        self._refuse_outside(start)
        matches, reaches = (_any, _any) if literal else (Pattern(output).matches, Pattern(output).reaches)
        found, todo = [], [start]
        while todo:
            for entry in self._entries(todo.pop()):
                path = os.path.relpath(entry.path, self.top)
                if entry.is_dir(follow_symlinks=False):
                    if reaches(path):
                        todo.append(path)
                elif matches(path) and self._take(entry, path):
                    found.append(path)
        return sorted(found)

    def _entries(self, folder):
        """Return the entries of a directory below the top; none if there is no such directory."""
        if folder.count("/") >= MAX_PARTS:
            raise BadInput("the output directory {} lies more than {} deep".format(folder[:200], MAX_PARTS))
        try:
            with os.scandir(os.path.join(self.top, folder)) as listed:
                entries = list(listed)
        except (FileNotFoundError, NotADirectoryError):
            return []
        self.seen += len(entries)
        if self.seen > MAX_SEEN:
            raise BadInput("the outputs' directories have more than {:,} entries: pack them into an archive".format(
                MAX_SEEN))
        return entries

    def _take(self, entry, path):
        """Is an entry a file, or a link to one?  Raise BadInput if it leads out, or cannot travel."""
        if entry.is_symlink():
            self._refuse_outside(path)
            if os.path.isdir(entry.path):
                return False
        elif not entry.is_file(follow_symlinks=False):
            return False  # a pipe or a socket has no content
        if not path.isprintable() or len(os.fsencode(path)) > MAX_NAME:
            raise BadInput("the output {} has a name that cannot travel: take printable characters".format(
                ascii(path)[:200]))
        self.bytes += entry.stat(follow_symlinks=False).st_size
        if self.bytes > MAX_BYTES:
            raise BadInput("the outputs have more than {} GiB".format(MAX_BYTES >> 30))
        return True

    def _refuse_outside(self, path):
        real = os.path.realpath(os.path.join(self.top, path))
        if real != self.top and not real.startswith(self.top + os.sep):
            raise BadInput("the output {} is a link that leads out of the task's directory".format(path))


def _any(path):
    return True
