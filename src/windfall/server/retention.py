"""Retention: evict the journal rows and blobs of removed bags, in small steps, while the server is idle.

Rules
  * The name of a pass over the journal says how far the pass goes and how many bags were gone when it began.  From the
    name, a restarted server tells whether to resume a pass or to begin one.
  * A step waits until the writer has done nothing for LOOK_S.  On a server that is never idle, a step runs after
    PATIENCE such waits.
  * A thread searches the disk for blobs.  Such a search follows each removal, and runs at the start and every hour,
    because an earlier process may have removed bags, or ended before its search.  `free` runs one at once.
  * The search deletes a blob that no bag, result or attempt refers to.  Only a blob that a client sent or found here,
    and that no bag has named since, stays for BLOB_AGE_S.
  * Unfinished uploads without a new piece for UPLOAD_AGE_S go.
  * Where an age is set (`keep`), the server removes each bag whose end and last change are longer ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from windfall.core.messages import events
from windfall.core.messages.facts import BagRemoved, Fact
from windfall.data.blobs import Blobs
from windfall.errors import WindfallError
from windfall.server.files.named_blobs import named
from windfall.store.journal import Budget
from windfall.store.retention import DropRemovedBags

log = logging.getLogger("windfall.server")
T = TypeVar("T")

START_S = 5.0  # after the start, so that retention does not slow down a short run
PAUSE_S = 2.0  # after a removal
LOOK_S = 0.02  # without a step of the core: the server counts as idle
PATIENCE = 50  # waits for an idle moment before a step runs all the same
STEP = Budget(rows=50, bytes=256 << 10)  # of the journal, per turn of the loop
HOUR_S = 3_600.0
BLOB_AGE_S = 86_400.0  # for which a blob that no bag has named yet is kept: its bag may be on the way
UPLOADS_S = 300.0  # between two looks for abandoned uploads
UPLOAD_AGE_S = 3_000.0  # without a new piece: with UPLOADS_S, an abandoned upload goes within the hour


class Retention:
    """`commit` listens to the writer; `start` resumes a pass that an earlier process left; `stop` cancels the rest.
    `also` returns further blobs to keep, beside those that bags and results name; it is asked first."""

    def __init__(
        self, writer: Any, projector: Any, blobs: Callable[[], Blobs], also: Callable[[], set[str]] = set
    ) -> None:
        self._writer = writer
        self._projector = projector
        self._blobs = blobs
        self._also = also
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._searching = asyncio.Lock()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._again = False
        self._untold: dict[str, int] = {}  # owner → bytes that passes have freed since the owner asked
        self.keep = 0  # ms; 0: for ever

    def start(self) -> None:
        for name, function in (("hours", self._hourly), ("uploads", self._look_for_uploads)):
            self._timers[name] = self._loop.call_later(START_S, function)

    def _hourly(self) -> None:
        self._timers["hours"] = self._loop.call_later(HOUR_S, self._hourly)
        if self.keep:
            self._remove_old_bags()
        self._ask_for_pass()

    def _remove_old_bags(self) -> None:
        oldest = self._writer.clock.now() - self.keep
        for bag in list(self._writer.state.bags.values()):
            if bag.ended and max(bag.ended, bag.changed) < oldest and not self._writer.closed:
                log.info("bag %d of %s removed: it is older than the server keeps bags", bag.number, bag.owner)
                self._writer.put(events.Remove(0, bag.number, by="keep"))

    def _look_for_uploads(self) -> None:
        self._timers["uploads"] = self._loop.call_later(UPLOADS_S, self._look_for_uploads)
        self._loop.run_in_executor(None, _drop_uploads, self._blobs)

    def commit(self, position: int, at: int, facts: list[Fact]) -> None:
        if any(type(fact) is BagRemoved for fact in facts):
            self._ask_for_pass()

    def stop(self) -> None:
        for each in (self._task, *self._timers.values()):
            if each is not None:
                each.cancel()

    # --- when -------------------------------------------------------------------------------------------------

    def _ask_for_pass(self) -> None:
        self._again = True
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run_passes())

    async def _run_passes(self) -> None:
        while self._again:
            await asyncio.sleep(PAUSE_S)
            self._again = False
            try:
                if self._unfinished():
                    await self._shrink_journal()
                for owner, size in (await self._free()).items():
                    self._untold[owner] = self._untold.get(owner, 0) + size
            except WindfallError as error:
                log.error("removed bags still take disk space, retention failed: %s", error)

    async def _wait_until_idle(self) -> None:
        for _ in range(PATIENCE):
            before = self._writer.groups
            await asyncio.sleep(LOOK_S)
            if self._writer.groups == before:
                return

    # --- the journal ------------------------------------------------------------------------------------------

    def _removed_count(self) -> int:
        state = self._writer.state
        return int(state.next_bag - 1 - len(state.bags))

    def _unfinished(self) -> bool:
        """Do rows of removed bags still lie in the journal?"""
        name, ended = self._writer.journal.last_pass()
        return self._removed_count() != (_parse(name)[1] if ended else -1)

    def _next_pass(self) -> tuple[str, int]:
        """Return the name and end of the next pass: an interrupted one resumes if no bag was removed since."""
        name, ended = self._writer.journal.last_pass()
        upto, gone = _parse(name)
        if not ended and gone == self._removed_count():
            return name, upto
        self._writer.snapshot()  # a pass may change only rows before the last snapshot
        upto = self._writer.position
        return f"removed {upto} {self._removed_count()}", upto

    async def _shrink_journal(self) -> None:
        name, upto = self._next_pass()
        edit, journal = DropRemovedBags(dict.fromkeys(self._writer.state.bags)), self._writer.journal
        await self._wait_until_idle()
        while not self._writer.closed and journal.rewrite(upto, edit, STEP, name):
            await self._wait_until_idle()

    # --- file contents ----------------------------------------------------------------------------------------

    async def free(self, owner: str) -> int:
        """Delete the owner's blobs that nobody needs; return the bytes freed, by passes since the last call, too."""
        freed = await self._free(owner)
        return freed.get(owner, 0) + self._untold.pop(owner, 0)

    async def _free(self, owner: str = "") -> dict[str, int]:
        """Delete the blobs that nobody needs, of one owner or of all; return the bytes freed, by owner."""
        async with self._searching:
            mark = await self._in_thread(lambda: self._blobs().mark())
            wanted = self._also()  # before the views: a report moves blobs from the attempt that sent them to the views
            wanted |= await self._projector.ask(lambda views: views.blobs(owner))
            bags = [bag for bag in self._writer.state.bags.values() if not owner or bag.owner == owner]
            wanted.update(sha for bag in bags for files in bag.checkpoints.values() for _, sha, _, _ in files)
            specs = [bag.spec for bag in bags]
            appended = [more for bag in bags for more in bag.appended]

            def drop() -> dict[str, int]:
                wanted.update(named(specs, appended))
                return self._blobs().delete_unreferenced(
                    lambda _, sha: sha in wanted, BLOB_AGE_S, owner=owner, mark=mark)

            return await self._in_thread(drop)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(None, function)


def _parse(name: str) -> tuple[int, int]:
    """Return from a pass's name how far it goes, and how many bags were gone when it began."""
    word, *numbers = name.split(" ")
    if word != "removed" or len(numbers) != 2:
        return 0, 0
    return int(numbers[0]), int(numbers[1])


def _drop_uploads(blobs: Callable[[], Blobs]) -> None:
    try:
        freed = blobs().delete_stale_uploads(UPLOAD_AGE_S)
    except OSError as error:
        log.error("abandoned uploads still take disk space: %s", error)
    else:
        if freed:
            log.info("%d bytes of abandoned uploads deleted", freed)
