"""The journal keeps what it acknowledged, and says so when it cannot."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from windfall.errors import FlushFailed, StoreCorrupt, StoreError, StoreLocked, StoreTooNew
from windfall.store import schema
from windfall.store.journal import Budget, Journal

from .golden.make import CHUNKS, META, ROWS
from .small_disk import fill, small_disk

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def filled(path: Path, rows: int = 10) -> None:
    journal = Journal.open(path)
    for number in range(rows):
        journal.append(number * 10, b"body %d" % number)
    journal.close()


def test_appended_rows_read_back_after_reopening(path: Path) -> None:
    filled(path)
    journal = Journal.open(path)
    assert list(journal.read(0)) == [(n + 1, n * 10, b"body %d" % n) for n in range(10)]
    assert [seq for seq, _, _ in journal.read(4, limit=3)] == [5, 6, 7]
    assert (journal.position, journal.last_at()) == (10, 90)
    assert journal.tail_bytes == 60
    journal.close()


def test_more_rows_than_one_fetch(path: Path) -> None:
    journal = Journal.open(path)
    for number in range(600):
        journal.append(number, b"x")
    assert [seq for seq, _, _ in journal.read(0)] == list(range(1, 601))
    assert len(list(journal.read(0, limit=300))) == 300


def test_a_new_journal_is_empty(path: Path) -> None:
    journal = Journal.open(path)
    assert (journal.position, journal.last_at(), journal.tail_bytes) == (0, 0, 0)
    assert list(journal.read(0)) == []
    assert journal.load_snapshot() is None


def test_files_are_private_and_settings_as_promised(path: Path) -> None:
    journal = Journal.open(path)
    assert path.stat().st_mode & 0o777 == 0o600
    ask = journal._connection.execute
    assert ask("PRAGMA synchronous").fetchone()[0] == 2
    assert ask("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert ask("PRAGMA locking_mode").fetchone()[0] == "exclusive"
    assert not path.with_name("journal.db-shm").exists()


def test_every_append_is_one_flush(path: Path) -> None:
    journal = Journal.open(path)
    for number in range(5):
        journal.append(number, b"x")
        assert journal.flushes == number + 1


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_kernel_sees_a_flush_per_append(path: Path) -> None:
    code = (
        f"from pathlib import Path; from windfall.store.journal import Journal; j = Journal.open(Path({str(path)!r}))\n"
    )
    filled(path)
    calls = [_flushes_of(code + f"for n in range({count}): j.append(n, b'x')\n") for count in (0, 20)]
    assert calls[1] - calls[0] >= 20


def _flushes_of(code: str) -> int:
    done = subprocess.run(
        ["strace", "-f", "-e", "trace=fsync,fdatasync", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.count("sync(")


APPENDER = """
import sys
from pathlib import Path
from windfall.store.journal import Journal
journal = Journal.open(Path(sys.argv[1]))
while True:
    print(journal.append(journal.position, b"row %d" % (journal.position + 1) * 50), flush=True)
"""


def test_kill_9_loses_nothing_acknowledged(path: Path) -> None:
    acknowledged = 0
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", APPENDER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(700):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1])])
        process.wait()
        process.stdout.close()
        journal = Journal.open(path)
        rows = list(journal.read(0))
        assert len(rows) == journal.position >= acknowledged
        assert all(body == b"row %d" % seq * 50 for seq, _, body in rows)
        journal.close()


def test_two_threads_do_not_tear_a_transaction(path: Path) -> None:
    journal = Journal.open(path)
    journal.append(0, b"x")

    def append() -> None:
        for number in range(200):
            journal.append(number, b"y" * 100)

    thread = threading.Thread(target=append)
    thread.start()
    for number in range(50):
        journal.stage(f"c{number}", b"z" * 5000)
        journal.save_snapshot(journal.position, b"m", {})
    thread.join()
    journal.close()
    journal = Journal.open(path)
    assert journal.position == 201
    snapshot = journal.load_snapshot()
    assert snapshot is not None and len(snapshot.chunks) == 50
    journal.close()


# --- snapshot -------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=20)), min_size=1, max_size=25), st.data())
def test_snapshot_and_tail_equal_the_whole(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    """A state of four cells, each a chunk; snapshots of what changed at random moments."""
    path = tmp_path_factory.mktemp("j") / "journal.db"
    journal = Journal.open(path)
    state: dict[str, bytes] = {}
    dirty: dict[str, bytes] = {}
    dropped: set[str] = set()
    for cell, body in changes:
        journal.append(0, bytes([cell]) + body)
        _apply(state, bytes([cell]) + body)
        name = str(cell)
        dirty.pop(name, None)
        dropped.discard(name)
        if name in state:
            dirty[name] = state[name]
        else:
            dropped.add(name)
        if data.draw(st.booleans()):
            journal.save_snapshot(journal.position, b"", dirty, dropped)
            dirty, dropped = {}, set()
    journal.close()
    assert _recover(path) == state


def _apply(state: dict[str, bytes], body: bytes) -> None:
    if len(body) > 1:
        state[str(body[0])] = body[1:]
    else:
        state.pop(str(body[0]), None)


def _recover(path: Path) -> dict[str, bytes]:
    journal = Journal.open(path)
    snapshot = journal.load_snapshot()
    state = dict(snapshot.chunks) if snapshot else {}
    for _, _, body in journal.read(snapshot.position if snapshot else 0):
        _apply(state, body)
    journal.close()
    return state


def test_staged_chunks_count_only_with_their_snapshot(path: Path) -> None:
    journal = Journal.open(path)
    journal.append(1, b"x")
    journal.save_snapshot(1, b"one", {"a": b"old"})
    journal.append(2, b"y")
    journal.stage("a", b"new")
    journal.stage("b", b"more")
    journal.close()
    journal = Journal.open(path)  # the process died before the snapshot: the old one stands
    snapshot = journal.load_snapshot()
    assert snapshot is not None and (snapshot.position, snapshot.chunks) == (1, {"a": b"old"})
    journal.stage("a", b"newer")
    journal.save_snapshot(2, b"two", {"c": b""}, ["b"])
    snapshot = journal.load_snapshot()
    assert snapshot is not None and (snapshot.meta, snapshot.chunks) == (b"two", {"a": b"newer", "c": b""})
    journal.close()


def test_replaced_chunks_do_not_pile_up(path: Path) -> None:
    journal = Journal.open(path)
    for round_ in range(6):
        journal.stage("a", b"a%d" % round_)
        journal.stage("a", b"A%d" % round_)
        journal.stage("b", b"b")
        journal.save_snapshot(0, b"", {"c": b"c%d" % round_, "b": b"B"})
        if round_ == 3:
            journal.close()
            journal = Journal.open(path)
        snapshot = journal.load_snapshot()
        assert snapshot is not None
        assert snapshot.chunks == {"a": b"A%d" % round_, "b": b"B", "c": b"c%d" % round_}
    assert journal._connection.execute("SELECT count(*) FROM chunk").fetchone()[0] <= 2 * 5
    journal.close()


def test_a_snapshot_shortens_the_tail(path: Path) -> None:
    journal = Journal.open(path)
    for number in range(4):
        journal.append(number, b"1234567890")
    journal.save_snapshot(3, b"", {})
    assert journal.tail_bytes == 10
    journal.append(5, b"12345")
    assert journal.tail_bytes == 15
    with pytest.raises(ValueError, match="does not lie"):
        journal.save_snapshot(9, b"", {})
    journal.close()
    assert Journal.open(path).tail_bytes == 15


# --- retention ------------------------------------------------------------------------------------------------


def test_rewrite_goes_on_after_a_restart_and_stops_at_the_snapshot(path: Path) -> None:
    filled(path, 10)
    journal = Journal.open(path)
    journal.save_snapshot(8, b"", {})
    assert journal.rewrite(100, _no_even, Budget(3)) == 3
    journal.close()
    journal = Journal.open(path)
    assert [journal.rewrite(100, _no_even, Budget(3)) for _ in range(3)] == [3, 2, 0]
    assert [body for _, _, body in journal.read(0)] == [
        b"BODY 1",
        b"BODY 3",
        b"BODY 5",
        b"BODY 7",
        b"body 8",
        b"body 9",
    ]
    assert journal.rewrite(100, _no_even, Budget(3)) > 0  # a new pass begins at the start
    journal.close()


def _no_even(body: bytes) -> bytes | None:
    return None if int(body[-1:]) % 2 == 0 else body.upper()


def test_position_and_time_survive_the_deletion_of_every_row(path: Path) -> None:
    filled(path, 5)
    journal = Journal.open(path)
    journal.save_snapshot(5, b"", {})
    while journal.rewrite(5, lambda body: None, Budget(2)):
        pass
    journal.close()
    journal = Journal.open(path)
    assert (journal.position, journal.last_at()) == (5, 40)
    journal.save_snapshot(5, b"again", {})
    journal.close()
    journal = Journal.open(path)
    assert journal.last_at() == 40
    assert journal.append(60, b"next") == 6
    journal.close()
    assert list(Journal.open(path).read(5)) == [(6, 60, b"next")]


# --- a second writer ------------------------------------------------------------------------------------------


def test_a_second_process_is_refused_and_told_who(path: Path) -> None:
    journal = Journal.open(path)
    code = f"from pathlib import Path; from windfall.store.journal import Journal; Journal.open(Path({str(path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "StoreLocked" in done.stderr and f"process {os.getpid()}" in done.stderr
    journal.append(1, b"still ours")
    journal.close()
    Journal.open(path).close()


def test_a_second_opening_in_the_same_process_is_refused(path: Path) -> None:
    journal = Journal.open(path)
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        Journal.open(path)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sqlite3; c = sqlite3.connect({str(path)!r}, timeout=0); c.execute('SELECT * FROM journal')",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "locked" in done.stderr  # the failed opening took no lock away
    journal.close()


def test_journal_held_by_another_program_is_reported_as_locked(path: Path) -> None:
    filled(path)
    other = sqlite3.connect(path)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    code = f"from pathlib import Path; from windfall.store.journal import Journal; Journal.open(Path({str(path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "StoreLocked" in done.stderr
    other.close()


# --- damage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a database"),
        (b"hello", "not a database"),
        (os.urandom(20_000), "not a database"),
        (b"SQLite format 3\0" + bytes(5000), "not a journal"),
    ],
)
def test_a_file_that_is_no_journal_is_left_alone(path: Path, content: bytes, says: str) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=says) as caught:
        Journal.open(path)
    assert caught.value.hint
    assert path.read_bytes() == content


def test_database_of_another_program_is_refused_and_unchanged(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE precious (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="not a journal"):
        Journal.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("keep", [0.99, 0.5, 0.1, 100])
def test_a_file_cut_short(path: Path, keep: float) -> None:
    filled(path, 400)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(int(size * keep) if keep < 1 else int(keep))
    with pytest.raises(StoreCorrupt):
        Journal.open(path)
    assert path.exists()


def test_a_flipped_bit_is_named_by_its_row(path: Path) -> None:
    filled(path)
    whole = path.read_bytes()
    place = whole.index(b"body 6")
    path.write_bytes(whole[:place] + b"Body 6" + whole[place + 6 :])
    journal = Journal.open(path)
    rows = journal.read(0)
    assert [next(rows)[0] for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(StoreCorrupt, match="row 7 "):
        next(rows)
    journal.close()


def test_a_missing_row_is_named(path: Path) -> None:
    filled(path)
    _sql(path, "DELETE FROM journal WHERE seq = 5")
    journal = Journal.open(path)
    with pytest.raises(StoreCorrupt, match="row 5 is missing"):
        list(journal.read(0))
    journal.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE chunk SET body = x'00'",
        "DELETE FROM chunk",
        "UPDATE snapshot SET body = x'00'",
    ],
)
def test_a_damaged_snapshot_is_not_loaded(path: Path, damage: str) -> None:
    filled(path)
    journal = Journal.open(path)
    journal.save_snapshot(5, b"meta", {"a": b"abc", "b": b"def"})
    journal.close()
    _sql(path, damage)
    journal = Journal.open(path)
    with pytest.raises(StoreCorrupt):
        journal.load_snapshot()
    journal.close()


def test_missing_tables_are_damage(path: Path) -> None:
    filled(path)
    _sql(path, "DROP TABLE snapshot")
    with pytest.raises(StoreCorrupt, match="no such table"):
        Journal.open(path)


def _sql(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


# --- versions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_every_layout_ever_written_still_opens(path: Path, version: int) -> None:
    shutil.copy(GOLDEN / f"v{version}.db", path)
    for _ in range(2):  # the second time it is new already
        journal = Journal.open(path)
        assert list(journal.read(0)) == ROWS
        snapshot = journal.load_snapshot()
        assert snapshot is not None
        assert (snapshot.position, snapshot.meta, snapshot.chunks) == (2, META, CHUNKS)
        assert (journal.position, journal.last_at(), journal.tail_bytes) == (3, 3000, 500)
        assert len(journal.identity) == 32
        journal.close()
    journal = Journal.open(path)
    assert journal.append(4000, b"fourth") == 4
    journal.close()


def test_every_layout_has_a_golden_file() -> None:
    assert sorted(file.name for file in GOLDEN.glob("v*.db")) == [f"v{n}.db" for n in range(schema.VERSION + 1)]
    assert sorted(schema.UPGRADES) == list(range(schema.VERSION))


def test_an_upgrade_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(GOLDEN / "v0.db", path)

    def half(connection: sqlite3.Connection) -> None:
        schema._add_checksums(connection)
        raise sqlite3.OperationalError("the power went out")

    monkeypatch.setitem(schema.UPGRADES, 0, half)
    with pytest.raises(StoreError):
        Journal.open(path)
    monkeypatch.undo()
    journal = Journal.open(path)
    assert list(journal.read(0)) == ROWS
    journal.close()


def test_a_newer_layout_is_refused_untouched(path: Path) -> None:
    filled(path)
    _sql(path, f"PRAGMA user_version = {schema.VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=f"layout {schema.VERSION + 1}") as caught:
        Journal.open(path)
    assert "newer" in caught.value.hint
    assert path.read_bytes() == before


# --- a full disk ----------------------------------------------------------------------------------------------


def test_a_full_disk_fails_the_flush_and_keeps_the_rest(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        journal = Journal.open(disk / "journal.db")
        ballast = fill(disk, leave=600_000)
        with pytest.raises(FlushFailed, match="the disk with .* is full") as caught:
            for number in range(10_000):
                journal.append(number, b"x" * 5000)
        assert "space" in caught.value.hint
        good = journal.position
        assert good > 10
        ballast.unlink()
        with pytest.raises(FlushFailed):  # even with room again: this process is over
            journal.append(0, b"y")
        fill(disk)
        journal.close()
        journal = Journal.open(disk / "journal.db")  # on the disk as full as it was
        rows = list(journal.read(0))
        assert [seq for seq, _, _ in rows][:good] == list(range(1, good + 1))
        assert all(body == b"x" * 5000 for _, _, body in rows)
        journal.close()


def test_after_close_nothing_is_appended(path: Path) -> None:
    journal = Journal.open(path)
    journal.close()
    with pytest.raises(FlushFailed, match="closed"):
        journal.append(1, b"x")
