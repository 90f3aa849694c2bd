"""`windfall provision`: a provisioner in a process of its own, for a server on another machine."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

from windfall.client.profile import Profile
from windfall.errors import BadInput
from windfall.provision.provisioner import Provisioner
from windfall.provision.remote_link import RemoteLink


def provision(home: Path, profile: Profile, landing: float) -> int:
    """Provision until SIGTERM or SIGINT.  Jobs stay in their batch systems, where the next provisioner finds them."""
    if not Provisioner.files(home):
        raise BadInput(f"there are no sites in {home / 'sites'}", "'windfall site add' makes one")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(_provision(home, profile, landing))
    return 0


async def _provision(home: Path, profile: Profile, landing: float) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    line = RemoteLink(profile)
    provisioner = Provisioner(home, line, landing=landing)
    provisioner.profile = lambda: profile
    running = asyncio.ensure_future(provisioner.run())
    sys.stderr.write(f"windfall: starting pilots for {profile.server}\n")
    sys.stderr.flush()
    waiting = asyncio.ensure_future(stop.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await provisioner.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    line.close()
