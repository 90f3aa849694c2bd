"""The core's time: integer milliseconds that never go back.

The clock starts at the wall clock, or at the last journaled time where that is later, or where the wall clock is in
doubt (`core/start_time.py`).  From then on it follows the monotonic clock: a wall clock that jumps while the server
runs has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from windfall.core.start_time import start_time


class Clock:
    def __init__(
        self,
        last: int = 0,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._steady = steady
        start, self.problem = start_time(last, wall() // 1_000_000)  # the problem: why its time is in doubt
        self._base = start - steady() // 1_000_000

    def now(self) -> int:
        return self._base + self._steady() // 1_000_000
