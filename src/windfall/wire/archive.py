"""Reader and unpacker for archives (.tar.gz) from untrusted makers.

Python's `tarfile` is not used: it makes links, believes a header that announces a name of two gigabytes, and checks
different things in different versions.  This module makes only directories and regular files, each new, each reached
from the top folder by descriptors that follow no link.  It reports links to the caller, who makes them when everything
else is there (`resolves` tells which links stay inside).  Size, number and depth are bounded before anything is read
or made.
"""

import gzip
import os
import zlib

from windfall.errors import BadInput

BLOCK = 512
PIECE = 1 << 20
MAX_HEADER = 1 << 16         # bytes of a header that extends another
MAX_NAME = 4096
MAX_STEPS = 10000000         # directories entered, of all entries together
MAX_HOPS = 40                # links followed on one path

FILE, DIRECTORY, LINK, SYMLINK, OTHER = "file", "directory", "link", "symlink", "other"
_KINDS = {b"0": FILE, b"\0": FILE, b"7": FILE, b"5": DIRECTORY, b"1": LINK, b"2": SYMLINK,
          b"3": OTHER, b"4": OTHER, b"6": OTHER}
_EMPTY = (DIRECTORY, LINK, SYMLINK)
_EXTENDING = b"LKxgX"
_BY_FD = os.open in os.supports_dir_fd and os.mkdir in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")


class ArchiveEntry:
    __slots__ = ("name", "kind", "size", "mode", "link")

    def __init__(self, *, name, kind, size, mode, link):
        self.name = name
        self.kind = kind
        self.size = size
        self.mode = mode
        self.link = link


class Unpacked:
    """The outcome of `unpack`: how many files were made, and which links and other entries were not."""

    def __init__(self):
        self.files = 0
        self.links = []      # ArchiveEntry
        self.others = []


# --- reading

class ArchiveReader:
    """Iterator over the entries of an archive; `contents` yields the bytes of the current one."""

    def __init__(self, file, most):
        self.stream = gzip.GzipFile(fileobj=file, mode="rb")
        self.most = most     # bytes the archive may still unpack to
        self.left = 0        # unread bytes of the current entry,
        self.padding = 0     # and of the padding behind it

    def _read(self, count):
        try:
            data = self.stream.read(count)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput("the archive is damaged: {}".format(error)) from None
        self.most -= len(data)
        if self.most < 0:
            raise BadInput("the archive is too large")
        return data

    def _read_exactly(self, count):
        data = self._read(count)
        while len(data) < count:
            more = self._read(count - len(data))
            if not more:
                raise BadInput("the archive is cut off")
            data += more
        return data

    def contents(self):
        """Yield the current entry's bytes piece by piece."""
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
            self._read_exactly(self.padding)
            self.padding = 0
            entry = self._next_entry()
            if entry is None:
                return
            self.left = 0 if entry.kind in _EMPTY else entry.size
            self.padding = -self.left % BLOCK
            yield entry

    def _next_entry(self):
        extended = {}  # type: dict[str, str]
        while True:
            block = self._read(1)
            if not block:
                return None
            block += self._read_exactly(BLOCK - 1)
            if not block.strip(b"\0"):
                return None
            kind, size = block[156:157], _header_size(block)
            if kind not in _EXTENDING:
                return _parse_entry(block, kind, size, extended)
            if size > MAX_HEADER:
                raise BadInput("the archive has a header of {:,} bytes, more than {:,}".format(size, MAX_HEADER))
            _extend(extended, kind, self._read_exactly(size))
            self._read_exactly(-size % BLOCK)


def _header_size(block):
    """Return the size a header states, after comparing its checksum."""
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
        raise BadInput("the archive is damaged: a header has a field that is not a number")
    return number


def _extend(extended, kind, data):
    """Add long names to `extended`, in GNU's format and in POSIX's."""
    if kind in b"LK":
        extended["path" if kind == b"L" else "linkpath"] = _text(data)
    elif kind in b"xX":
        extended.update(_extended_records(data))


def _extended_records(data):
    """Yield the (name, value) records of an extended header, "LENGTH NAME=VALUE\\n" each."""
    while data.strip(b"\0"):
        length = data.partition(b" ")[0]
        count = int(length) if length.isdigit() and len(length) < 8 else 0
        name, equals, value = data[len(length) + 1:count - 1].partition(b"=")
        if not equals or data[count - 1:count] != b"\n":
            raise BadInput("the archive is damaged: an extended header has a malformed record")
        yield _text(name), _text(value)
        data = data[count:]


def _text(data):
    return os.fsdecode(data.partition(b"\0")[0])


def _parse_entry(block, kind, size, extended):
    name = _entry_name(block, extended)
    size = _entry_size(size, extended)
    what = _entry_kind(kind, name, extended)
    if size < 0 or (what == OTHER and kind == b"S"):
        raise BadInput("the archive has an entry that cannot be read: {}".format(ascii(name[:200])))
    return ArchiveEntry(name=name, kind=what, size=size, mode=_number(block[100:108]) & 0o7777,
                        link=extended.get("linkpath") or _text(block[157:257]))


def _entry_name(block, extended):
    if extended.get("path"):
        return extended["path"]
    prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else ""
    return (prefix + "/" if prefix else "") + _text(block[:100])


def _entry_size(size, extended):
    """Return the extended header's size where it has one; -1 when that is not a number."""
    text = extended.get("size")
    if text is None:
        return size
    return int(text) if text.isdigit() and len(text) < 20 else -1


def _entry_kind(kind, name, extended):
    if any(key.startswith("GNU.sparse") for key in extended):
        return OTHER
    if kind == b"\0" and name.endswith("/"):  # old archives mark a directory by its name alone
        return DIRECTORY
    return _KINDS.get(kind, OTHER)


# --- unpacking

def path_parts(name):
    """Return the parts of a path that stays below its top folder; raise BadInput otherwise."""
    found = [part for part in name.split("/") if part not in ("", ".")]
    wrong = "\\:" if os.name == "nt" else ""
    if (name.startswith("/") or ".." in found or "\0" in name or len(os.fsencode(name)) > MAX_NAME
            or any(character in name for character in wrong)):
        raise BadInput("the archive has a path that leads out: {}".format(ascii(name[:200])))
    return found


def unpack(file, folder, most_bytes, most_files):
    """Make the directories and files of an archive in a new, empty folder."""
    reader, done = ArchiveReader(file, most_bytes + most_files * 8 * BLOCK), Unpacked()
    steps = MAX_STEPS
    for entry in reader:
        where = path_parts(entry.name)
        steps -= len(where)
        most_files -= 1
        most_bytes -= entry.size if entry.kind == FILE else 0
        if min(steps, most_files, most_bytes) < 0:
            raise BadInput("the archive is too large: it has more files or bytes than are allowed")
        if entry.kind == DIRECTORY:
            _close(_enter(folder, where))
        elif entry.kind == FILE and where:
            _write(reader, folder, where, entry.mode)
            done.files += 1
        else:
            (done.links if entry.kind in (LINK, SYMLINK) else done.others).append(entry)
    return done


def make_parent(folder, where):
    """Make the directory above a path if it is missing."""
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
    """Make a directory below the folder if need be; return its descriptor, or its path on systems without `dir_fd`."""
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
    """Does a path stay inside its top folder when `links`, {parts of a link: its target}, are followed?"""
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
            target = links.get(tuple(at))
            if target is not None:
                hops += 1
                if hops > MAX_HOPS or target.startswith("/"):
                    return False
                at.pop()
                todo.extend(reversed(target.split("/")))
    return True
