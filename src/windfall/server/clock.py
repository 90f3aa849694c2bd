"""The core's time: integer milliseconds that never go back.

The clock starts at the wall clock, or at the last journaled time where that is later, and from then on follows the
monotonic clock: a wall clock that jumps while the server runs has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    def __init__(
        self,
        last: int = 0,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._steady = steady
        self._base = max(wall() // 1_000_000, last) - steady() // 1_000_000

    def now(self) -> int:
        return self._base + self._steady() // 1_000_000
