"""A provisioner inside a single user's server: as soon as that user has site files.

Loaded when there is one: most servers have no sites.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windfall.provision.provisioner import Provisioner

LOOK_S = 3.0


class Pilots:
    def __init__(self, runtime: Any, landing: int) -> None:
        """`landing`: ms, the core's."""
        self._runtime, self._landing = runtime, landing
        self.provisioner: Provisioner | None = None
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        sites = self._runtime.home.path / "sites"
        while not any(sites.glob("*.toml")):
            await asyncio.sleep(LOOK_S)
        from windfall.provision.provisioner import Provisioner
        from windfall.server.tending import Inside

        self.provisioner = Provisioner(self._runtime.home.path, Inside(self._runtime), landing=self._landing / 1000)
        await self.provisioner.run()

    async def stop(self) -> None:
        """Jobs stay where they are: the next server finds them."""
        if self.provisioner is not None:
            await self.provisioner.stop()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
