"""How far a bag is: a bar on a terminal, now and then a line elsewhere.  Always on standard error."""

from __future__ import annotations

import os
import sys
import time
from collections import deque

from ..model.units import format_duration

REDRAW = 0.1  # seconds
LINE = 5.0  # seconds between lines where there is no terminal
WINDOW = 30.0  # seconds over which the rate is taken


class Progress:
    def __init__(self, name: str, total: int, quiet: bool = False):
        self.name, self.total = name, total
        self.terminal = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.quiet = quiet
        self._history: deque[tuple[float, int]] = deque()
        self._next = time.monotonic() + (0 if self.terminal else LINE)
        self._drawn = False

    def __call__(self, counts: dict[str, int]) -> None:
        """Tell the latest counts."""
        now = time.monotonic()
        done = ended(counts)
        self._remember(now, done)
        if self.quiet or now < self._next:
            return
        self._next = now + (REDRAW if self.terminal else LINE)
        text = self.text(counts, now)
        if self.terminal:
            sys.stderr.write("\r" + text[: _columns() - 1] + "\x1b[K")
            self._drawn = True
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def finish(self) -> None:
        """Leave the line free for what comes next."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False

    def say(self, text: str) -> None:
        """A line of its own; the bar is drawn again below it."""
        sys.stderr.write("\r\x1b[K" * self._drawn + text + "\n")
        sys.stderr.flush()

    def _remember(self, now: float, done: int) -> None:
        self._history.append((now, done))
        while len(self._history) > 2 and (now - self._history[0][0] > WINDOW or len(self._history) > 4096):
            self._history.popleft()

    def rate(self) -> float:
        """Tasks ended per second, lately."""
        (start, before), (now, done) = self._history[0], self._history[-1]
        return (done - before) / (now - start) if now > start else 0.0

    def text(self, counts: dict[str, int], now: float) -> str:
        total = max(self.total, sum(counts.values()))
        done = ended(counts)
        parts = [self.name[:20], _bar(done, total) if self.terminal else "", f"{done:,}/{total:,}"]
        failed = counts.get("failed", 0) + counts.get("quarantined", 0)
        if counts.get("active"):
            parts.append(f"{counts['active']:,} active")
        if failed:
            parts.append(f"{failed:,} failed")
        rate = self.rate()
        if rate > 0:
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
            parts.append(f"ETA {format_duration(int((total - done) / rate) * 1000)}")
        return "  ".join(part for part in parts if part)


def ended(counts: dict[str, int]) -> int:
    return sum(counts.get(state, 0) for state in ("succeeded", "failed", "cancelled", "quarantined"))


def _bar(done: int, total: int, width: int = 24) -> str:
    filled = done * width // total if total else width
    return f"[{'#' * filled}{'-' * (width - filled)}] {100 * done // total if total else 100:3d}%"


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80
