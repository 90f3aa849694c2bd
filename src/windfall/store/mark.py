"""The high-water mark: a small file beside the journal that says how far the journal has come.

SQLite drops the rest of its log, without a word, from the first frame that does not read back, and takes a log that was
deleted for an empty one.  So something outside of that log must know what was committed.

Rules
  * The journal writes the mark after the flush of a commit, in place, without a flush of its own.  So the mark never
    says more than the disk has.  After a crash of the machine it may say less, by what the kernel had not written yet.
  * A journal that ends before its mark has lost commits; `Journal.open` refuses it.
  * The mark holds the numbers that come next, of bags for instance, so that a journal that is cut gives none twice.
  * A mark that is missing or does not read back says nothing.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_MAGIC = b"WFM1"
_VALUES = struct.Struct("<qq3q")
_SIZE = 4 + 16 + _VALUES.size + 4  # magic, identity, values, checksum

Numbers = tuple[int, int, int]
NONE: Numbers = (0, 0, 0)


class Reached(NamedTuple):
    """How far a journal has come."""

    identity: str  # of the journal
    position: int  # of its last commit
    at: int  # the time of that commit
    numbers: Numbers  # those that come next: the driver of the journal says which


class Mark:
    """The mark of one journal, open for writing."""

    def __init__(self, path: Path, identity: str) -> None:
        self._head = _MAGIC + bytes.fromhex(identity)
        self._descriptor = -1
        with suppress(OSError):  # a full disk must not keep the server from starting
            fresh = not path.exists()
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.ftruncate(self._descriptor, _SIZE)
            if fresh:
                flush_directory(path.parent)

    def write(self, position: int, at: int, numbers: Numbers) -> None:
        body = self._head + _VALUES.pack(position, at, *numbers)
        with suppress(OSError):
            os.pwrite(self._descriptor, body + zlib.crc32(body).to_bytes(4, "little"), 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def mark_of(journal: Path) -> Path:
    return journal.with_suffix(".mark")


def read(path: Path) -> Reached | None:
    """Return what the mark says; None: there is none, or it does not read back."""
    try:
        body = path.read_bytes()
    except OSError:
        return None
    if len(body) != _SIZE or not body.startswith(_MAGIC):
        return None
    if zlib.crc32(body[:-4]) != int.from_bytes(body[-4:], "little"):
        return None
    position, at, bags, pilots, intents = _VALUES.unpack(body[20:-4])
    return Reached(body[4:20].hex(), position, at, (bags, pilots, intents))


def flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
