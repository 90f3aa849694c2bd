"""Forgetting what was removed: journal rows and file contents, in small steps, while nothing else is going on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from windfall.core.facts import BagRemoved, Fact
from windfall.errors import WindfallError
from windfall.store.retention import without

log = logging.getLogger("windfall.server")

PAUSE_S = 2.0  # after a removal, and between looks for a quiet moment
STEP_ROWS = 50  # of the journal, per turn of the loop
BLOB_AGE_S = 86_400.0  # uploads of work in progress are younger


class Keeper:
    """`commit` listens to the writer; `stop` ends a pass that is under way."""

    def __init__(self, writer: Any, projector: Any, renderings: Any, blobs: Any) -> None:
        self._writer = writer
        self._projector = projector
        self._renderings = renderings
        self._blobs = blobs
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def commit(self, position: int, at: int, facts: list[Fact]) -> None:
        if any(type(fact) is BagRemoved for fact in facts):
            self._again = True
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._again:
            await asyncio.sleep(PAUSE_S)
            self._again = False
            try:
                await self._shrink_journal()
                await self._drop_blobs()
            except WindfallError as error:
                log.error("what was removed still takes room: %s", error)

    async def _shrink_journal(self) -> None:
        """Only what lies before a snapshot may change, so one is taken first."""
        self._writer.snapshot()
        upto, kept = self._writer.position, dict.fromkeys(self._writer.state.bags)
        edit = without(kept)
        while self._writer.journal.rewrite(upto, edit, STEP_ROWS, name=f"removed-{upto}"):
            await asyncio.sleep(0.005)

    async def _drop_blobs(self) -> None:
        wanted = await self._projector.ask(lambda views: views.blobs())
        for bag in self._writer.state.bags.values():
            wanted.update(self._renderings.of(bag).inputs())
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(
            None, lambda: self._blobs().delete_unreferenced(lambda owner, sha: sha in wanted, BLOB_AGE_S)
        )

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
