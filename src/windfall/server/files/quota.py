"""Quotas: bytes per owner, of file contents, unfinished uploads and long bag descriptions.

Beyond the quota the server refuses files and bags from people, but accepts results from pilots, so that no finished
work is thrown away; beyond twice the quota it refuses these, too.  The refusal names the owner's largest bags.  An
upload counts with its full size from its first byte on, so that many uploads begun together cannot exceed the quota.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from windfall.core.state.world import BagState
from windfall.data.blobs import Blobs
from windfall.errors import OverQuota
from windfall.model.units import format_size as _size
from windfall.server.views.projector import Projector

NAMED = 3  # bags
RESULTS = 2  # quotas that results may fill
EDGE_BYTES = 8
FREE = 1 << 20  # bytes of an owner's bag descriptions that do not count: most bags are small


class Quota:
    def __init__(self, limit: int, blobs: Callable[[], Blobs], projector: Projector, bags: dict[int, BagState]) -> None:
        self.limit = limit  # bytes; 0: none
        self._blobs = blobs
        self._projector = projector
        self._bags = bags
        self._described: dict[int, tuple[int, int]] = {}  # bag → (appends counted so far, bytes)
        self._coming: dict[str, dict[str, int]] = {}  # owner → uploads being received, with their full sizes

    async def used(self, owner: str) -> int:
        """Return the bytes of an owner's complete files."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: self._blobs().used(owner))

    async def admit(self, owner: str, more: int = 0, upload: str = "", results: bool = False) -> None:
        """Raise OverQuota if `more` bytes of this owner, as the upload of that name, would exceed the quota."""
        if not self.limit:
            return
        used = await self.used(owner)
        begun = await asyncio.get_running_loop().run_in_executor(None, lambda: self._blobs().begun(owner))
        coming = {**begun, **self._coming.get(owner, {})}
        coming.pop(upload, None)
        used += sum(coming.values()) + max(0, self._descriptions(owner) - FREE)
        if used + more <= self.limit * (RESULTS if results else 1):
            return
        largest = await self._projector.ask(lambda views: views.largest(owner, NAMED))
        taken, remedy = f"your files here take {_size(used)} of {_size(self.limit)}", _named(largest)
        if results:  # the note of the task has the message alone, and the causes of failures show no numbers of bags
            raise OverQuota(f"your quota is used up; windfall rm BAG makes room: {taken}; {_size(more)} would come")
        raise OverQuota(taken + (f"; {_size(more)} more would exceed your quota" if more else ""),
                        f"remove bags that you no longer need: {remedy}")

    @asynccontextmanager
    async def receiving(self, owner: str, upload: str, total: int, results: bool = False) -> AsyncIterator[None]:
        """Count a file with its full size while the server receives it; `results`: from a pilot."""
        await self.admit(owner, total, upload, results)
        mine = self._coming.setdefault(owner, {})
        mine[upload] = total  # no other code ran since `admit` returned
        try:
            yield
        finally:
            mine.pop(upload, None)
            if not mine:
                self._coming.pop(owner, None)

    def _descriptions(self, owner: str) -> int:
        """Return the bytes of an owner's bag descriptions: specifications, prerequisites, and appended tasks."""
        if len(self._described) > 2 * len(self._bags) + 100:
            self._described = {number: known for number, known in self._described.items() if number in self._bags}
        return sum(self._description(bag) for bag in self._bags.values() if bag.owner == owner)

    def _description(self, bag: BagState) -> int:
        count, size = self._described.get(bag.number, (0, len(bag.spec)))
        if count < len(bag.appended):
            size += sum(map(len, bag.appended[count:]))
            self._described[bag.number] = (len(bag.appended), size)
        return size + (EDGE_BYTES * int(bag.graph.edges.rows) if bag.graph is not None else 0)


def _named(bags: list[tuple[int, str, int]]) -> str:
    commands = [f"windfall rm {bag} ('{name[:40]}', {_size(size)})" for bag, name, size in bags]
    return ", ".join(commands) or "windfall ls shows them"
