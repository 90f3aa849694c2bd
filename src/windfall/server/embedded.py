"""A server inside another process: `windfall run` uses one where no server runs.

    server = Embedded(home)
    server.ensure_pilot()          # before `start`, so that the pilot's interpreter loads beside the server's
    profile = server.start()       # {"server", "certificate", "token"}
    …
    server.stop()

The event loop runs in its own thread.  The server listens on a Unix socket only, so TLS is not loaded.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.server.local import numpy_threads
from windfall.server.local.data_folder import Home
from windfall.server.local.pilot import LocalPilot, Supervisor

if TYPE_CHECKING:
    from windfall.server.runtime import Runtime

DRAIN_S = 10.0  # for the pilot to return its tasks, before the server kills it


class Embedded:
    def __init__(self, home: Path) -> None:
        self._home = Home(home)
        self._pilot: LocalPilot | None = None
        self._supervisor: Supervisor | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runtime: Runtime | None = None
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._claimed: socket.socket | None = None
        self._admission: asyncio.Future[None] | None = None

    # --- from outside -----------------------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """Start the server and return its profile once the socket answers.  Raise the error that prevented the start,
        StoreLocked for instance."""
        self.begin()
        return self.wait_ready()

    def begin(self) -> None:
        """Start the server's thread; `wait_ready` waits until the server answers."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="windfall server", daemon=True)
            self._thread.start()

    def wait_ready(self) -> dict[str, Any]:
        self._ready.wait()
        if self._failure is not None:
            self._end_pilot(0.0)
            self._unclaim()
            raise self._failure
        assert self._runtime is not None
        return self._runtime.profile

    def ensure_pilot(self, cores: int | None = None) -> None:
        """Keep a pilot running on this machine, from now until `stop`."""
        if self._pilot is None:
            self._claim()
            self._pilot = LocalPilot(self._home, cores)
            self._pilot.start()
        if self._runtime is not None and self._supervisor is None:
            self._call(self._adopt)

    def stop(self) -> None:
        """Stop the pilot first, so that the server still receives its last report; then stop the server."""
        if self._supervisor is not None:
            self._supervisor.stop()
        self._end_pilot(DRAIN_S)
        if self._thread is not None and self._loop is not None and self._thread.is_alive():
            assert self._stop is not None
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        elif self._thread is None:
            self._unclaim()
        self._thread = None

    @property
    def pilot_log(self) -> str:
        return self._pilot.log_tail() if self._pilot is not None else ""

    def _claim(self) -> None:
        """Bind the socket early: a pilot that is ready before the server waits in the kernel's queue, not in a
        back-off."""
        if self._claimed is None and self._thread is None:
            self._claimed = self._home.claim()

    def _unclaim(self) -> None:
        if self._claimed is not None:
            self._claimed.close()
            self._home.socket.unlink(missing_ok=True)
            self._claimed = None
        self._home.release()

    def _end_pilot(self, patience: float) -> None:
        if self._pilot is None:
            return
        self._pilot.terminate()
        if not self._pilot.wait(patience):
            self._pilot.kill()

    def _call(self, function: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function)

    # --- in the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            import uvloop

            with asyncio.Runner(debug=False, loop_factory=uvloop.new_event_loop) as runner:  # not the user's loop
                runner.run(self._serve())
        except BaseException as error:  # `wait_ready` raises it
            self._failure = self._failure or error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        numpy_threads.load()
        from windfall.server.runtime import Runtime, ServerOptions

        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        enrol = self._pilot.ticket.token if self._pilot is not None else ""
        options = ServerOptions(enrol=enrol, mark={"embedded": True}, claimed=self._claimed)
        self._runtime = await Runtime.start(self._home, None, options)
        self._adopt()
        gc.freeze()  # the collector skips modules and records loaded so far: they live until the end
        self._ready.set()
        pilots = self._start_pilots()
        await self._stop.wait()
        if pilots is not None:
            await pilots.stop()
        await self._runtime.stop()

    def _start_pilots(self) -> Any:
        """Start a provisioner for the user's sites, if this server has a local pilot and the user has site files."""
        if self._pilot is None or not any((self._home.path / "sites").glob("*.toml")):
            return None
        from windfall.server.local.site_pilots import SiteProvisioner

        return SiteProvisioner(self._runtime, brief=True)

    def _adopt(self) -> None:
        """Supervise the pilot, once both pilot and server exist."""
        if self._pilot is None or self._runtime is None or self._supervisor is not None:
            return
        self._supervisor = Supervisor(self._runtime, self._pilot)
        self._runtime.writer.last_acts.append(self._pilot.terminate)
        self._admission = asyncio.ensure_future(self._admit(self._pilot))

    async def _admit(self, pilot: LocalPilot) -> None:
        assert self._runtime is not None
        await self._runtime.admit_local(pilot.ticket.token)
        pilot.watch()


