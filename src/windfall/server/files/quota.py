"""How much each owner may have here: file contents, uploads under way, and long descriptions of bags.

What a person sends is refused beyond the quota, files and bags alike; what pilots bring home is not: work that was done
is not thrown away.  The refusal names the bags that hold most.  An upload counts with all it will have from its first
byte on, so that many begun at once do not pass together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from windfall.data.blobs import Blobs
from windfall.errors import OverQuota
from windfall.model.units import format_size as _size
from windfall.server.views.projector import Projector

NAMED = 3  # bags
EDGE_BYTES = 8
FREE = 1 << 20  # bytes of an owner's bags, as they were submitted, that are not counted: most are small


class Quota:
    def __init__(self, limit: int, blobs: Callable[[], Blobs], projector: Projector, bags: dict[int, Any]) -> None:
        self.limit = limit  # bytes; 0: none
        self._blobs = blobs
        self._projector = projector
        self._bags = bags
        self._described: dict[int, tuple[int, int]] = {}  # bag → (appends that were added up, bytes)
        self._coming: dict[str, dict[str, int]] = {}  # owner → blobs being received, with the bytes they will have

    async def used(self, owner: str) -> int:
        """Bytes of complete files."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: self._blobs().used(owner))

    async def admit(self, owner: str, more: int = 0, sha: str = "") -> None:
        """Raises where `more` bytes of this owner, as a file called `sha`, would be too many."""
        if not self.limit:
            return
        used = await self.used(owner)
        begun = await asyncio.get_running_loop().run_in_executor(None, lambda: self._blobs().begun(owner))
        coming = {**begun, **self._coming.get(owner, {})}
        coming.pop(sha, None)
        used += sum(coming.values()) + max(0, self._descriptions(owner) - FREE)
        if used + more <= self.limit:
            return
        largest = await self._projector.ask(lambda views: views.largest(owner, NAMED))
        raise OverQuota(
            f"your files here take {_size(used)} of {_size(self.limit)}"
            + (f"; {_size(more)} more are too many" if more else ""),
            f"remove bags you need no more: {_named(largest)}",
        )

    @asynccontextmanager
    async def receiving(self, owner: str, sha: str, total: int) -> AsyncIterator[None]:
        """While a file is received it counts with all it will have."""
        await self.admit(owner, total, sha)
        mine = self._coming.setdefault(owner, {})
        mine[sha] = total  # nothing else ran since it was admitted
        try:
            yield
        finally:
            mine.pop(sha, None)
            if not mine:
                self._coming.pop(owner, None)

    def _descriptions(self, owner: str) -> int:
        """Bytes of an owner's bags as they came: specification, prerequisites, and all that was appended."""
        if len(self._described) > 2 * len(self._bags) + 100:
            self._described = {number: known for number, known in self._described.items() if number in self._bags}
        return sum(self._description(bag) for bag in self._bags.values() if bag.owner == owner)

    def _description(self, bag: Any) -> int:
        count, size = self._described.get(bag.number, (0, len(bag.spec)))
        if count < len(bag.appended):
            size += sum(map(len, bag.appended[count:]))
            self._described[bag.number] = (len(bag.appended), size)
        return size + (EDGE_BYTES * int(bag.graph.edges.rows) if bag.graph is not None else 0)


def _named(bags: list[tuple[int, str, int]]) -> str:
    said = [f"windfall rm {bag} ('{name[:40]}', {_size(size)})" for bag, name, size in bags]
    return ", ".join(said) or "windfall ls shows them"
