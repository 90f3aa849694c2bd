"""The server's eye on its disk: low, refuse new work; full, give up the reserve so that results still go in.

The reserve is for the journal.  Where only as much is left, file contents are refused too, also those of results,
until there is room again: a pilot keeps them and comes back.
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
        self.low = self.full = False
        self.look()

    def look(self) -> None:
        """One system call every PERIOD_S."""
        state = self._room.check()
        before, self.low = self.low, state != "ok"
        if self.low != before and not self._writer.closed:
            self._writer.put(events.DiskLow(0, self.low))
        if state == "full":
            self._room.release()
        self.full = state != "ok" and self._room.cramped()
        self._timer = self._loop.call_later(PERIOD_S, self._again)

    def _again(self) -> None:
        self.look()
        if not self.low and not self._room.held():
            self._loop.run_in_executor(None, self._room.renew)

    def admit(self) -> None:
        """Raises where new work would have to be refused."""
        if self.low:
            raise DiskFull("the server's disk is nearly full: no new work is taken, results still are",
                           "free some room there, or remove old bags", retry_after=30)

    def admit_results(self) -> None:
        """Raises where there is no room for file contents, whosever they are."""
        if self.full:
            raise DiskFull("the server's disk is full: no file contents are taken, reports still are",
                           "free some room there; keep the file and send it later", retry_after=30)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
