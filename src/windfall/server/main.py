"""`windfall serve`: a server in a process of its own."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.errors import StoreError, StoreLocked, WindfallError
from windfall.server.local import numpy_threads
from windfall.server.local.data_folder import Home
from windfall.server.local.pilot import LocalPilot, Supervisor
from windfall.server.local.site_pilots import SiteProvisioner

if TYPE_CHECKING:
    from windfall.core.config import Config
    from windfall.server.runtime import Runtime, ServerOptions

COLLECT_S = 2.0
CONTENDING_S = 5.0
DRAIN_S = 10.0  # for the pilot to return its tasks, before the server kills it
MAX_CONNECTIONS = 50_000
OWN_FILES = 256
MANY = 1_000  # connections beyond which the garbage collector skips old objects


def serve(
    home: Path, listen: str | None = None, *, names: tuple[str, ...] = (), socket: bool = True, pilot: bool = False,
    lease: float | None = None, keep: int = 0, quota: int = 0, idle: float | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; with `pilot`, run a pilot on this machine, too.  Return the exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    limit = _connections()
    numpy_threads.load()
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            from windfall.server.runtime import ServerOptions

            options = ServerOptions(socket=socket, names=names, limit=limit, config=_config(lease, idle), keep=keep,
                                    quota=quota)
            problem = runner.run(_serve(Home(home), listen, pilot, options))
    except WindfallError as error:
        _say(str(error))
        return error.exit_code
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        problem = f"the disk with {home} is full: {error}"
    if problem:
        _say(f"{problem}\n  hint: free space there, then start again")
    return StoreError.exit_code if problem else 0


def _say(text: str) -> None:
    with suppress(OSError):  # the log may lie on a full disk
        sys.stderr.write(f"windfall: {text}\n")
        sys.stderr.flush()


def _config(lease: float | None, idle: float | None) -> Config:
    """Return the core's configuration.  Tests set a short lease; the other time limits shrink with it."""
    from windfall.core.config import Config

    given: dict[str, Any] = {} if idle is None else {"idle": int(idle * 1000)}
    if lease is not None:
        ms, usual = int(lease * 1000), Config()
        given |= {"lease": ms, "margin": max(ms // 10, 100), "park": min(usual.park, ms // 2),
                  "landing": min(usual.landing, 2 * ms), "listing": min(usual.listing, ms)}
    return Config(**given)


async def _serve(home: Home, listen: str | None, pilot: bool, options: ServerOptions) -> str:
    """Serve; return what ended the server before it was told to stop, or ""."""
    from windfall.server.runtime import Runtime

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runtime = await _take_over(lambda: Runtime.start(home, listen, options))
    runtime.disk.on_exhausted = stop.set
    local = await _start_pilot(runtime, home) if pilot else None
    _say(f"serving at {runtime.profile['server']}")
    collector = loop.create_task(_collect(runtime))
    pilots = SiteProvisioner(runtime)
    await stop.wait()
    collector.cancel()
    await pilots.stop()
    if local is not None:
        await _stop_pilot(*local)
    await runtime.stop()
    return runtime.disk.end


async def _take_over(start: Callable[[], Awaitable[Runtime]]) -> Runtime:
    """Start the server; wait up to CONTENDING_S for another that holds the store.  A command such as `windfall ls` runs
    a server for a moment."""
    until = asyncio.get_running_loop().time() + CONTENDING_S
    announced = False
    while True:
        try:
            return await start()
        except StoreLocked as error:
            if asyncio.get_running_loop().time() > until:
                raise
            if not announced:
                announced = True
                _say(f"{error.message}; waiting {CONTENDING_S:.0f} s for it to end")
        await asyncio.sleep(0.1)


async def _start_pilot(runtime: Runtime, home: Home) -> tuple[LocalPilot, Supervisor]:
    pilot = LocalPilot(home)
    await runtime.admit_local(pilot.ticket.token)
    supervisor = Supervisor(runtime, pilot)
    runtime.writer.last_acts.append(pilot.terminate)
    pilot.start()
    pilot.watch()
    return pilot, supervisor


async def _stop_pilot(pilot: LocalPilot, supervisor: Supervisor) -> None:
    """Stop the pilot before the server, so that the server still receives its last report."""
    supervisor.stop()
    pilot.terminate()
    if not await asyncio.get_running_loop().run_in_executor(None, pilot.wait, DRAIN_S):
        pilot.kill()


async def _collect(runtime: Runtime) -> None:
    """Collect garbage only while the server is idle; freeze the objects alive at the start, since the collector's
    pauses grow with the number of objects it visits."""
    gc.collect()
    gc.freeze()
    gc.disable()
    groups, tidied = -1, -1
    while True:
        await asyncio.sleep(COLLECT_S)
        idle, groups = runtime.writer.groups == groups, runtime.writer.groups
        few = len(runtime.http.connections) < MANY
        gc.collect(2 if idle and few else 1 if idle else 0)
        if idle and tidied != groups:
            tidied = groups
            _give_back()


def _give_back() -> None:
    """Return to the system the memory that a large submission took for a moment."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)


def _connections() -> int:
    """Raise the limit of open files, and return how many of them may be connections: all but those that journal, views
    and blobs need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, hard - OWN_FILES)
    return max(most, 64)
