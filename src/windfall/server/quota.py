"""How much each owner's file contents may take.

What a person sends is refused beyond the quota, files and bags alike; what pilots bring home is not: work that was done
is not thrown away.  The refusal names the bags that hold most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windfall.data.blobs import Blobs
from windfall.errors import OverQuota
from windfall.model.units import format_size as _size
from windfall.server.project import Projector

NAMED = 3  # bags


class Quota:
    def __init__(self, limit: int, blobs: Callable[[], Blobs], projector: Projector) -> None:
        self.limit = limit  # bytes; 0: none
        self._blobs = blobs
        self._projector = projector

    async def used(self, owner: str) -> int:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: self._blobs().used(owner))

    async def admit(self, owner: str, more: int = 0) -> None:
        """Raises where `more` bytes of this owner would be too many."""
        if not self.limit:
            return
        used = await self.used(owner)
        if used + more <= self.limit:
            return
        largest = await self._projector.ask(lambda views: views.largest(owner, NAMED))
        raise OverQuota(
            f"your files here take {_size(used)} of {_size(self.limit)}"
            + (f"; {_size(more)} more are too many" if more else ""),
            f"remove bags you need no more: {_named(largest)}",
        )


def _named(bags: list[tuple[int, str, int]]) -> str:
    said = [f"windfall rm {bag} ('{name[:40]}', {_size(size)})" for bag, name, size in bags]
    return ", ".join(said) or "windfall ls shows them"
