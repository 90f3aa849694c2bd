"""SQLite's log (`journal.db-wal`), read without SQLite.

A log is a header and frames.  A frame is a page of the database; the last frame of a transaction says so.  All frames
that belong to the present log bear its two salts; older ones, which the log overwrites, bear others.  SQLite takes the
frames up to the first whose checksum is wrong, and forgets the rest.  A torn frame at the end is usual after a crash,
since its transaction was never acknowledged.  A transaction *after* such a frame was acknowledged: it is lost.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)


class LogFrame(NamedTuple):
    number: int  # 1: the first
    page: int
    commits: int  # pages of the database after the transaction that this frame ends; 0: it ends none
    offset: int  # of the page in the log


def log_of(database: Path) -> Path:
    return Path(f"{database}-wal")


def frames(log: Path, page_size: int) -> list[LogFrame]:
    """Return the frames that bear the salts of the log, damaged or not; none where the log has no header."""
    with suppress(OSError), log.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) == _HEADER.size:
            salts = _HEADER.unpack(header)[4:6]
            return [frame for frame, salt in _frames(file, page_size) if salt == salts]
    return []


def every_frame(log: Path, page_size: int) -> list[LogFrame]:
    """Return the frames that bear the salts of the first one, for a log whose header is damaged."""
    with suppress(OSError), log.open("rb") as file:
        found = list(_frames(file, page_size))
        return [frame for frame, salt in found if salt == found[0][1]]
    return []


def _frames(file: BinaryIO, page_size: int) -> Iterator[tuple[LogFrame, tuple[int, int]]]:
    size, offset, number = os.fstat(file.fileno()).st_size, _HEADER.size, 1
    while offset + _FRAME.size + page_size <= size:
        file.seek(offset)
        page, commits, *salts, _, _ = _FRAME.unpack(file.read(_FRAME.size))
        yield LogFrame(number, page, commits, offset + _FRAME.size), (salts[0], salts[1])
        offset, number = offset + _FRAME.size + page_size, number + 1


def has_header(log: Path) -> bool:
    """Is this the header of a log?"""
    with suppress(OSError), log.open("rb") as file:
        header = file.read(_HEADER.size)
        return len(header) == _HEADER.size and _HEADER.unpack(header)[0] in _MAGIC
    return False


def lost_commits(found: list[LogFrame], taken: int) -> int:
    """Return how many acknowledged transactions follow the first frame that SQLite did not take.  The transaction of
    that frame itself may be one that a crash tore."""
    ends = [frame.number for frame in found if frame.commits and frame.number > taken]
    return max(0, len(ends) - 1)


@contextmanager
def kept(database: Path) -> Iterator[None]:
    """Keep the log if the block fails: SQLite folds the good frames into the database when it closes that, and deletes
    the log, damaged frames and all."""
    log = log_of(database)
    spare = Path(f"{log}.kept")
    with suppress(OSError):
        if spare.exists() and not log.exists():
            os.rename(spare, log)  # an earlier start was killed in between
        spare.unlink(missing_ok=True)
        if log.exists() and log.stat().st_size:
            os.link(log, spare)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.rename(spare, log)  # does nothing where both are one file
            spare.unlink(missing_ok=True)
        raise
    with suppress(OSError):
        spare.unlink()
