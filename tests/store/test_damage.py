"""A journal that lost commits, or does not read back, is refused with words."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from windfall.errors import StoreCorrupt, StoreError
from windfall.store import log_file, mark
from windfall.store.journal import Journal

ROWS = 40
BODIES = [b"row %d " % n * (n % 7 * 90 + 1) for n in range(1, ROWS + 1)]
TIME = 1_790_000_000_000  # 2026-09-21


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a journal as kill -9 leaves it: all commits are in the log."""
    home, copy = tmp_path_factory.mktemp("alive"), tmp_path_factory.mktemp("killed")
    journal = Journal.open(home / "journal.db")
    for number, body in enumerate(BODIES):
        journal.append(TIME + number * 1000, body)
        if number == 10:
            journal.save_snapshot(5, b"head", {"a": b"chunk", "b": b"another"})
    for name in ("journal.db", "journal.db-wal", "journal.mark"):
        shutil.copy(home / name, copy / name)
    journal.close()
    return copy


@pytest.fixture
def path(killed: Path, tmp_path: Path) -> Path:
    shutil.copytree(killed, tmp_path / "home")
    return tmp_path / "home" / "journal.db"


def whole(path: Path) -> bool:
    """Open a journal and read all of it; return whether every commit is there.  StoreError passes."""
    journal = Journal.open(path)
    try:
        snapshot = journal.load_snapshot()
        assert snapshot is not None
        assert (snapshot.position, snapshot.meta, snapshot.chunks) == (5, b"head", {"a": b"chunk", "b": b"another"})
        journal.check_history()
        return [(seq, at, body) for seq, at, body in journal.read(0)] == [
            (n + 1, TIME + n * 1000, body) for n, body in enumerate(BODIES)]
    finally:
        journal.close()


def flip(path: Path, place: int, bit: int) -> None:
    body = bytearray(path.read_bytes())
    body[place] ^= 1 << bit
    path.write_bytes(body)


def test_undamaged_copy_is_whole(path: Path) -> None:
    assert whole(path)


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bit_in_the_log_is_refused_or_harmless(path: Path, seed: int) -> None:
    log, dice = log_file.log_of(path), random.Random(seed)
    flip(log, dice.randrange(log.stat().st_size) if seed else 200, dice.randrange(8))
    before = log.read_bytes()
    try:
        assert whole(path)
    except StoreCorrupt as error:
        assert "commit" in error.message and "doctor" in error.hint
        assert log.read_bytes() == before, "the evidence is kept"
        with pytest.raises(StoreCorrupt):
            Journal.open(path)
        assert not Path(f"{log}.kept").exists()


def test_refusal_names_the_last_good_commit(path: Path) -> None:
    log = log_file.log_of(path)
    flip(log, log.read_bytes().index(BODIES[30]) + 1, 0)
    with pytest.raises(StoreCorrupt, match=r"last good one is commit \d+ \(2026-09-21 .* UTC\), and it had reached "
                                           r"commit 40"):
        Journal.open(path)


def test_damaged_log_is_refused_without_a_mark_if_commits_follow(path: Path) -> None:
    """A crash of the machine may lose the mark, or leave an old one."""
    mark.mark_of(path).unlink()
    log = log_file.log_of(path)
    flip(log, log.read_bytes().index(BODIES[20]) + 1, 0)
    with pytest.raises(StoreCorrupt, match=r"at least \d+ commits follow the damage"):
        Journal.open(path)


def test_torn_last_transaction_is_no_damage(path: Path) -> None:
    """A crash before the flush tears the transaction that nobody was told of, and the mark does not have it."""
    reached = mark.read(mark.mark_of(path))
    assert reached is not None
    older = mark.Mark(mark.mark_of(path), reached.identity)
    older.write(ROWS - 1, TIME, mark.NONE)
    older.close()
    log = log_file.log_of(path)
    log.write_bytes(log.read_bytes()[:-100])
    journal = Journal.open(path)
    assert journal.position == ROWS - 1
    journal.close()


@pytest.mark.parametrize("lose", [
    lambda log: log.unlink(), lambda log: log.write_bytes(b""), lambda log: os.truncate(log, log.stat().st_size // 2),
])
def test_deleted_or_cut_log_is_refused(path: Path, lose: Callable[[Path], None]) -> None:
    lose(log_file.log_of(path))
    with pytest.raises(StoreCorrupt, match=r"has lost \d+ commits"):
        Journal.open(path)


def test_missing_journal_is_not_begun_anew_beside_its_mark(path: Path) -> None:
    path.unlink()
    with pytest.raises(StoreCorrupt, match="is missing, and it had reached commit 40"):
        Journal.open(path)
    assert not path.exists()


def test_journal_of_another_server_is_refused(path: Path, tmp_path: Path) -> None:
    other = Journal.open(tmp_path / "other" / "journal.db")
    other.close()
    shutil.copy(other.path, path)
    log_file.log_of(path).unlink()
    with pytest.raises(StoreCorrupt, match="another journal"):
        Journal.open(path)


@pytest.mark.parametrize("damage", [b"", b"x" * 68, bytes(range(100, 168)), None], ids=repr)
def test_mark_that_does_not_read_back_says_nothing(path: Path, damage: bytes | None) -> None:
    if damage is None:
        mark.mark_of(path).unlink()
    else:
        mark.mark_of(path).write_bytes(damage)
    assert whole(path)
    reached = mark.read(mark.mark_of(path))
    journal = Journal.open(path)
    journal.append(TIME * 2, b"more")
    journal.close()
    reached = mark.read(mark.mark_of(path))
    assert reached is not None and reached.position == ROWS + 1


def test_mark_holds_the_numbers_that_come_next(path: Path) -> None:
    journal = Journal.open(path)
    journal.numbers = lambda: (7, 8, 9)
    journal.append(TIME * 2, b"more")
    identity = journal.identity
    journal.close()
    assert mark.read(mark.mark_of(path)) == mark.Reached(identity, ROWS + 1, TIME * 2, (7, 8, 9))


@pytest.mark.parametrize("statement", [
    "UPDATE meta SET value = 7", "UPDATE meta SET value = x'ff'", "DELETE FROM meta", "UPDATE meta SET value = 'beef'",
    "UPDATE snapshot SET position = 'far'", "UPDATE snapshot SET position = 6", "UPDATE snapshot SET at = 1",
    "UPDATE snapshot SET at = -1", "UPDATE snapshot SET body = 'text'", "UPDATE snapshot SET body = 3",
    "UPDATE snapshot SET crc = 'x'", "UPDATE snapshot SET parts = 'x'", "DELETE FROM snapshot",
    "UPDATE part SET name = 'c' WHERE name = 'a'", "UPDATE part SET name = 4 WHERE name = 'a'",
    "UPDATE part SET chunk = 99 WHERE name = 'a'", "UPDATE chunk SET body = 9", "UPDATE chunk SET body = 'text'",
    "UPDATE journal SET at = 'soon' WHERE seq = 40", "UPDATE journal SET at = 'soon' WHERE seq = 20",
    "UPDATE journal SET body = 'text' WHERE seq = 20", "UPDATE journal SET body = 5 WHERE seq = 40",
    "UPDATE journal SET crc = 'x' WHERE seq = 20", "UPDATE journal SET crc = x'00'", "DELETE FROM journal",
    "DELETE FROM journal WHERE seq = 3", "DELETE FROM journal WHERE seq = 30", "DELETE FROM journal WHERE seq = 40",
])
def test_values_of_other_kinds_are_damage_in_words(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()
    with pytest.raises(StoreCorrupt) as caught:
        whole(path)
    assert caught.value.hint


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bit_in_the_file_is_refused_or_harmless(path: Path, seed: int) -> None:
    Journal.open(path).close()  # folds the log into the file
    dice = random.Random(seed)
    flip(path, dice.randrange(100) if seed % 3 == 0 else dice.randrange(path.stat().st_size), dice.randrange(8))
    try:
        assert whole(path)
    except StoreError as error:
        assert error.hint
