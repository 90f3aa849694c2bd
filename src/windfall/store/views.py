"""The views: disposable tables for people and pages, made from the journal.

Rules
  * The views are never the truth.  On any doubt (another version, another journal, a position beyond the journal's,
    damage) the file is deleted and filled again from the journal's first row.
  * `position` is the last journal row that the views contain; each transaction writes it together with its rows.
  * One thread projects.  Each reading thread has its own connection and blocks no other; closing waits for queries
    under way.
  * A failed write is rolled back completely: the views stay at their position, without an open transaction.
  * The cost of a page depends on its rows, not on the size of the bag.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from windfall.core.messages.facts import Fact
from windfall.core.messages.lifecycle import CANCELLED, FIRST_FINAL, O_SUCCEEDED, OUTCOMES, SUCCEEDED, TASK_STATES
from windfall.errors import NotFound, StoreError, Unavailable, ViewsDamaged
from windfall.store import projection, tally
from windfall.store.schema import run

APPLICATION = 0x57465631  # "WFV1"
VERSION = 5
CHECKED_PAGES = 4096  # a file of more pages is not checked as a whole when it is opened
BATCH = 20_000  # attempts that are gathered before a flush


_NO_EXIT = frozenset(("signal", "time", "memory", "start", "input", "cancel", "recall", "stop", "lease", "gone",
                      "superseded", "refused", "program"))


class ViewRow(msgspec.Struct):
    """The row of an attempt, or of an ended task: ROW of docs/reference/http.md without the specification's fields."""

    task: int
    state: str
    generation: int = 0
    attempt: int | None = None
    outcome: str = ""
    why: str = ""
    exit: int | None = None
    signal: int | None = None
    pilot: int | None = None
    site: str = ""
    host: str = ""
    granted: int | None = None
    started: int | None = None
    ended: int | None = None
    wall: int = 0
    cpu: int = 0
    rss: int = 0
    out_size: int = 0
    err_size: int = 0
    files: list[tuple[str, str, int, int]] = []
    value: str = ""
    note: str = ""
    values: dict[str, str] = {}
    saved: list[tuple[str, str, int, int]] = []
    scratch: tuple[str, int] | None = None


class Views:
    """The views of one journal: `open` them, fill them with `project` and `flush`, query them with the rest."""

    position: int  # the last journal row whose facts are readable here

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.position = connection.execute("SELECT position FROM place").fetchone()[0]
        self._connection = connection
        self._projection = projection.Projection(connection)
        self._reached = self.position
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._mutex = threading.Lock()
        self._reading = 0
        self._closed = False
        self._idle = threading.Condition(self._mutex)

    @classmethod
    def open(cls, path: Path, identity: str = "", journal_position: int | None = None) -> Views:
        """Open the views of the journal with that `identity`, whose last row is `journal_position`."""
        try:
            return cls._open(path, identity, journal_position)
        except (sqlite3.Error, OSError) as error:
            raise _unwritable(path, error) from error

    @classmethod
    def _open(cls, path: Path, identity: str, journal_position: int | None) -> Views:
        connection = None
        try:
            connection = _connect(path)
            if _is_sound(connection, identity, journal_position):
                return cls(path, connection)
        except (sqlite3.Error, TypeError, ValueError):
            pass
        if connection is not None:
            connection.close()
        discard(path)
        connection = _connect(path)
        _create(connection, identity)
        return cls(path, connection)

    # --- filling ----------------------------------------------------------------------------------------------

    @property
    def reached(self) -> int:
        """Return the last journal row that was projected, flushed or not."""
        return self._reached

    def project(self, seq: int, facts: Sequence[Fact]) -> None:
        """Project one journal row.  Its facts are readable after `flush`, which runs by itself after BATCH attempts.

        Raise StoreError if the row cannot be written: the views then stay at `position` and can go on from there.
        """
        if seq <= self._reached:
            return
        with self._rolling_back_on_error():
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            self._projection.take(seq, facts)
        self._reached = seq
        if len(self._projection.attempts) >= BATCH:
            self.flush()

    def flush(self) -> int:
        """Make all projected rows readable; return `position`."""
        if self._connection.in_transaction:
            with self._rolling_back_on_error():
                self._projection.write()
                self._connection.execute("UPDATE place SET position = ?", (self._reached,))
                self._connection.execute("COMMIT")
            self.position = self._reached
        return self.position

    def forget(self, bag: int, budget_rows: int = 50_000) -> int:
        """Delete up to `budget_rows` rows of a bag; return how many were deleted, 0 once none is left."""
        self.flush()
        deleted = 0
        with self._rolling_back_on_error():
            self._connection.execute("BEGIN IMMEDIATE")
            for statement in _FORGET:
                deleted += self._connection.execute(statement, (bag, budget_rows - deleted)).rowcount
            self._connection.execute("COMMIT")
        if not deleted:
            self._projection.reload()
        return deleted

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without writing the gathered rows: the journal has their facts."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._reading)
            for reader in self._readers:
                reader.close()
            self._readers.clear()
        self._connection.close()

    # --- queries ----------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Views]:
        """Keep the views open for a query from another thread than the one that closes them."""
        with self._idle:
            if self._closed:
                raise Unavailable("the views are being rebuilt", "try again in a moment", retry_after=1)
            self._reading += 1
        try:
            yield self
        except (sqlite3.Error, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
            if is_busy(error):
                raise
            if _is_of_the_system(error):
                raise StoreError(f"could not read {self.path}: {error}", "is there room on its disk?") from error
            raise ViewsDamaged(f"{self.path} does not read back as it was written: {error}") from error
        finally:
            with self._idle:
                self._reading -= 1
                self._idle.notify_all()

    def results(self, bag: int, after: int = -1, limit: int = 1000, state: str = "") -> list[ViewRow]:
        """Return one row per ended task, by task number: the attempt whose result counts, else the last one."""
        reader = self._reader()
        if self._is_removed(reader, bag):
            return []
        wanted = TASK_STATES.index(state) if state else None
        found: list[ViewRow] = []
        for task, rows, span in _ended_tasks(reader, bag, after, wanted):
            row = _verdict(task, rows, span)
            if row is not None and (not state or row.state == state):
                found.append(row)
                if len(found) >= limit:
                    break
        return found

    def attempts(self, bag: int, task: int) -> list[ViewRow]:
        """Return all ended attempts of a task, oldest first."""
        query = f"{_SELECT} WHERE a.bag = ? AND a.task = ? ORDER BY a.seq, a.attempt"
        return [_row(row) for row in self._reader().execute(query, (bag, task))]

    def logs(self, bag: int, task: int, attempt: int | None = None, stream: str = "out") -> tuple[bytes, int]:
        """Return the kept part of an attempt's output and the full size; by default of the attempt that counts."""
        if stream not in ("out", "err"):
            raise NotFound(f"there is no stream {stream!r}", "choose 'out' or 'err'")
        chosen = attempt if attempt is not None else self._counting_attempt(bag, task)
        found = self._reader().execute(
            f"SELECT {stream}, {stream}_size FROM attempt a LEFT JOIN detail d USING (attempt)"
            " WHERE a.bag = ? AND a.task = ? AND a.attempt = ?", (bag, task, chosen)
        ).fetchone()
        if found is None:
            raise NotFound(f"task {task} of bag {bag} has no such ended attempt")
        return found[0] or b"", found[1] or 0

    def summary(self, bag: int) -> dict[str, Any]:
        """Return a bag's usage so far, by outcome of its attempts."""
        position, reader = self.position, self._reader()
        columns = ("bag", "owner", "name", "tasks", "submitted", "closed")
        found = reader.execute(f"SELECT {', '.join(columns)} FROM bag WHERE bag = ? AND NOT removed", (bag,)).fetchone()
        if found is None:
            raise NotFound(f"there is no bag {bag}")
        names = ("attempts", "wall", "cpu", "rss", "first", "last")
        usage = reader.execute(
            f"SELECT outcome, sum(attempts), {tally.sum_of('wall')}, {tally.sum_of('cpu')}, max(rss), min(first),"
            " max(last) FROM usage WHERE bag = ? GROUP BY outcome", (bag,))
        by_outcome = {OUTCOMES[row[0]]: dict(zip(names, row[1:], strict=True)) for row in usage}
        return dict(zip(columns, found, strict=True), usage=by_outcome, position=position)

    def statistics(self, bag: int, worked: int, began: int) -> dict[str, Any]:
        return {**tally.statistics(self._reader(), bag, worked, began), "position": self.position}

    def largest(self, owner: str, limit: int) -> list[tuple[int, str, int]]:
        """Return the bags of an owner whose results take most space: number, name, bytes."""
        query = ("SELECT b.bag, b.name, s.bytes FROM stored s JOIN bag b USING (bag)"
                 " WHERE b.owner = ? AND NOT b.removed ORDER BY s.bytes DESC LIMIT ?")
        return self._reader().execute(query, (owner, limit)).fetchall()

    def stored(self, owner: str) -> dict[int, int]:
        """Return the bytes of the results' files for each bag of an owner."""
        query = "SELECT b.bag, s.bytes FROM stored s JOIN bag b USING (bag) WHERE b.owner = ? AND NOT b.removed"
        return dict(self._reader().execute(query, (owner,)).fetchall())

    def failures(self, bag: int) -> list[dict[str, Any]]:
        return tally.failures(self._reader(), bag)

    def failed_tasks(self, bag: int, selector: dict[str, Any]) -> list[int]:
        return tally.failed_tasks(self._reader(), bag, selector)

    def pilots(self, after: int = -1, limit: int = 1000) -> list[dict[str, Any]]:
        """Return the pilots that ever enrolled, by number."""
        cursor = self._reader().execute("SELECT * FROM pilot WHERE pilot > ? ORDER BY pilot LIMIT ?", (after, limit))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def blobs(self, owner: str = "") -> set[str]:
        """Return the blobs that results refer to, those of one owner or of all, without those of removed bags.

        Checkpoints are not among them: the core knows which ones tasks may still need.
        """
        there = "bag NOT IN (SELECT bag FROM bag WHERE removed)"
        if owner:
            there = "bag IN (SELECT bag FROM bag WHERE owner = ? AND NOT removed)"
        rows = self._reader().execute(
            f"SELECT files, scratch FROM detail WHERE (files IS NOT NULL OR scratch IS NOT NULL) AND {there}",
            (owner,) if owner else ())
        wanted: set[str] = set()
        for files, scratch in rows:
            wanted.update(sha for _, sha, _, _ in _decode_files(files or b"[]"))
            if scratch:
                wanted.add(scratch)
        return wanted

    def removed(self) -> list[int]:
        """Return the removed bags that still have rows; `forget` deletes these in steps."""
        return [bag for (bag,) in self._reader().execute("SELECT bag FROM bag WHERE removed ORDER BY bag")]

    # --- inside -----------------------------------------------------------------------------------------------

    @contextmanager
    def _rolling_back_on_error(self) -> Iterator[None]:
        """Roll back if the block fails.  A failed write raises StoreError: the server goes on, since views can wait."""
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            if not is_busy(error) and is_damage(error):
                raise ViewsDamaged(f"{self.path} is damaged: {error}") from error
            self._roll_back()
            raise _unwritable(self.path, error) from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._projection = projection.Projection(self._connection)
        self._reached = self.position

    def _reader(self) -> sqlite3.Connection:
        reader: sqlite3.Connection | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = sqlite3.connect(self.path, timeout=5, isolation_level=None, check_same_thread=False)
            reader.execute("PRAGMA query_only = ON")
            self._local.reader = reader
            with self._mutex:
                self._readers.append(reader)
        return reader

    def _is_removed(self, reader: sqlite3.Connection, bag: int) -> bool:
        return reader.execute("SELECT 1 FROM bag WHERE bag = ? AND removed", (bag,)).fetchone() is not None

    def _counting_attempt(self, bag: int, task: int) -> int | None:
        ended = self.results(bag, after=task - 1, limit=1)
        if ended and ended[0].task == task and ended[0].attempt is not None:
            return ended[0].attempt
        every = self.attempts(bag, task)
        return every[-1].attempt if every else None


_FORGET = (  # delete up to ?2 rows of bag ?1; the bag itself last
    "DELETE FROM started WHERE attempt IN"
    " (SELECT attempt FROM attempt JOIN started USING (attempt) WHERE bag = ?1 LIMIT ?2)",
    "DELETE FROM detail WHERE attempt IN (SELECT attempt FROM detail WHERE bag = ?1 LIMIT ?2)",
    "DELETE FROM attempt WHERE (bag, task, attempt) IN"
    " (SELECT bag, task, attempt FROM attempt WHERE bag = ?1 LIMIT ?2)",
    "DELETE FROM span WHERE (bag, first) IN (SELECT bag, first FROM span WHERE bag = ?1 LIMIT ?2)",
    *tally.FORGET,
    "DELETE FROM bag WHERE bag = ?1 AND ?2 > 0",
)


def _unwritable(path: Path, error: Exception) -> StoreError:
    return StoreError(f"could not write {path}: {error}", "is there room on its disk?")


# --- from rows to results -------------------------------------------------------------------------------------

_SELECT = (
    "SELECT a.task, a.attempt, a.seq, a.generation, a.outcome, a.verdict, a.why, d.exit, d.signal, a.pilot, p.site,"
    " p.host_name, a.granted, a.started, a.ended, a.wall, a.cpu, a.rss, d.out_size, d.err_size, d.files, d.value,"
    " d.note, d.caught, d.saved, d.scratch, d.scratch_size"
    " FROM attempt a LEFT JOIN detail d ON d.attempt = a.attempt LEFT JOIN pilot p ON p.pilot = a.pilot"
)
_SEQ, _GENERATION, _OUTCOME, _VERDICT = 2, 3, 4, 5
_decode_files = msgspec.json.Decoder(list[tuple[str, str, int, int]]).decode
_decode_values = msgspec.json.Decoder(dict[str, str]).decode

Raw = tuple[Any, ...]
Group = tuple[int, list[Raw] | None]  # a task and its attempts
Candidate = tuple[int, list[Raw], projection.Span | None]


def _ended_tasks(reader: sqlite3.Connection, bag: int, after: int, wanted: int | None) -> Iterator[Candidate]:
    """Yield the tasks that may have ended, in order, with their attempts and their span."""
    spans = _Spans(reader, bag, after)
    groups = _groups(reader, bag, after, wanted)
    rows: list[Raw] | None
    if wanted is not None and wanted != CANCELLED:
        for task, rows in groups:
            yield task, rows or [], spans.of(task)
        return
    numbers = ((task, None) for task in spans.cancelled())
    together = merge(groups, numbers, key=lambda pair: pair[0])
    for task, pairs in groupby(together, key=lambda pair: pair[0]):
        rows = next((found for _, found in pairs if found is not None), None)
        if rows is None and wanted is not None:  # the index has only final rows: read the others
            rows = reader.execute(f"{_SELECT} WHERE a.bag = ? AND a.task = ?", (bag, task)).fetchall()
        yield task, rows or [], spans.of(task)


def _groups(reader: sqlite3.Connection, bag: int, after: int, wanted: int | None) -> Iterator[Group]:
    """Yield the attempts task by task, lazily, so that a page reads only its own rows."""
    if wanted is None or wanted <= SUCCEEDED:
        cursor = reader.execute(f"{_SELECT} WHERE a.bag = ? AND a.task > ? ORDER BY a.task", (bag, after))
        for task, rows in groupby(cursor, key=lambda row: row[0]):
            yield task, list(rows)
        return
    query = ("SELECT DISTINCT task FROM attempt INDEXED BY attempt_unhappy"
             " WHERE bag = ? AND verdict = ? AND verdict > 4 AND task > ? ORDER BY task")
    for (task,) in reader.execute(query, (bag, wanted, after)):
        yield task, reader.execute(f"{_SELECT} WHERE a.bag = ? AND a.task = ?", (bag, task)).fetchall()


class _Spans:
    """The spans of a bag after a task; spans do not overlap."""

    def __init__(self, reader: sqlite3.Connection, bag: int, after: int) -> None:
        self._spans = projection.overlapping(reader, bag, after + 1, 1 << 62)
        self._after = after
        self._next = 0

    def cancelled(self) -> Iterator[int]:
        for span in self._spans:
            if span[4] == CANCELLED:
                yield from range(max(span[1], self._after + 1), span[2] + 1)

    def of(self, task: int) -> projection.Span | None:
        """Return the span of a task, or None.  Calls must ask for tasks in ascending order."""
        while self._next < len(self._spans) and self._spans[self._next][2] < task:
            self._next += 1
        if self._next < len(self._spans) and self._spans[self._next][1] <= task:
            return self._spans[self._next]
        return None


def _verdict(task: int, rows: list[Raw], span: projection.Span | None) -> ViewRow | None:
    """Return the row that decides a task; None if the task has not ended."""
    rows = _current_rows(rows, span)
    final = [row for row in rows if row[_VERDICT] >= FIRST_FINAL]
    if span and span[4] == CANCELLED and not any(row[_SEQ] > span[3] for row in final):
        return _cancelled(task, rows, span)
    if not final:
        return None
    if final[-1][_VERDICT] == SUCCEEDED:
        return _row(next((row for row in rows if row[_OUTCOME] == O_SUCCEEDED), final[-1]), SUCCEEDED)
    return _row(final[-1])


def _current_rows(rows: list[Raw], span: projection.Span | None) -> list[Raw]:
    """Return the attempts of a task's newest generation, oldest first."""
    generation = max([span[5] if span else 0, *(row[_GENERATION] for row in rows)])
    return sorted((row for row in rows if row[_GENERATION] == generation), key=lambda row: row[_SEQ])


def exit_of(code: int | None, signal: int | None, why: str) -> int | None:
    """Return the exit code; None for a 0 that is only a default, since the process did not exit by itself."""
    return None if code == 0 and (signal or why in _NO_EXIT) else code


def _cancelled(task: int, rows: list[Raw], span: projection.Span) -> ViewRow:
    if rows:
        return _row(rows[-1], CANCELLED)
    return ViewRow(task, TASK_STATES[CANCELLED], generation=span[5], why=span[7], ended=span[6], note=span[8])


def _row(raw: Raw, state: int | None = None) -> ViewRow:
    (task, attempt, _, generation, outcome, verdict, why, exit_code, signal, pilot, site, host, granted, started, ended,
     wall, cpu, rss, out_size, err_size, files, value, note, caught, saved, scratch, scratch_size) = raw
    if exit_code is None and outcome == O_SUCCEEDED:
        exit_code, signal = 0, 0
    return ViewRow(
        task=task, state=TASK_STATES[verdict if state is None else state], generation=generation, attempt=attempt,
        outcome=OUTCOMES[outcome], why=why, exit=exit_of(exit_code, signal, why), signal=signal, pilot=pilot,
        site=site or "", host=host or "", granted=granted, started=started, ended=ended, wall=wall, cpu=cpu, rss=rss,
        out_size=out_size or 0, err_size=err_size or 0, files=_decode_files(files or b"[]"), value=value or "",
        note=note or "", values=_decode_values(caught or b"{}"), saved=_decode_files(saved or b"[]"),
        scratch=(scratch, scratch_size) if scratch else None,
    )


# --- opening --------------------------------------------------------------------------------------------------

def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    except sqlite3.OperationalError:
        pass  # no shared memory on this file system: readers and writer take turns
    for pragma in ("synchronous = NORMAL", "wal_autocheckpoint = 8192", "cache_size = -16384", "temp_store = MEMORY",
                   "journal_size_limit = 67108864"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def discard(path: Path) -> None:
    """Delete the file of views: the journal has all of it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def is_busy(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT)


def _is_of_the_system(error: Exception) -> bool:
    """Has a query failed for want of room, memory or rights, and not because of the file?  A read that fails is of the
    file: another file may lie on better sectors."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code in (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ):
        return False
    return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR,
                           sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


def is_damage(error: Exception) -> bool:
    """Has a write failed because of the file, and not for want of room?"""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def place_of(path: Path) -> tuple[str, int]:
    """Return the identity of the journal that a file of views belongs to, and its position there; ("", 0) if the file
    is missing or does not read back."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=5, isolation_level=None, uri=True)
    except sqlite3.Error:
        return "", 0
    try:
        position, identity = connection.execute("SELECT position, identity FROM place").fetchone()
    except (sqlite3.Error, TypeError):
        return "", 0
    finally:
        connection.close()
    return (identity, position) if isinstance(identity, str) and isinstance(position, int) else ("", 0)


def _is_sound(connection: sqlite3.Connection, identity: str, journal_position: int | None) -> bool:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application, version) != (APPLICATION, VERSION):
        return False
    small = connection.execute("PRAGMA page_count").fetchone()[0] <= CHECKED_PAGES
    if small and connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        return False
    position, whose = connection.execute("SELECT position, identity FROM place").fetchone()
    return whose == identity and (journal_position is None or position <= journal_position)


def _create(connection: sqlite3.Connection, identity: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    run(connection, projection.TABLES)
    run(connection, tally.TABLES)
    connection.execute("CREATE TABLE place (position INTEGER, identity TEXT)")
    connection.execute("INSERT INTO place VALUES (0, ?)", (identity,))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")
