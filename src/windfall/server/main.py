"""A server of its own: `windfall serve`."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
from pathlib import Path

from windfall.errors import WindfallError
from windfall.server.runtime import Runtime

COLLECT_S = 5.0
MAX_CONNECTIONS = 50_000
OWN_FILES = 256
MANY = 1_000  # connections beyond which old objects are left alone by the collector


def serve(home: Path, listen: str | None = None, *, names: tuple[str, ...] = (), socket: bool = True) -> int:
    """Serve until SIGTERM or SIGINT.  Returns the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    limit = _connections()
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(home, listen, names, socket, limit))
    except WindfallError as error:
        sys.stderr.write(f"windfall: {error}\n")
        return error.exit_code
    return 0


async def _serve(home: Path, listen: str | None, names: tuple[str, ...], socket: bool, limit: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runtime = await Runtime.start(home, listen, names=names, socket=socket, limit=limit)
    sys.stderr.write(f"windfall: serving at {runtime.profile['server']}\n")
    sys.stderr.flush()
    collector = loop.create_task(_collect(runtime))
    await stop.wait()
    collector.cancel()
    await runtime.stop()


async def _collect(runtime: Runtime) -> None:
    """The collector's pauses grow with what is alive: freeze that, and collect only when nothing is going on."""
    gc.collect()
    gc.freeze()
    gc.disable()
    groups = -1
    while True:
        await asyncio.sleep(COLLECT_S)
        idle, groups = runtime.writer.groups == groups, runtime.writer.groups
        few = len(runtime.http.connections) < MANY
        gc.collect(2 if idle and few else 1 if idle else 0)


def _connections() -> int:
    """As many as the system lets us have, less what journal, views and blobs need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, hard - OWN_FILES)
    return max(most, 64)
