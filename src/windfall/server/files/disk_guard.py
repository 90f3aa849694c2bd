"""The disk guard: refuses new work on a disk that is low, and releases the reserve on one that is full.  On a low disk
the core grants nothing, too (`DiskLow`).

The reserve is for the journal, so that results can still be recorded.  While only that much space is left, the server
refuses file contents too, also those of results; the pilot keeps the files and sends them later.  When the last reserve
is used up, too, the server stops while it can do so in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from windfall.core.messages import events
from windfall.errors import DiskFull
from windfall.model.units import format_size

PERIOD_S = 0.2
CURE = "free space there, or remove bags: windfall ls shows them, windfall rm BAG frees their files"


class DiskGuard:
    def __init__(self, room: Any, writer: Any) -> None:
        self._writer = writer
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.low = self.only_reserve_left = False
        self.problem = ""  # of the disk, with its place
        self.end = ""  # why the server must stop
        self.on_exhausted: Callable[[], None] | None = None
        self.check()

    def check(self) -> None:
        """Measure the free space, with one system call every PERIOD_S, and tell the core when it becomes low, full or
        ample."""
        state = self._room.check()
        if state == "full":
            self._room.release()
        self.low = state != "ok"
        self.only_reserve_left = self.low and self._room.only_reserve_left()
        problem = self._describe() if self.low else ""
        if self.problem != problem and not self._writer.closed:
            self.problem = problem
            self._writer.put(events.DiskLow(0, self.low, problem))
        if self.low and self.on_exhausted is not None and not self.end and self._room.exhausted():
            self.end = f"the disk with {self._room.path} is full, and the reserve for results is used up"
            self.on_exhausted()
        self._timer = self._loop.call_later(PERIOD_S, self._again)

    def _describe(self) -> str:
        room = self._room
        if self.only_reserve_left:
            return (f"the disk with {room.path} is full: no task starts, and files of results wait at their pilots;"
                    f" {CURE}")
        return f"the disk with {room.path} has less than {format_size(room.low)} free: no task starts; {CURE}"

    def _again(self) -> None:
        self.check()
        if not self.low and not self._room.held():
            self._loop.run_in_executor(None, self._room.renew)

    def admit(self) -> None:
        """Raise DiskFull while the disk is too low for new work."""
        if self.low:
            raise DiskFull(f"the server's disk, with {self._room.path}, is nearly full: the server refuses new work,"
                           " but still takes results", CURE, retry_after=30)

    def admit_results(self) -> None:
        """Raise DiskFull while the disk is too full for any file contents."""
        if self.only_reserve_left:
            raise DiskFull("the server's disk is full: the server refuses files, but still takes reports",
                           "free space on the server's disk; keep the file and send it later", retry_after=30)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
