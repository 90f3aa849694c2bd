"""Archives (.tar.gz) that somebody else made: read piece by piece, unpacked without trust.

Python's own reader is not used: it makes links, believes a header that says a name has two gigabytes, and what it
checks differs from version to version.  Here only directories and regular files are made, each new, each reached from
the top by descriptors that follow no link.  Links are only told of; whoever needs them makes them when all else is
there (`resolves` says which stay inside).  Size, number and depth are bounded before anything is read or made.
"""

import gzip
import os
import zlib

from windfall.errors import BadInput

BLOCK = 512
PIECE = 1 << 20
MAX_HEADER = 1 << 16         # bytes of a header that extends another
MAX_NAME = 4096
MAX_STEPS = 10000000         # directories walked through, of all entries together
MAX_HOPS = 40                # links on the way of one path

FILE, DIRECTORY, LINK, SYMLINK, OTHER = "file", "directory", "link", "symlink", "other"
_KINDS = {b"0": FILE, b"\0": FILE, b"7": FILE, b"5": DIRECTORY, b"1": LINK, b"2": SYMLINK,
          b"3": OTHER, b"4": OTHER, b"6": OTHER}
_EMPTY = (DIRECTORY, LINK, SYMLINK)
_EXTENDING = b"LKxgX"
_BY_FD = os.open in os.supports_dir_fd and os.mkdir in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")


class Entry:
    __slots__ = ("name", "kind", "size", "mode", "link")

    def __init__(self, name, kind, size, mode, link):
        self.name = name
        self.kind = kind
        self.size = size
        self.mode = mode
        self.link = link


class Unpacked:
    """What came of it: how many files were made, and the links and other things that were not."""

    def __init__(self):
        self.files = 0
        self.links = []      # Entry
        self.others = []


# --- reading

class Reader:
    """Entries of an archive, and the contents of the one that came last."""

    def __init__(self, file, most):
        self.stream = gzip.GzipFile(fileobj=file, mode="rb")
        self.most = most     # bytes that may come out of it in all
        self.left = 0        # bytes of the present entry not read yet,
        self.padding = 0     # and what follows them

    def _read(self, count):
        try:
            data = self.stream.read(count)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput("the archive is damaged: {}".format(error)) from None
        self.most -= len(data)
        if self.most < 0:
            raise BadInput("the archive is too large")
        return data

    def _exactly(self, count):
        data = self._read(count)
        while len(data) < count:
            more = self._read(count - len(data))
            if not more:
                raise BadInput("the archive is cut off")
            data += more
        return data

    def contents(self):
        """Of the present entry, in pieces."""
        while self.left:
            piece = self._read(min(PIECE, self.left))
            if not piece:
                raise BadInput("the archive is cut off")
            self.left -= len(piece)
            yield piece

    def __iter__(self):
        while True:
            for _ in self.contents():
                pass
            self._exactly(self.padding)
            self.padding = 0
            entry = self._next()
            if entry is None:
                return
            self.left = 0 if entry.kind in _EMPTY else entry.size
            self.padding = -self.left % BLOCK
            yield entry

    def _next(self):
        extended = {}  # type: dict[str, str]
        while True:
            block = self._read(1)
            if not block:
                return None
            block += self._exactly(BLOCK - 1)
            if not block.strip(b"\0"):
                return None
            kind, size = block[156:157], _header(block)
            if kind not in _EXTENDING:
                return _entry(block, kind, size, extended)
            if size > MAX_HEADER:
                raise BadInput("the archive has a header of {:,} bytes".format(size))
            _extend(extended, kind, self._exactly(size))
            self._exactly(-size % BLOCK)


def _header(block):
    """The size that a header tells, if it is one."""
    if _number(block[148:156]) != sum(block[:148]) + 256 + sum(block[156:]):
        raise BadInput("the archive is damaged: a header's checksum is wrong")
    return _number(block[124:136])


def _number(field):
    if field[0] in (0x80, 0xff):
        number = int.from_bytes(field[1:], "big") if field[0] == 0x80 else -1
    else:
        text = field.strip(b" \0")
        number = int(text, 8) if text.isdigit() and not set(text) & set(b"89") else -1 if text else 0
    if number < 0:
        raise BadInput("the archive is damaged: a number in a header is none")
    return number


def _extend(extended, kind, data):
    """Long names, in GNU's way and in POSIX's."""
    if kind in b"LK":
        extended["path" if kind == b"L" else "linkpath"] = _text(data)
    elif kind in b"xX":
        extended.update(_records(data))


def _records(data):
    """The records of an extended header: "LENGTH NAME=VALUE\\n" each."""
    while data.strip(b"\0"):
        length = data.partition(b" ")[0]
        count = int(length) if length.isdigit() and len(length) < 8 else 0
        name, equals, value = data[len(length) + 1:count - 1].partition(b"=")
        if not equals or data[count - 1:count] != b"\n":
            raise BadInput("the archive is damaged: an extended header makes no sense")
        yield _text(name), _text(value)
        data = data[count:]


def _text(data):
    return os.fsdecode(data.partition(b"\0")[0])


def _entry(block, kind, size, extended):
    prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else ""
    name = extended.get("path") or (prefix + "/" if prefix else "") + _text(block[:100])
    what = _KINDS.get(kind, OTHER)
    if what == FILE and kind == b"\0" and name.endswith("/"):
        what = DIRECTORY
    if any(key.startswith("GNU.sparse") for key in extended):
        what = OTHER
    if "size" in extended:
        size = int(extended["size"]) if extended["size"].isdigit() and len(extended["size"]) < 20 else -1
    if size < 0 or what == OTHER and kind == b"S":
        raise BadInput("the archive has an entry that cannot be read: {}".format(ascii(name[:200])))
    return Entry(name, what, size, _number(block[100:108]) & 0o7777, extended.get("linkpath") or _text(block[157:257]))


# --- unpacking

def parts(name):
    """The parts of a path that stays below its top; BadInput if it does not."""
    found = [part for part in name.split("/") if part not in ("", ".")]
    wrong = "\\:" if os.name == "nt" else ""
    if (name.startswith("/") or ".." in found or "\0" in name or len(os.fsencode(name)) > MAX_NAME
            or any(character in name for character in wrong)):
        raise BadInput("the archive has a path that leads out: {}".format(ascii(name[:200])))
    return found


def unpack(file, folder, most_bytes, most_files):
    """Make the directories and files of an archive in a new, empty folder."""
    reader, done, steps = Reader(file, most_bytes + most_files * 8 * BLOCK), Unpacked(), MAX_STEPS
    for entry in reader:
        where = parts(entry.name)
        steps -= len(where)
        most_files -= 1
        most_bytes -= entry.size if entry.kind == FILE else 0
        if min(steps, most_files, most_bytes) < 0:
            raise BadInput("the archive is too large: more than is allowed of files or bytes")
        if entry.kind == DIRECTORY:
            _close(_enter(folder, where))
        elif entry.kind == FILE and where:
            _write(reader, folder, where, entry.mode)
            done.files += 1
        else:
            (done.links if entry.kind in (LINK, SYMLINK) else done.others).append(entry)
    return done


def make_parent(folder, where):
    """The directory above a path, made if need be."""
    _close(_enter(folder, where[:-1]))


def _write(reader, folder, where, mode):
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    top = _enter(folder, where[:-1])
    try:
        if _BY_FD:
            fd = os.open(where[-1], flags, mode & 0o755 | 0o600, dir_fd=top)
        else:
            fd = os.open(os.path.join(top, where[-1]), flags, mode & 0o755 | 0o600)
    finally:
        _close(top)
    with os.fdopen(fd, "wb") as file:
        for piece in reader.contents():
            file.write(piece)


def _enter(folder, where):
    """A directory below the folder, made if need be: its descriptor, or its path where there are no such calls."""
    return _enter_by_fd(folder, where) if _BY_FD else _enter_by_path(folder, where)


def _enter_by_fd(folder, where):
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for part in where:
        above = fd
        try:
            try:
                os.mkdir(part, 0o700, dir_fd=above)
            except FileExistsError:
                pass
            fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return fd


def _enter_by_path(folder, where):
    path = folder
    for part in where:
        path = os.path.join(path, part)
        if not os.path.isdir(path):
            os.mkdir(path, 0o700)
        if os.path.realpath(path) != os.path.join(os.path.realpath(os.path.dirname(path)), part):
            raise BadInput("the archive has a path that leads through a link: {}".format(ascii(path)))
    return path


def _close(top):
    if _BY_FD:
        os.close(top)


def resolves(where, links):
    """Does a path stay inside, following `links`, {parts of a link: what it says}, on its way?"""
    at = []  # type: list[str]
    todo, hops = list(reversed(where)), 0
    while todo:
        part = todo.pop()
        if part == "..":
            if not at:
                return False
            at.pop()
        elif part not in ("", "."):
            at.append(part)
            there = links.get(tuple(at))
            if there is not None:
                hops += 1
                if hops > MAX_HOPS or there.startswith("/"):
                    return False
                at.pop()
                todo.extend(reversed(there.split("/")))
    return True
