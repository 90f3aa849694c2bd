"""Virtual time: a heap of things to happen, in the order of their time and then of their scheduling.

Everything random comes from the engine's one generator, and ties are broken by a counter, so that the same seed gives
the same run to the last byte.  Times are integer milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Engine:
    def __init__(self, seed: int = 0) -> None:
        self.now = 0
        self.random = random.Random(seed)
        self.events = 0  # that have happened
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._ticket = 0

    def at(self, when: int, what: Callable[..., None], *args: Any) -> None:
        """What lies in the past happens now."""
        self._ticket += 1
        heappush(self._heap, (when if when > self.now else self.now, self._ticket, what, args))

    def after(self, wait: int, what: Callable[..., None], *args: Any) -> None:
        self._ticket += 1
        heappush(self._heap, (self.now + wait, self._ticket, what, args))

    def run(self, until: int | None = None, done: Callable[[], bool] | None = None) -> None:
        """Until nothing is left to happen, the time has come, or `done` says so."""
        heap = self._heap
        while heap and (until is None or heap[0][0] <= until):
            if done is not None and done():
                return
            self.now, _, what, args = heappop(heap)
            self.events += 1
            what(*args)
        if until is not None:
            self.now = max(self.now, until)
