"""Unreliable clocks: each runs at its own rate, and jumps.

`Steady` is a machine's monotonic clock.  It never goes back, but it is fast or slow, and leaps ahead when the machine
wakes up or is moved.  The wall clock beside it may be set to anything, at any time.
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Steady:
    """A monotonic clock that runs at a rate of its own, in thousandths of true time."""

    def __init__(self, true: Callable[[], int], rate: int = 1000) -> None:
        self._true = true
        self.rate = rate
        self.ahead = 0  # ms that jumps have added

    def now(self) -> int:
        return self._true() * self.rate // 1000 + self.ahead

    def jump(self, by: int) -> None:
        self.ahead += by

    def true_wait(self, wait: int) -> int:
        """Return the true ms after which `wait` ms have passed on this clock."""
        return -(-wait * 1000 // self.rate)


def rate(r: random.Random, skew: int) -> int:
    """Draw the rate of one machine's clock, up to `skew` thousandths off."""
    return 1000 + r.randint(-skew, skew) if skew else 1000
