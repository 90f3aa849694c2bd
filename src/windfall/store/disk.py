"""Free space on the disk, and a reserve for results.

The server must record results even when the disk is full.  So the reserve, an empty file of a few megabytes, takes
space that `release` frees.  When the disk is *low*, the server refuses new work; when it is *full*, the server also
releases the reserve; `renew` makes the reserve again once there is space.  A quota that the file system does not show
is noticed only at the first failed flush.  `server/files/disk_guard.py` refuses work and files then.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

MEBI = 1 << 20


class DiskRoom:
    """The space on the file system of the directory `path`.  On a small file system, `low` and `reserve` shrink."""

    def __init__(self, path: Path, low: int = 512 * MEBI, reserve: int = 64 * MEBI) -> None:
        self._directory = path
        self._file = path / "reserve"
        total = _sizes(path)[0]
        self.low = min(low, total // 4)
        self.reserve = min(reserve, total // 16)

    def free(self) -> int:
        """Return the bytes that this user may still write."""
        return _sizes(self._directory)[1]

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
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        return True

    def renew(self) -> bool:
        """Make the reserve if there is space for it; return whether it exists."""
        if self.held():
            return True
        if self.free() < self.low + self.reserve:
            return False
        try:
            self._allocate()
        except OSError:
            self.release()
            return False
        return True

    def _allocate(self) -> None:
        fresh = self._file.with_suffix(".new")
        descriptor = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self.reserve)
            os.rename(fresh, self._file)
        except OSError:
            with suppress(OSError):
                fresh.unlink()
            raise
        finally:
            os.close(descriptor)


def _sizes(path: Path) -> tuple[int, int]:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
