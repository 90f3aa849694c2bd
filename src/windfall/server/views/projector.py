"""The projector: one thread folds commits into the views, a few others query them.

Rules
  * The loop only queues commits.  The thread folds them in when a reader asks, when there was no commit for QUIET_S, or
    when the queue is long: rarely at the same time as the hot path.
  * A reader sees at least the commits made before it asked.
  * The journal is the truth; the queue only saves reading it.  The thread reads from the journal whatever the queue
    lacks.  So the projector may drop any part of the queue, and after a failure drops all of it.
  * The thread deletes removed bags in slices, between folds.
  * Views that do not read back are made again from the journal before the question is answered.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from windfall.core.messages.facts import BagRemoved, Fact
from windfall.errors import StoreError, Unavailable, ViewsDamaged
from windfall.server.http.server import log
from windfall.server.views import rows
from windfall.store import codec

if TYPE_CHECKING:
    from windfall.store.views import Views

T = TypeVar("T")
Batch = list[tuple[int, list[Fact]]]

QUIET_S = 0.05
MAX_COMMITS = 20_000
MAX_BYTES = 64 << 20  # queued commits beyond this are dropped, and read from the journal later
READERS = 3
ROOM = 64 << 10  # bytes that a fold asks for on a full disk
SLICE_ROWS = 20_000  # of a removed bag, deleted at a time


class Projector:
    def __init__(self, path: Path, journal: Any, make_room: Callable[[int], bool] = lambda size: False) -> None:
        """`make_room` finds room for so many bytes on a full disk, and returns whether it did."""
        self._path = path
        self._journal = journal
        self._make_room = make_room
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
        self._bytes += rows.memory_bytes(facts)
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
            self._closed = True  # the interpreter is exiting; the views catch up when they are opened next
            return
        self._busy = True
        future.add_done_callback(self._finished)

    def _finished(self, future: asyncio.Future[bool]) -> None:
        self._busy = False
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            log.error("the views cannot be brought up to date, and are tried again: %s", error)
        elif future.result():
            self._forget()

    def _take(self) -> Batch:
        batch, self._backlog, self._bytes = self._backlog, [], 0
        return batch

    async def ask(self, question: Callable[[Any], T]) -> T:
        """Query the views once they have folded in all present commits."""
        try:
            return await self._ask(question)
        except ViewsDamaged as error:
            log.warning("the views are made again from the journal: %s", error)
            await self._loop.run_in_executor(self._thread, self._discard)
            return await self._ask(question)

    async def _ask(self, question: Callable[[Any], T]) -> T:
        fold = self._loop.run_in_executor(self._thread, self._fold, self._take(), self._journal.position)
        if await fold:
            self._forget()
        return await self._loop.run_in_executor(self._readers, self._answer, question)

    def _forget(self) -> None:
        """Delete a slice of a removed bag; folds that are queued by then go before the next slice."""
        if not self._forgetting and not self._closed:
            self._forgetting = True
            self._loop.run_in_executor(self._thread, self._forget_slice).add_done_callback(self._forgot)

    def _forgot(self, future: asyncio.Future[bool]) -> None:
        self._forgetting = False
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            log.error("removed bags cannot be deleted from the views: %s", error)
        elif future.result():
            self._forget()

    async def close(self) -> None:
        """Close the views.  The next server folds in the rest from the journal."""
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
            raise Unavailable("the views are being rebuilt", "try again in a moment", retry_after=1)
        with views.reading():
            return question(views)

    # --- in the views' thread ---------------------------------------------------------------------------------

    def _fold(self, batch: Batch, upto: int) -> bool:
        """Fold everything up to a position of the journal; return whether there are removed bags to delete.

        The interpreter switches threads more often meanwhile, so that the loop's flushes do not wait for this thread.
        """
        usual = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        try:
            return self._fold_in(batch, upto)
        except StoreError:
            if not self._make_room(ROOM):
                raise
            return self._fold_in([], upto)
        finally:
            sys.setswitchinterval(usual)

    def _fold_in(self, batch: Batch, upto: int) -> bool:
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
            self._drop()  # the views in memory are in doubt: the next fold starts from the file and the journal
            raise

    def _open(self) -> Views:
        if self._views is None:
            from windfall.store.views import Views

            self._views = Views.open(self._path, self._journal.identity, self._journal.position)
        return self._views

    def _catch_up(self, views: Views, upto: int) -> None:
        """Fold in the journal's rows up to a position; retention has removed any row that is missing."""
        if views.reached >= upto:
            return
        for position, _, body in self._journal.read(views.reached, upto - views.reached):
            views.project(position, codec.decode(body))
        views.project(upto, [])

    def _forget_slice(self) -> bool:
        """Delete a slice of a removed bag; return whether there may be more to delete."""
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

    def _discard(self) -> None:
        from windfall.store.views import discard

        self._drop()
        discard(self._path)

    def _drop(self) -> None:
        """Abandon the views without a last flush: the journal has all their commits."""
        views, self._views = self._views, None
        if views is not None:
            views.abandon()


def _removes(batch: Batch) -> bool:
    return any(type(fact) is BagRemoved for _, facts in batch for fact in facts)
