"""The disk guard: refuses new work on a disk that is low, and releases the reserve on one that is full.  On a low disk
the core grants nothing, too (`DiskLow`).

The reserve is for the journal, so that results can still be recorded.  While only that much space is left, the server
refuses file contents too, also those of results; the pilot keeps the files and sends them later.
"""

from __future__ import annotations

import asyncio
from typing import Any

from windfall.core.messages import events
from windfall.errors import DiskFull

PERIOD_S = 0.2


class DiskGuard:
    def __init__(self, room: Any, writer: Any) -> None:
        self._writer = writer
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.low = self.only_reserve_left = False
        self.check()

    def check(self) -> None:
        """Measure the free space, with one system call every PERIOD_S, and tell the core when it becomes low or
        ample."""
        state = self._room.check()
        before, self.low = self.low, state != "ok"
        if self.low != before and not self._writer.closed:
            self._writer.put(events.DiskLow(0, self.low))
        if state == "full":
            self._room.release()
        self.only_reserve_left = state != "ok" and self._room.only_reserve_left()
        self._timer = self._loop.call_later(PERIOD_S, self._again)

    def _again(self) -> None:
        self.check()
        if not self.low and not self._room.held():
            self._loop.run_in_executor(None, self._room.renew)

    def admit(self) -> None:
        """Raise DiskFull while the disk is too low for new work."""
        if self.low:
            raise DiskFull("the server's disk is nearly full: the server refuses new work, but still takes results",
                           "free space on the server's disk, or remove old bags", retry_after=30)

    def admit_results(self) -> None:
        """Raise DiskFull while the disk is too full for any file contents."""
        if self.only_reserve_left:
            raise DiskFull("the server's disk is full: the server refuses files, but still takes reports",
                           "free space on the server's disk; keep the file and send it later", retry_after=30)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
