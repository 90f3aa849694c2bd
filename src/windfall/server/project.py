"""Views, kept up lazily by one thread.

Rules
  * Commits are only noted here.  They are folded in when a reader asks, when nothing has been committed for a moment,
    or when too much has gathered: never beside the hot path if it can be helped.
  * A reader sees at least what was committed when it asked.
  * What was committed before this process began is read from the journal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from windfall.core.facts import BagRemoved, Fact
from windfall.server import rows
from windfall.server.http import log
from windfall.store import codec

T = TypeVar("T")

QUIET_S = 0.05
MAX_COMMITS = 20_000
MAX_ROWS = 200_000


class Projector:
    def __init__(self, path: Path, journal: Any) -> None:
        self._path = path
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "views")
        self._views: Any = None
        self._backlog: list[tuple[int, list[Fact]]] = []
        self._rows = 0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._closed = False

    @property
    def backlog(self) -> int:
        return len(self._backlog)

    # --- on the loop ------------------------------------------------------------------------------------------

    def commit(self, position: int, at: int, facts: list[Fact]) -> None:
        self._backlog.append((position, facts))
        self._rows += rows.size(facts)
        self._last = self._loop.time()
        if len(self._backlog) > MAX_COMMITS or self._rows > MAX_ROWS:
            self._begin()
        elif self._timer is None:
            self._timer = self._loop.call_later(QUIET_S, self._quiet)

    def _quiet(self) -> None:
        left = self._last + QUIET_S - self._loop.time()
        if left > 0.001:
            self._timer = self._loop.call_later(left, self._quiet)
            return
        self._timer = None
        self._begin()

    def _begin(self) -> None:
        if self._busy or self._closed or not self._backlog:
            return
        self._busy = True
        future = self._loop.run_in_executor(self._thread, self._fold, self._take())
        future.add_done_callback(self._finished)

    def _finished(self, future: asyncio.Future[Any]) -> None:
        self._busy = False
        if not future.cancelled() and future.exception() is not None:
            log.error("the views are behind: %s", future.exception())

    def _take(self) -> list[tuple[int, list[Fact]]]:
        batch, self._backlog, self._rows = self._backlog, [], 0
        return batch

    async def ask(self, question: Callable[[Any], T]) -> T:
        """Ask the views, once they know all that is committed now."""
        return await self._loop.run_in_executor(self._thread, self._answer, self._take(), question)

    async def close(self) -> None:
        """What has not been folded in is read from the journal next time."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._loop.run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    # --- in the thread ----------------------------------------------------------------------------------------

    def _answer(self, batch: list[tuple[int, list[Fact]]], question: Callable[[Any], T]) -> T:
        self._fold(batch)
        return question(self._views)

    def _fold(self, batch: list[tuple[int, list[Fact]]]) -> None:
        """Short turns for this thread while it works, so that the loop's flushes do not wait for it."""
        usual = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        try:
            self._open(batch[0][0] if batch else None)
            for position, facts in batch:
                self._views.project(position, facts)
            self._views.flush()
            if any(type(fact) is BagRemoved for _, facts in batch for fact in facts):
                self._forget()
        finally:
            sys.setswitchinterval(usual)

    def _open(self, first: int | None) -> None:
        """Opened when first needed; then caught up from the journal to where the batch begins."""
        if self._views is not None:
            return
        from windfall.store.views import Views

        self._views = Views.open(self._path, self._journal.identity, self._journal.position)
        limit = None if first is None else first - 1 - self._views.position
        for position, _, body in self._journal.read(self._views.position, limit):
            self._views.project(position, codec.decode(body))
        self._forget()

    def _forget(self) -> None:
        for bag in self._views.removed():
            while self._views.forget(bag):
                pass

    def _close(self) -> None:
        if self._views is not None:
            self._views.close()
            self._views = None
