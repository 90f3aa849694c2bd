"""Room, and the reserve that lets results in when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from windfall.errors import FlushFailed
from windfall.store.disk import MEBI, DiskRoom
from windfall.store.journal import Journal

from .small_disk import fill, small_disk


def test_reserve_is_made_and_released_on_an_empty_disk(tmp_path: Path) -> None:
    room = DiskRoom(tmp_path, low=MEBI, reserve=MEBI)
    assert room.check() == "ok"
    assert room.renew() and room.renew() and room.held()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= MEBI
    assert (tmp_path / "reserve").stat().st_mode & 0o777 == 0o600
    assert room.release() and not room.release()


def test_a_tiny_disk_gets_a_tiny_reserve(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        room = DiskRoom(disk)
        assert (room.low, room.reserve) == (4 * MEBI, MEBI)


def test_low_then_full_then_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        room = DiskRoom(disk)
        assert room.check() == "ok" and room.renew()
        ballast = fill(disk, leave=2 * MEBI)
        assert room.check() == "low"
        fill(disk)
        assert room.check() == "full"
        room.release()
        assert room.check() == "low"
        assert not room.renew()
        ballast.unlink()
        assert room.check() == "ok" and room.renew()


def test_journal_takes_results_after_the_reserve_is_released(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        room = DiskRoom(disk)
        room.renew()
        journal = Journal.open(disk / "journal.db")
        for number in range(20):
            journal.append(number, b"x" * 1000)
        fill(disk)
        room.release()
        for number in range(20):
            journal.append(number, b"result" * 1000)
        fill(disk)
        with pytest.raises(FlushFailed):
            while True:
                journal.append(0, b"x" * 100_000)
        journal.close()
