"""The journal: the record of all commits, on the disk, and the only truth about them (a write-ahead log of facts).

Rules
  * There is one row per commit group.  `append` returns when the row is on the disk, not earlier.
  * One row is one statement and one transaction: SQLite's own BEGIN and COMMIT, one flush of its log.
  * A failed flush is final.  The kernel may forget that a write failed, so this process never tries again: every later
    call raises FlushFailed, and recovery finds out which rows are on the disk.
  * A write that found no room comes before any flush, and leaves nothing in the log.  `append` tries it again as long
    as `make_room` finds room; a snapshot or a step of retention ends with a StoreError, and changes nothing.
  * Every body has a checksum.  If one is wrong, the error names the row or chunk, and the body is never decoded.
  * A journal that ends before its mark, or whose log has commits after a damaged one, has lost commits.  Opening it
    raises StoreCorrupt with the last good commit's number and time, and leaves file and log as they are (`mark.py`,
    `log_file.py`).
  * Opening a file that this version does not understand neither deletes nor changes anything in it.
  * Rows after the snapshot have no gaps; before it, retention may have removed some.
  * `locking_mode=EXCLUSIVE` avoids shared memory, which network file systems lack, and keeps a second writer out.

Any thread may call; a mutex serialises the calls.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from windfall.errors import FlushFailed, StoreCorrupt, StoreError, StoreLocked, StoreTooNew
from windfall.store import log_file, mark, schema
from windfall.store.locking import Lock, holder
from windfall.store.schema import checksum

_MAGIC = b"SQLite format 3\0"
_BACKUP = "'windfall doctor' says what can be saved; or restore the data directory from a backup"
_SETTINGS = (  # `synchronous = FULL`: each commit calls fsync, which is the flush that replies wait for
    "locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL", "temp_store = MEMORY",
    "journal_size_limit = 67108864", "trusted_schema = OFF",
)
MOST_BYTES = 1_000_000_000 - 1_024  # of one value in SQLite
_READ_ROWS = 256  # rows per query, so that no cursor stays open between calls
_REWRITE = "rewrite"  # name of retention's bookmark in `meta`


SeqAndTime = tuple[int, int]  # number and time of a row


class Budget(NamedTuple):
    """The most that one step of retention edits."""

    rows: int
    bytes: int = 1 << 40


@dataclass(frozen=True)
class Snapshot:
    position: int
    meta: bytes
    chunks: dict[str, bytes]


class Journal:
    """An open journal, from `Journal.open(path)`; the module's docstring has the rules."""

    position: int  # number of the last committed row
    tail_bytes: int  # bytes of the rows after the snapshot
    identity: str  # random, the same in all copies of this journal; views remember it
    flushes: int  # number of commits, for tests

    def __init__(self, path: Path, lock: Lock, connection: sqlite3.Connection) -> None:
        self.path = path
        self.flushes = 0
        self._lock_file = lock
        self._connection = connection
        self._mutex = threading.Lock()
        self._failure = ""
        self.make_room: Callable[[int], bool] = lambda size: False
        self._staged: dict[str, int] = {}
        self.numbers: Callable[[], mark.Numbers] = lambda: mark.NONE  # the driver's numbers that come next
        with _reading(path):
            self.identity: str = _identity(connection)
            self._snapshot, last = _ends(connection)
            orphans = connection.execute("SELECT id FROM chunk WHERE id NOT IN (SELECT chunk FROM part)")
            self._orphans: list[int] = [chunk for (chunk,) in orphans]
        self.position, self._last_at = max(last, self._snapshot)
        self.tail_bytes = self._measure_tail()
        self._mark = mark.Mark(mark.mark_of(path), self.identity)

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open a journal; create the file if it is missing, upgrade an older layout, refuse an unknown one."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = Lock.take(path.with_suffix(".lock"))
        try:
            reached = mark.read(mark.mark_of(path))
            if not path.exists():
                _refuse_without_file(path, reached)
                create(path)
            _check_header(path)
            with log_file.kept(path):
                return cls._open(path, lock, reached)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open(cls, path: Path, lock: Lock, reached: mark.Reached | None) -> Journal:
        connection = _connect(path)
        try:
            with _reading(path):
                _refuse_gap(connection, path, reached)
                _upgrade(connection, path)
                _fold_log(connection, path)
            return cls(path, lock, connection)
        except BaseException:
            connection.close()
            raise

    def append(self, at: int, body: bytes) -> int:
        """Append a row, and return its number once it is on the disk."""
        with self._mutex:
            if self._failure:
                raise FlushFailed(self._failure)
            seq = self.position + 1
            self._insert((seq, at, checksum(seq, at, body), body))
            self.position = seq
            self._last_at = at
            self.tail_bytes += len(body)
            self.flushes += 1
            self._mark.write(seq, at, self.numbers())
            return seq

    def date_back(self, at: int) -> None:
        """Date the rows of later times, and the snapshot, at `at`: a clock had been ahead, and times never go back."""
        with self._transaction() as connection:
            for (seq,) in connection.execute("SELECT seq FROM journal WHERE at > ?", (at,)).fetchall():
                row = connection.execute("SELECT seq, at, crc, body FROM journal WHERE seq = ?", (seq,)).fetchone()
                self._check(is_intact(row), f"row {seq}")
                connection.execute("UPDATE journal SET at = ?, crc = ? WHERE seq = ?",
                                   (at, checksum(seq, at, row[3]), seq))
            for position, meta in connection.execute(
                    "SELECT position, body FROM snapshot WHERE at > ?", (at,)).fetchall():
                connection.execute("UPDATE snapshot SET at = ?, crc = ?",
                                   (at, schema.head_checksum(connection, position, at, meta)))
        self._last_at, self._snapshot = min(self._last_at, at), (self._snapshot[0], min(self._snapshot[1], at))

    def skip_to(self, position: int) -> None:
        """Give the next row the number after `position`: commits up to there are lost, and a snapshot must follow."""
        self.position = max(self.position, position)

    def read(self, after: int, limit: int | None = None) -> Iterator[tuple[int, int, bytes]]:
        """Yield the rows (seq, at, body) after a position, oldest first, at most `limit`."""
        left = self.position - after if limit is None else limit
        while left > 0:
            rows = self._fetch(after, min(left, _READ_ROWS))
            if not rows:
                return
            for row in rows:
                self._check_row(after, row)
                after = row[0]
                yield row[0], row[1], row[3]
            left -= len(rows)

    def read_batch(self, after: int, rows: int, size: int, largest: int) -> list[tuple[int, int, int, bytes | None]]:
        """Return (seq, at, bytes, body) of some rows after a position, under one hold of the lock: up to `rows` of
        them, fewer where they come to `size` bytes.  A body of more than `largest` bytes is not read: it is None."""
        query = ("SELECT seq, at, crc, length(body), CASE WHEN length(body) <= ? THEN body END FROM journal"
                 " WHERE seq > ? ORDER BY seq LIMIT ?")
        found: list[tuple[int, int, int, bytes | None]] = []
        with self._mutex, _reading(self.path):
            cursor = self._connection.execute(query, (largest, after, rows))
            for seq, at, crc, length, body in cursor:
                self._check(body is None or is_intact((seq, at, crc, body)), f"row {seq}")
                found.append((seq, at, length, body))
                size -= length if body is not None else 0
                if size <= 0:
                    break
            cursor.close()
        return found

    def position_before(self, at: int) -> int:
        """Return a position after which all rows of a time, and later ones, lie: times never go back."""
        low, high = 0, self.position
        while low < high:
            middle = (low + high) // 2
            row = self._time_after(middle)
            if row is None or row[1] >= at:
                high = middle
            else:
                low = row[0]
        return low

    def first_at(self) -> int:
        """Return the time of the oldest row; 0: there is none."""
        row = self._time_after(0)
        return row[1] if row is not None else 0

    def last_at(self) -> int:
        """Return the time of the last committed row: the server's clock never starts before it."""
        return self._last_at

    # --- snapshot ---------------------------------------------------------------------------------------------

    def stage(self, name: str, body: bytes) -> None:
        """Write a chunk of the next snapshot ahead, in a separate commit between appends."""
        with self._transaction() as connection:
            self._delete_orphans(connection, 1)
            if name in self._staged:
                self._orphans.append(self._staged[name])
            self._staged[name] = _insert_chunk(connection, body)

    def save_snapshot(self, position: int, meta: bytes, chunks: Mapping[str, bytes], drop: Iterable[str] = ()) -> None:
        """Save the snapshot at `position`: the chunks of the last one without `drop`, plus `chunks` and staged ones."""
        if not self._snapshot[0] <= position <= self.position:
            raise ValueError(f"a snapshot at {position} does not lie between {self._snapshot[0]} and {self.position}")
        if (largest := max(map(len, [meta, *chunks.values()]))) > MOST_BYTES:
            raise StoreError(f"a part of the snapshot has {largest:,} bytes; SQLite takes {MOST_BYTES:,}")
        with self._transaction() as connection:
            at = self._at_of(position)
            self._delete_orphans(connection, len(chunks))
            parts = {name: chunk for name, chunk in self._staged.items() if name not in chunks}
            self._orphans += [chunk for name, chunk in self._staged.items() if name in chunks]
            parts.update((name, _insert_chunk(connection, body)) for name, body in chunks.items())
            self._replace_parts(connection, parts, set(drop) - parts.keys())
            rows = ("(SELECT coalesce((SELECT rows FROM snapshot), 0) + count(*) FROM journal"
                    " WHERE seq > ? AND seq <= ?)")
            connection.execute(
                f"INSERT OR REPLACE INTO snapshot SELECT 1, ?, ?, count(*), ?, ?, {rows} FROM part",
                (position, at, schema.head_checksum(connection, position, at, meta), meta, self._snapshot[0], position),
            )
        with self._mutex:
            self._staged.clear()
            self._snapshot = (position, at)
            self.tail_bytes = self._measure_tail()

    def load_snapshot(self) -> Snapshot | None:
        with self._mutex, _reading(self.path):
            found = self._connection.execute("SELECT position, at, parts, crc, body FROM snapshot").fetchone()
            if found is None:
                self._check(not self._connection.execute("SELECT count(*) FROM part").fetchone()[0], "the snapshot")
                return None
            position, at, parts, head, meta = found
            query = "SELECT name, crc, body FROM part JOIN chunk ON chunk.id = part.chunk"
            rows = self._connection.execute(query).fetchall()
            self._check(len(rows) == parts, f"the snapshot has {len(rows)} chunks of {parts} and so")
            for name, crc, body in rows:
                self._check(zlib.crc32(body) == crc, f"chunk {name} of the snapshot")
            self._check(schema.head_checksum(self._connection, position, at, meta) == head, "the snapshot's head")
        return Snapshot(position, meta, {name: body for name, _, body in rows})

    def check_history(self) -> None:
        """Raise StoreCorrupt unless all rows are there and read back, those before the snapshot too."""
        with self._mutex, _reading(self.path):
            found = self._connection.execute("SELECT rows FROM snapshot").fetchone()
            count = self._connection.execute(
                "SELECT count(*) FROM journal WHERE seq <= ?", (self._snapshot[0],)).fetchone()[0]
        wanted = found[0] if found is not None else 0
        self._check(count == wanted, f"the history up to the snapshot has {count} rows of {wanted} and so")
        for _ in self.read(0):
            pass

    # --- retention --------------------------------------------------------------------------------------------

    def rewrite(self, upto: int, edit: Callable[[bytes], bytes | None], budget: Budget, name: str = "") -> int:
        """Take one bounded step of retention: change rows up to `upto` and the snapshot; delete those edited to None.

        Return the number of rows edited; 0 ends the pass.  A pass resumes where it stopped, also after a restart;
        another `name` begins a new pass.  A row larger than the budget is a step by itself.
        """
        reached = self._bookmark(name)
        rows = self._fetch_within(reached, min(upto, self._snapshot[0]), budget)
        if not rows:
            self._set_bookmark(name, 0)
            return 0
        with self._transaction() as connection:
            gone = 0
            for seq, at, crc, body in rows:
                self._check(is_intact((seq, at, crc, body)), f"row {seq}")
                fresh = edit(body)
                gone += fresh is None
                _replace_row(connection, seq, at, body, fresh)
            connection.execute("UPDATE snapshot SET rows = rows - ?", (gone,))
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_REWRITE, f"{rows[-1][0]} {name}"))
        return len(rows)

    def last_pass(self) -> tuple[str, bool]:
        """Return the name of the last pass of `rewrite`, and whether it reached its end."""
        found = self._read_bookmark()
        return (found[1], found[0] == 0) if found is not None else ("", True)

    def close(self) -> None:
        with self._mutex:
            self._mark.close()
            self._connection.close()
            self._lock_file.release()
            self._failure = self._failure or "the journal is closed"

    # --- inside -----------------------------------------------------------------------------------------------

    def _insert(self, row: tuple[int, int, int, bytes]) -> None:
        while True:
            try:
                self._connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?)", row)
            except (sqlite3.Error, OSError) as error:
                if not _found_no_room(error) or not self.make_room(len(row[3])):
                    raise self._fail(error) from error
            else:
                return

    def _fail(self, error: Exception) -> FlushFailed:
        if _found_no_room(error):
            self._failure = f"the disk with {self.path.parent} is full: {self.path.name} could not be written"
            return FlushFailed(self._failure, "free some space on that disk, then start the server again")
        self._failure = f"could not write {self.path}: {error}"
        return FlushFailed(self._failure, "free space on its disk, or find out what is wrong with the disk; then start "
                                          "the server again")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._mutex:
            if self._failure:
                raise FlushFailed(self._failure)
            before = list(self._orphans), dict(self._staged)
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except (sqlite3.Error, OSError) as error:
                if not _found_no_room(error):
                    raise self._fail(error) from error
                self._roll_back(*before)
                raise StoreError(f"the disk with {self.path} is full", "free some space there") from error
            except BaseException:
                self._roll_back(*before)
                raise
            self.flushes += 1

    def _roll_back(self, orphans: list[int], staged: dict[str, int]) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._orphans, self._staged = orphans, staged  # chunks that were to be replaced are still in use

    def _fetch(self, after: int, count: int) -> list[tuple[int, int, int, bytes]]:
        with self._mutex, _reading(self.path):
            return self._connection.execute(
                "SELECT seq, at, crc, body FROM journal WHERE seq > ? ORDER BY seq LIMIT ?", (after, count)
            ).fetchall()

    def _time_after(self, position: int) -> SeqAndTime | None:
        """Return the number and time of the first row after a position."""
        with self._mutex, _reading(self.path):
            query = "SELECT seq, at FROM journal WHERE seq > ? ORDER BY seq LIMIT 1"
            row: SeqAndTime | None = self._connection.execute(query, (position,)).fetchone()
        return row

    def _fetch_within(self, after: int, upto: int, budget: Budget) -> list[tuple[int, int, int, bytes]]:
        query = "SELECT seq, at, crc, body FROM journal WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        rows: list[tuple[int, int, int, bytes]] = []
        with self._mutex, _reading(self.path):
            cursor, size = self._connection.execute(query, (after, upto, budget.rows)), budget.bytes
            for row in cursor:
                rows.append(row)
                size -= len(row[3])
                if size <= 0:
                    break
            cursor.close()
        return rows

    def _check_row(self, after: int, row: tuple[int, int, int, bytes]) -> None:
        seq = row[0]
        missing = max(after, self._snapshot[0]) + 1
        self._check(isinstance(seq, int) and seq <= missing, f"row {missing} is missing and row {seq}")
        self._check(is_intact(row), f"row {seq}")

    def _check(self, good: bool, what: str) -> None:
        if not good:
            raise StoreCorrupt(f"{self.path}: {what} does not read back as it was written", _BACKUP)

    def _replace_parts(self, connection: sqlite3.Connection, parts: Mapping[str, int], drop: Iterable[str]) -> None:
        for name in (*parts, *drop):
            old = connection.execute("SELECT chunk FROM part WHERE name = ?", (name,))
            self._orphans += [chunk for (chunk,) in old]
            connection.execute("DELETE FROM part WHERE name = ?", (name,))
        connection.executemany("INSERT INTO part VALUES (?, ?)", parts.items())

    def _delete_orphans(self, connection: sqlite3.Connection, count: int) -> None:
        """Delete as many replaced chunks as are being written: freeing a large chunk takes as long as writing it."""
        doomed, self._orphans = self._orphans[:count], self._orphans[count:]
        connection.executemany("DELETE FROM chunk WHERE id = ?", [(chunk,) for chunk in doomed])

    def _at_of(self, position: int) -> int:
        query = "SELECT at FROM journal WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
        found = self._connection.execute(query, (position,)).fetchone()
        return max(found[0] if found else 0, self._snapshot[1])  # retention may have removed the row

    def _measure_tail(self) -> int:
        with _reading(self.path):
            query = "SELECT coalesce(sum(length(body)), 0) FROM journal WHERE seq > ?"
            total: int = self._connection.execute(query, (self._snapshot[0],)).fetchone()[0]
            return total

    def _bookmark(self, name: str) -> int:
        found = self._read_bookmark()
        return found[0] if found is not None and found[1] == name else 0

    def _read_bookmark(self) -> tuple[int, str] | None:
        """Return how far the last pass has come (0: to its end), and its name."""
        with self._mutex, _reading(self.path):
            found = self._connection.execute("SELECT value FROM meta WHERE name = ?", (_REWRITE,)).fetchone()
            if found is None:
                return None
            reached, _, name = found[0].partition(" ")
            return int(reached), name

    def _set_bookmark(self, name: str, reached: int) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_REWRITE, f"{reached} {name}"))


def _found_no_room(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL


def _insert_chunk(connection: sqlite3.Connection, body: bytes) -> int:
    rowid = connection.execute("INSERT INTO chunk (crc, body) VALUES (?, ?)", (zlib.crc32(body), body)).lastrowid
    assert rowid is not None
    return rowid


def _replace_row(connection: sqlite3.Connection, seq: int, at: int, old: bytes, new: bytes | None) -> None:
    if new is None:
        connection.execute("DELETE FROM journal WHERE seq = ?", (seq,))
    elif new != old:
        connection.execute("UPDATE journal SET crc = ?, body = ? WHERE seq = ?", (checksum(seq, at, new), new, seq))


# --- opening --------------------------------------------------------------------------------------------------

def create(path: Path) -> None:
    """Create a journal under another name and rename it, so that a file under its own name is always complete."""
    fresh = path.with_suffix(".new")
    for leftover in (fresh, Path(f"{fresh}-wal")):
        leftover.unlink(missing_ok=True)
    try:
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection = _connect(fresh)
        connection.execute("BEGIN IMMEDIATE")
        schema.create(connection)
        connection.execute("COMMIT")
        connection.close()  # folds the log into the file
        os.rename(fresh, path)
        mark.flush_directory(path.parent)
    except (sqlite3.Error, OSError) as error:
        raise _unusable(path, error) from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        with _reading(path):
            for pragma in _SETTINGS:
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # takes the lock, reads the log
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into those of `errors.py`."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            who = holder(path.with_suffix(".lock"))
            raise StoreLocked(f"another process has {path} open ({who})", "stop that process first") from error
        if not _is_damage(error):
            raise _unusable(path, error) from error
        raise StoreCorrupt(f"{path} is damaged: {error}", _BACKUP) from error
    except (TypeError, ValueError, IndexError, OverflowError) as error:  # values of other types than were written
        raise StoreCorrupt(f"{path} is damaged: {error}", _BACKUP) from error


def _unusable(path: Path, error: Exception) -> StoreError:
    return StoreError(f"could not use {path}: {error}", "is there space on its disk, and may you write there?")


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    damaged = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA,
               sqlite3.SQLITE_TOOBIG)
    undecodable = not code and isinstance(error, sqlite3.OperationalError)  # the driver's own: text that is not UTF-8
    return undecodable or code & 0xFF in damaged or code == sqlite3.SQLITE_IOERR_SHORT_READ


def _check_header(path: Path) -> None:
    """Refuse a file that is not a journal, before SQLite opens it: SQLite may write to any file that it opens."""
    with path.open("rb") as file:
        head = file.read(100)
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise StoreCorrupt(f"{path} is not a database ({path.stat().st_size} bytes)", _BACKUP)
    version, application = struct.unpack_from(">i", head, 60)[0], struct.unpack_from(">i", head, 68)[0]
    if application != schema.APPLICATION:
        raise StoreCorrupt(f"{path} is a database, but not a journal of Windfall", _BACKUP)
    _check_version(version, path)


def _check_version(version: int, path: Path) -> None:
    if version > schema.VERSION:
        raise StoreTooNew(
            f"{path} has layout {version}; this Windfall knows up to {schema.VERSION}",
            "start the newer Windfall that wrote it; nothing was changed",
        )


def is_intact(row: tuple[object, object, object, object]) -> bool:
    """Does a row (seq, at, crc, body) read back as it was written?"""
    seq, at, crc, body = row
    return (isinstance(seq, int) and isinstance(at, int) and isinstance(body, bytes)
            and crc == checksum(seq, at, body))


def _identity(connection: sqlite3.Connection) -> str:
    found = connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()
    if found is None or not isinstance(found[0], str) or len(bytes.fromhex(found[0])) != 16:
        raise ValueError("its identity does not read back as it was written")
    return found[0]


def _ends(connection: sqlite3.Connection) -> tuple[SeqAndTime, SeqAndTime]:
    """Return number and time of the snapshot and of the last row; zeros where there is none."""
    found = [connection.execute(query).fetchone() or (0, 0) for query in (
        "SELECT position, at FROM snapshot", "SELECT seq, at FROM journal ORDER BY seq DESC LIMIT 1")]
    if not all(isinstance(value, int) and value >= 0 for pair in found for value in pair):
        raise ValueError("the number or the time of its last commit does not read back as it was written")
    return found[0], found[1]


def _refuse_without_file(path: Path, reached: mark.Reached | None) -> None:
    """Refuse to begin a new journal where the mark says that there was one: bag numbers would be given twice."""
    if reached is not None and reached.position:
        raise StoreCorrupt(f"{path} is missing, and it had reached {name_commit(reached.position, reached.at)}",
                           _BACKUP)


def _refuse_gap(connection: sqlite3.Connection, path: Path, reached: mark.Reached | None) -> None:
    """Raise StoreCorrupt if commits are missing: by what SQLite did not take of its log, or by the mark."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    _check_version(version, path)
    if version == 0:
        return  # the first layout had no mark, and its tables have other columns
    last = max(_ends(connection))
    if reached is not None and reached.identity != _identity(connection) and reached.position:
        raise StoreCorrupt(f"{path} is another journal than the one that {mark.mark_of(path).name} tells of, which had"
                           f" reached {name_commit(reached.position, reached.at)}", _BACKUP)
    lost = _lost_in_log(connection, path)
    if reached is not None and reached.position > last[0]:
        lost = max(lost, reached.position - last[0])
        raise StoreCorrupt(
            f"{path} has lost {lost} commits: the last good one is {name_commit(*last)}, and it had reached"
            f" {name_commit(reached.position, reached.at)}", _BACKUP)
    if lost:
        raise StoreCorrupt(f"{log_file.log_of(path)} is damaged, and at least {lost} commits follow the damage: the"
                           f" last good one is {name_commit(*last)}", _BACKUP)


def _lost_in_log(connection: sqlite3.Connection, path: Path) -> int:
    page_size: int = connection.execute("PRAGMA page_size").fetchone()[0]
    found = log_file.frames(log_file.log_of(path), page_size)
    if not found:
        return 0
    with suppress(sqlite3.OperationalError):  # a full disk
        _, taken, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return log_file.lost_commits(found, taken)
    return 0


def name_commit(position: int, at: int) -> str:
    """Return a commit's number and time, for people."""
    try:
        when = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        when = f"{at} ms"
    return f"commit {position} ({when})"


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Upgrade layout by layout, each in its own transaction, so that an interrupted upgrade resumes at the next
    start."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    _check_version(version, path)
    for step in range(version, schema.VERSION):
        connection.execute("BEGIN IMMEDIATE")
        schema.UPGRADES[step](connection)
        connection.execute(f"PRAGMA user_version = {step + 1}")
        connection.execute("COMMIT")


def _fold_log(connection: sqlite3.Connection, path: Path) -> None:
    """Fold SQLite's log into the file, and check the file's length.  On a full disk the log stays, and SQLite reads
    the rows from it."""
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
        size: int = connection.execute("PRAGMA page_size").fetchone()[0]
        if path.stat().st_size < pages * size:
            raise StoreCorrupt(f"{path} is cut short: {path.stat().st_size} bytes of {pages * size}", _BACKUP)
