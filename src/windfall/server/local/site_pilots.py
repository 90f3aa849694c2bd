"""The provisioner inside a single user's server, which runs as soon as that user has a site file.

The provisioner's modules are loaded only then: most servers have no sites.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from windfall.core.messages import events
from windfall.core.messages.lifecycle import RUNNING

if TYPE_CHECKING:
    from windfall.provision.provisioner import Provisioner

LOOK_S = 3.0
RETIRE_S = 30.0  # for batch systems to remove the jobs that a short-lived server cancels


class SiteProvisioner:
    def __init__(self, runtime: Any, brief: bool = False) -> None:
        """`brief`: the server lives as long as one command, and opens a port for pilots only if a site's file names
        one."""
        self._runtime, self._brief = runtime, brief
        self._folder = runtime.home.path / "sites"
        self.provisioner: Provisioner | None = None
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while not any(self._folder.glob("*.toml")):
            await asyncio.sleep(LOOK_S)
        from windfall.provision.provisioner import Provisioner
        from windfall.server.calls.provisioners import InProcessLink

        if self._brief:
            await self._listen_for_pilots()
        landing = self._runtime.writer.core.config.landing / 1000
        self.provisioner = Provisioner(self._runtime.home.path, InProcessLink(self._runtime), landing=landing)
        await self.provisioner.run()

    async def _listen_for_pilots(self) -> None:
        """Listen at the address that a site's file names as `server`.  If that is not an address of this machine, a
        router forwards pilots to an address that the file does not tell: listen at every address."""
        from windfall.server.http import listen
        from windfall.sites.site_file import Site, every

        named = [site.server.removeprefix("https://").rpartition(":") for _, site in every(self._folder)
                 if isinstance(site, Site) and site.server]
        if named:
            host, _, port = named[0]
            own = await asyncio.to_thread(listen.own, host.strip("[]"))
            self._runtime.listen_for_pilots(f"[{own}]:{port}" if ":" in own else f"{own or '0.0.0.0'}:{port}")

    async def stop(self) -> None:
        """Stop the provisioner.  Jobs stay in their batch systems, where the next server finds them.  A brief server
        cancels its waiting jobs first, and if all work is done, its running pilots, since no server may follow."""
        if self._brief and self.provisioner is not None:
            await self._retire(self.provisioner)
        if self.provisioner is not None:
            await self.provisioner.stop()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _retire(self, provisioner: Provisioner) -> None:
        state, until = self._runtime.writer.state, asyncio.get_running_loop().time() + RETIRE_S
        names = [place.site.name for place in provisioner.places.values() if place.site.name in state.sites]
        await provisioner.retire()
        done = not any(bag.not_ended() for bag in state.bags.values())
        for pilot in [pilot for pilot in state.pilots.values() if pilot.site in names and done]:
            self._runtime.writer.put(events.Drain(0, pilot.number))
        while asyncio.get_running_loop().time() < until:
            if not any(state.sites[name].waiting or (done and state.sites[name].intents[RUNNING]) for name in names):
                return
            await asyncio.sleep(0.1)
