"""Salvage: a journal that does not open, read as far as it reads back, and written anew.

Rules
  * The damaged files are never written to.  `copy_aside` keeps a copy before anything takes their place.
  * Two readings compete, and the one that comes further wins: the file with the log as SQLite takes it, and the file
    with every frame of the log, whatever SQLite's checksums say.  Our own checksums judge either.
  * Facts after a gap cannot be applied, so a salvaged journal ends before the first commit that does not read back.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from windfall.store import log_file, mark, schema
from windfall.store.journal import create, is_intact
from windfall.store.views import place_of

_ROWS = "SELECT seq, at, crc, body FROM journal WHERE seq > ? ORDER BY seq"
_SNAPSHOT = "SELECT position, at, parts, crc, body, rows FROM snapshot"
_PARTS = "SELECT name, chunk, crc, body FROM part JOIN chunk ON chunk.id = part.chunk"


class Row(NamedTuple):
    seq: int
    at: int
    crc: int
    body: bytes


@dataclass
class Reading:
    """The parts of a damaged journal that read back."""

    file: Path
    identity: str = ""
    head: tuple[Any, ...] | None = None  # of the snapshot, without its body
    last: tuple[int, int] = (0, 0)  # number and time of the last good commit
    gaps: int = 0  # rows before the snapshot that are damaged, or missing
    later: list[Row] = field(default_factory=list)  # good rows beyond the last good commit


def reached(journal: Path) -> int:
    """Return the commit that the journal had reached, by its mark or by the views; 0: nothing tells."""
    told = mark.read(mark.mark_of(journal))
    return max(told.position if told is not None else 0, place_of(journal.with_name("views.db"))[1])


def copy_aside(home: Path) -> Path:
    """Copy the journal, its log and mark, and the views into a folder of their own; return the folder."""
    name = time.strftime("damaged-%Y%m%d-%H%M%S", time.gmtime())
    folder = next(path for path in (home / f"{name}{suffix}" for suffix in ("", *map("-{}".format, range(1, 100))))
                  if not path.exists())
    folder.mkdir(mode=0o700)
    for path in (*home.glob("journal.db*"), *home.glob("journal.mark"), *home.glob("views.db*")):
        shutil.copy2(path, folder / path.name)
    return folder


def read(journal: Path, work: Path) -> Reading | None:
    """Return what reads back of a journal, the better of two readings made in the folder `work`; None: nothing does."""
    found = []
    for name, copy in (("taken", _copy_with_log), ("every-frame", _overlay)):
        with suppress(OSError, sqlite3.Error, ValueError, TypeError, LookupError):
            found.append(_read(copy(journal, work / f"{name}.db")))
    return max(found, key=lambda reading: (reading.last[0], -reading.gaps), default=None)


def _copy_with_log(journal: Path, target: Path) -> Path:
    shutil.copy2(journal, target)
    if log_file.log_of(journal).exists():
        shutil.copy2(log_file.log_of(journal), log_file.log_of(target))
    return target


def _overlay(journal: Path, target: Path) -> Path:
    """Copy the database with all frames of its log in their order, up to the end of the last transaction."""
    shutil.copy2(journal, target)
    head = target.open("rb").read(100)
    size = int.from_bytes(head[16:18], "big")
    page_size = 65536 if size == 1 else size
    log = log_file.log_of(journal)
    frames = log_file.frames(log, page_size) or log_file.every_frame(log, page_size)
    ends = [frame for frame in frames if frame.commits]
    if not ends:
        raise ValueError("the log has no whole transaction")
    with log.open("rb") as source, target.open("r+b") as file:
        for frame in frames[: frames.index(ends[-1]) + 1]:
            source.seek(frame.offset)
            file.seek((frame.page - 1) * page_size)
            file.write(source.read(page_size))
        file.truncate(ends[-1].commits * page_size)
    return target


# --- reading --------------------------------------------------------------------------------------------------

def _read(file: Path) -> Reading:
    reading = Reading(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        if connection.execute("PRAGMA user_version").fetchone()[0] != schema.VERSION:
            raise ValueError("an older layout")  # no server of this version has opened it
        reading.identity = str(connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()[0])
        reading.head = _whole_snapshot(connection)
        position, at = reading.head[:2] if reading.head is not None else (0, 0)
        reading.last = (position, at)
        before = 0
        for row in good_rows(connection):
            if row.seq <= position:
                before += 1
            elif row.seq == reading.last[0] + 1:
                reading.last = (row.seq, row.at)
            else:
                reading.later.append(row)
        if reading.head is not None:
            reading.gaps = max(0, reading.head[5] - before)
    return reading


def _whole_snapshot(connection: sqlite3.Connection) -> tuple[Any, ...] | None:
    """Return the snapshot's row if all of it reads back.  Without it, the rows from the first on must do."""
    with suppress(sqlite3.Error, TypeError, ValueError):
        found = connection.execute(_SNAPSHOT).fetchone()
        if found is None:
            return None
        position, at, parts, head, meta, _ = found
        rows = connection.execute(_PARTS).fetchall()
        whole = len(rows) == parts and all(zlib.crc32(body) == crc for _, _, crc, body in rows)
        if whole and schema.head_checksum(connection, position, at, meta) == head:
            return tuple(found)
    return None


def good_rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield the rows that read back, in their order; where a page is damaged, look for rows behind it."""
    after, step = 0, 1
    while step < 1 << 40:
        try:
            for found in connection.execute(_ROWS, (after,)):
                if is_intact(found):
                    yield Row(*found)
                if isinstance(found[0], int):
                    after, step = max(after, found[0]), 1
            return
        except sqlite3.Error:
            after, step = after + step, step * 2


# --- writing --------------------------------------------------------------------------------------------------

def write(reading: Reading, target: Path, new_identity: bool) -> None:
    """Write what reads back into a new journal.  With `new_identity` the views are made again, too."""
    create(target)
    with closing(sqlite3.connect(reading.file, isolation_level=None)) as old, \
            closing(sqlite3.connect(target, isolation_level=None)) as fresh:
        fresh.execute("BEGIN IMMEDIATE")
        if not new_identity:
            fresh.execute("UPDATE meta SET value = ? WHERE name = 'identity'", (reading.identity,))
        good = (row for row in good_rows(old) if row.seq <= reading.last[0])
        fresh.executemany("INSERT INTO journal VALUES (?, ?, ?, ?)", good)
        if reading.head is not None:
            for name, chunk, crc, body in old.execute(_PARTS):
                fresh.execute("INSERT INTO chunk VALUES (?, ?, ?)", (chunk, crc, body))
                fresh.execute("INSERT INTO part VALUES (?, ?)", (name, chunk))
            position, at, parts, crc, meta, rows = reading.head
            fresh.execute("INSERT INTO snapshot VALUES (1, ?, ?, ?, ?, ?, ?)",
                          (position, at, parts, crc, meta, rows - reading.gaps))
        fresh.execute("COMMIT")


def install(fresh: Path, journal: Path) -> None:
    """Put a new journal in the place of the damaged one, whose copy lies aside."""
    descriptor = os.open(fresh, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    for path in (log_file.log_of(journal), Path(f"{log_file.log_of(journal)}.kept")):
        path.unlink(missing_ok=True)  # SQLite would lay an old log over the new file
    os.rename(fresh, journal)
    mark.mark_of(journal).unlink(missing_ok=True)
    if mark.mark_of(fresh).exists():
        os.rename(mark.mark_of(fresh), mark.mark_of(journal))
    mark.flush_directory(journal.parent)
