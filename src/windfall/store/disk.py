"""Free space on the disk, and a reserve for results.

The server must record results even when the disk is full.  So two empty files in the data folder take space:

    reserve         released as a whole when the disk is full
    reserve.last    given back a piece at a time when a write finds no room: the first half for results, a quarter to
                    stop, the rest to start again

When the disk is *low*, the server refuses new work; when it is *full*, the server also releases the reserve; `renew`
makes both files again once there is space.  A quota that the file system does not show is noticed only at the first
failed write.  `server/files/disk_guard.py` refuses work and files then.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

from windfall.errors import StoreError
from windfall.model.units import format_size

MEBI = 1 << 20
PIECE = MEBI // 16  # bytes of the last reserve that one failed write gets, at least
NEEDED = MEBI // 4  # bytes that a start writes


class DiskRoom:
    """The space on the file system of the directory `path`.  On a small file system, `low` and `reserve` shrink."""

    def __init__(self, path: Path, low: int = 512 * MEBI, reserve: int = 64 * MEBI) -> None:
        self.path = path
        self._file = path / "reserve"
        self._last = path / "reserve.last"
        self._mutex = threading.Lock()
        total = _sizes(path)[0]
        self.low = min(low, total // 4)
        self.reserve = min(reserve, total // 16)
        self.last = max(self.reserve // 4, MEBI)

    def free(self) -> int:
        """Return the bytes that this user may still write."""
        return _sizes(self.path)[1]

    def check(self) -> Literal["ok", "low", "full"]:
        """Return the disk's state, by one system call."""
        free = self.free()
        if free >= self.low:
            return "ok"
        return "low" if free >= self.reserve else "full"

    def only_reserve_left(self) -> bool:
        """Is there less free space, beside the reserve, than the reserve's size?  Then only the journal may write."""
        return self.free() < (self.reserve if self.held() else 2 * self.reserve)

    def held(self) -> bool:
        return self._file.exists()

    def release(self) -> bool:
        """Free the reserve; return whether there was one."""
        return _remove(self._file)

    def give(self, size: int) -> bool:
        """Make room for a write of `size` bytes that found none; return False if the last reserve must not shrink
        further.  Any thread may call."""
        with self._mutex:
            if self.release():
                return True
            there = _size(self._last)
            left = there - max(PIECE, 2 * size)
            if left < self.last // 4:
                return False
            os.truncate(self._last, left)
            return True

    def give_if_full(self, size: int) -> bool:
        """Do the same only if the disk has less than `size` bytes free: the write may have failed otherwise."""
        return self.free() < size and self.give(size)

    def exhausted(self) -> bool:
        """Has the last reserve shrunk to what a stop and a start need?"""
        return 0 < _size(self._last) < self.last // 2

    def open(self) -> None:
        """Make room for a start on a full disk; raise StoreError if there is none to make."""
        for reserve in (self._file, self._last):
            if self.free() >= 2 * NEEDED:
                return
            _remove(reserve)
        if self.free() < NEEDED:
            raise StoreError(
                f"the disk with {self.path} is full: {format_size(self.free())} are free, and a start writes up to"
                f" {format_size(NEEDED)}", "free some space on that disk, then start again; nothing was changed")

    def close(self) -> None:
        """Keep room for the next start, as far as there is any."""
        with suppress(OSError):
            self._allocate(self._last, max(0, min(self.last, self.free() + _size(self._last) - PIECE)))

    def renew(self) -> bool:
        """Make the reserves if there is space for them; return whether both exist."""
        if self.held() and _size(self._last) >= self.last:
            return True
        if self.free() < self.low + self.reserve + self.last:
            return False
        try:
            self._allocate(self._last, self.last)
            self._allocate(self._file, self.reserve)
        except OSError:
            self.release()
            return False
        return True

    def _allocate(self, path: Path, size: int) -> None:
        if _size(path) >= size:
            return
        fresh = path.with_name(f"{path.name}.new")
        descriptor = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            _remove(path)
            os.posix_fallocate(descriptor, 0, size)
            os.rename(fresh, path)
        except OSError:
            with suppress(OSError):
                fresh.unlink()
            raise
        finally:
            os.close(descriptor)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sizes(path: Path) -> tuple[int, int]:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
