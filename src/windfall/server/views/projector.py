"""Views, kept up lazily by one thread, asked by a few others.

Rules
  * Commits are only noted here.  They are folded in when a reader asks, when nothing has been committed for a moment,
    or when too much has gathered: never beside the hot path if it can be helped.
  * A reader sees at least what was committed when it asked.
  * The journal is the truth, what is noted here only saves reading it: whatever lies between the views and what is
    noted is read from there.  So anything noted may be dropped, and after a failure everything is.
  * Removed bags are deleted in slices, between folds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from windfall.core.messages.facts import BagRemoved, Fact
from windfall.errors import Unavailable
from windfall.server.http.server import log
from windfall.server.views import rows
from windfall.store import codec

if TYPE_CHECKING:
    from windfall.store.views import Views

T = TypeVar("T")
Batch = list[tuple[int, list[Fact]]]

QUIET_S = 0.05
MAX_COMMITS = 20_000
MAX_BYTES = 64 << 20  # noted beyond this is let go, and read from the journal
READERS = 3
SLICE_ROWS = 20_000  # of a removed bag, deleted at a time


class Projector:
    def __init__(self, path: Path, journal: Any) -> None:
        self._path = path
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "views")
        self._readers = ThreadPoolExecutor(READERS, "asking views")
        self._views: Views | None = None
        self._backlog: Batch = []
        self._bytes = 0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._busy = self._forgetting = False
        self._closed = False

    @property
    def backlog(self) -> int:
        return len(self._backlog)

    # --- on the loop ------------------------------------------------------------------------------------------

    def commit(self, position: int, at: int, facts: list[Fact]) -> None:
        self._backlog.append((position, facts))
        self._bytes += rows.weight(facts)
        self._last = self._loop.time()
        if len(self._backlog) > MAX_COMMITS or self._bytes > MAX_BYTES:
            self._begin()
            self._backlog, self._bytes = [], 0
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
        try:
            future = self._loop.run_in_executor(self._thread, self._fold, self._take(), self._journal.position)
        except RuntimeError:
            self._closed = True  # the interpreter is at its end; the views catch up when they are next opened
            return
        self._busy = True
        future.add_done_callback(self._finished)

    def _finished(self, future: asyncio.Future[bool]) -> None:
        self._busy = False
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            log.error("the views are behind: %s", error)
        elif future.result():
            self._forget()

    def _take(self) -> Batch:
        batch, self._backlog, self._bytes = self._backlog, [], 0
        return batch

    async def ask(self, question: Callable[[Any], T]) -> T:
        """Ask the views, once they know all that is committed now."""
        fold = self._loop.run_in_executor(self._thread, self._fold, self._take(), self._journal.position)
        if await fold:
            self._forget()
        return await self._loop.run_in_executor(self._readers, self._answer, question)

    def _forget(self) -> None:
        """A slice at a time, each queued behind the folds that came meanwhile."""
        if not self._forgetting and not self._closed:
            self._forgetting = True
            self._loop.run_in_executor(self._thread, self._forget_slice).add_done_callback(self._forgot)

    def _forgot(self, future: asyncio.Future[bool]) -> None:
        self._forgetting = False
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            log.error("removed bags are still in the views: %s", error)
        elif future.result():
            self._forget()

    async def close(self) -> None:
        """What has not been folded in is read from the journal next time."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._loop.run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)
        self._readers.shutdown(wait=False)

    # --- in the readers' threads ------------------------------------------------------------------------------

    def _answer(self, question: Callable[[Any], T]) -> T:
        views = self._views
        if views is None:  # a fold that came between has failed
            raise Unavailable("the views are being filled again", "try again in a moment", retry_after=1)
        with views.reading():
            return question(views)

    # --- in the views' thread ---------------------------------------------------------------------------------

    def _fold(self, batch: Batch, upto: int) -> bool:
        """Everything up to a position of the journal; True: there are bags to forget.

        Short turns for this thread while it works, so that the loop's flushes do not wait for it.
        """
        usual = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        try:
            fresh = self._views is None
            views = self._open()
            for position, facts in batch:
                self._catch_up(views, position - 1)
                views.project(position, facts)
            self._catch_up(views, upto)
            views.flush()
            return bool((fresh or _removes(batch)) and views.removed())
        except BaseException:
            self._drop()  # what they hold is in doubt: the next one reads where the file stands, and the journal
            raise
        finally:
            sys.setswitchinterval(usual)

    def _open(self) -> Views:
        if self._views is None:
            from windfall.store.views import Views

            self._views = Views.open(self._path, self._journal.identity, self._journal.position)
        return self._views

    def _catch_up(self, views: Views, upto: int) -> None:
        """Read what lies before; where the journal has no row, retention took it, and only then is it passed over."""
        if views.reached >= upto:
            return
        for position, _, body in self._journal.read(views.reached, upto - views.reached):
            views.project(position, codec.decode(body))
        views.project(upto, [])

    def _forget_slice(self) -> bool:
        """True: there is more."""
        views = self._views
        bags = views.removed() if views is not None else []
        if views is None or not bags:
            return False
        try:
            views.forget(bags[0], SLICE_ROWS)
        except BaseException:
            self._drop()
            raise
        return True

    def _drop(self) -> None:
        """Without a last flush: what was gathered is in the journal."""
        views, self._views = self._views, None
        if views is not None:
            views.abandon()


def _removes(batch: Batch) -> bool:
    return any(type(fact) is BagRemoved for _, facts in batch for fact in facts)
