"""Show on standard error how far a bag is: a bar on a terminal, now and then a line elsewhere.

Only terminals get control codes, and only those whose TERM is not `dumb`.  Elsewhere (a pipe, a file, CI) the first
line comes after five seconds, the next ones ever more rarely, down to one a minute: a night's log stays short.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from windfall.cli.present.output import harmless
from windfall.model.units import format_duration

REDRAW = 0.1  # seconds
LINE = 5.0  # seconds to the first line without a terminal; each further pause is half as long again
RARELY = 60.0  # the longest pause
WINDOW = 30.0  # seconds over which the rate is measured
RED, PLAIN = "\x1b[31m", "\x1b[0m"


class Progress:
    def __init__(self, name: str, total: int, quiet: bool = False):
        self.name, self.total = name, total
        self.terminal = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.colour = self.terminal and not os.environ.get("NO_COLOR")
        self.quiet = quiet
        self.running: int | None = None  # active tasks that have started; pilots hold the others ahead
        self.why: Callable[[], str] | None = None  # the commonest cause of failures, in words
        self._history: deque[tuple[float, int]] = deque()
        self._pause = LINE
        self._next = time.monotonic() + (0 if self.terminal else LINE)
        self._drawn = False
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()  # the watchman has a thread of its own

    def __call__(self, counts: dict[str, int]) -> None:
        """Tell the latest counts."""
        now = time.monotonic()
        with self._lock:
            self._remember(now, ended(counts))
            self._counts = counts
            if self.quiet or now < self._next:
                return
            self._next = now + (REDRAW if self.terminal else self._pause)
            self._pause = min(RARELY, self._pause * 1.5)
            if self.terminal:
                self._draw(counts)
            else:
                sys.stderr.write(self.text(counts) + "\n")
            sys.stderr.flush()

    def _draw(self, counts: dict[str, int]) -> None:
        sys.stderr.write("\r" + self._fitted(self.text(counts), counts) + "\x1b[K")
        self._drawn = True

    def finish(self) -> None:
        """Clear the bar, so that its line is free for other output."""
        with self._lock:
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._drawn = False
                self._next = 0.0  # the next counts are drawn at once

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        with self._lock:
            sys.stderr.write("\r\x1b[K" * self._drawn + harmless(text) + "\n")
            if self.terminal and not self.quiet and self._counts:
                self._draw(self._counts)  # the next counts may be long in coming
            sys.stderr.flush()

    def _fitted(self, text: str, counts: dict[str, int]) -> str:
        """Cut the text to the terminal's width, then colour it: escape codes take no room."""
        text = harmless(text)[: max(0, columns() - 1)]
        failed = f"{failed_of(counts):,} failed"
        return text.replace(failed, f"{RED}{failed}{PLAIN}", 1) if self.colour and failed_of(counts) else text

    def _remember(self, now: float, done: int) -> None:
        self._history.append((now, done))
        while len(self._history) > 2 and (now - self._history[0][0] > WINDOW or len(self._history) > 4096):
            self._history.popleft()

    def rate(self) -> float:
        """Return how many tasks ended per second, lately."""
        if not self._history:
            return 0.0
        (start, before), (now, done) = self._history[0], self._history[-1]
        return (done - before) / (now - start) if now > start else 0.0

    def _still(self) -> float:
        """Return the seconds since a task ended.  An ETA below that has proved wrong, and is not shown."""
        now, done = self._history[-1]
        return now - min(at for at, was in self._history if was == done)

    def _eta(self, unended: int, rate: float) -> str:
        left = unended / rate
        return f"ETA {format_duration(max(1, round(left)) * 1000)}" if unended and left >= self._still() else ""

    def _in_play(self, active: int) -> str:
        """Say how many tasks run, and how many a pilot holds until it has room."""
        if not active or self.running is None:
            return f"{active:,} active" if active else ""
        running = min(self.running, active)
        held = f"{active - running:,} held" if running < active else ""
        return "  ".join(part for part in (f"{running:,} running" if running else "", held) if part)

    def text(self, counts: dict[str, int]) -> str:
        """Return the progress line, the most important facts first: a narrow terminal cuts the last ones off."""
        total, done = max(self.total, sum(counts.values())), ended(counts)
        parts = [self.name[:20], _bar(done, total) if self.terminal and columns() >= 72 else "", f"{done:,}/{total:,}"]
        failed, rate = failed_of(counts), self.rate()
        if failed:
            parts.append(f"{failed:,} failed")
        if rate > 0:
            parts.append(self._eta(total - done, rate))
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
        parts.append(self._in_play(counts.get("active", 0)))
        if failed and self.why is not None:
            parts.append(self.why())
        return "  ".join(part for part in parts if part)


def ended(counts: dict[str, int]) -> int:
    return sum(counts.get(state, 0) for state in ("succeeded", "failed", "cancelled", "quarantined"))


def failed_of(counts: dict[str, int]) -> int:
    return counts.get("failed", 0) + counts.get("quarantined", 0)


def _bar(done: int, total: int, width: int = 24) -> str:
    filled = done * width // total if total else width
    return f"[{'#' * filled}{'-' * (width - filled)}] {100 * done // total if total else 100:3d}%"


def columns() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80
