"""Room on the disk.

Results must be taken even when the disk is full, so a file of a few megabytes is kept that holds nothing: `release`
frees it.  When the disk is *low*, the server refuses new work; when it is *full*, it also gives up the reserve; once
there is room again, `renew` makes it again.  A quota that the file system does not show is not seen here; then the
first failed flush says so.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

MEBI = 1 << 20


class DiskRoom:
    """Of the file system that holds `path`, a directory.  On a small one `low` and `reserve` shrink with it."""

    def __init__(self, path: Path, low: int = 512 * MEBI, reserve: int = 64 * MEBI) -> None:
        self._directory = path
        self._file = path / "reserve"
        total = _sizes(path)[0]
        self.low = min(low, total // 4)
        self.reserve = min(reserve, total // 16)

    def free(self) -> int:
        """Bytes that this user may still write."""
        return _sizes(self._directory)[1]

    def check(self) -> Literal["ok", "low", "full"]:
        """One system call; the caller decides how often."""
        free = self.free()
        if free >= self.low:
            return "ok"
        return "low" if free >= self.reserve else "full"

    def cramped(self) -> bool:
        """Beside the reserve, or what would be one, there is not as much again: only the journal may write."""
        return self.free() < (self.reserve if self.held() else 2 * self.reserve)

    def held(self) -> bool:
        return self._file.exists()

    def release(self) -> bool:
        """Free the reserve; False: there was none."""
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        return True

    def renew(self) -> bool:
        """Make the reserve where there is room for it; True: it is there."""
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
