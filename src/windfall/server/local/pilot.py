"""This machine's pilot: the server starts it, watches it, and starts it again while there is work.

This module imports little, so that the pilot's interpreter can load beside the server's.  The ticket outlives the
server: its nonce makes a pilot that a killed server left behind an older epoch, which may report but not start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import windfall.errors
from windfall.server.http.tokens import new_token
from windfall.server.local.data_folder import Home, private_directory, write_private

_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from windfall.pilot.main import main; sys.exit(main(sys.argv[1:]))"
)
_ROOT = str(Path(windfall.errors.__file__).parent.parent)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
STEADY_S = 60.0  # the server starts a pilot that lived this long again at once
IDLE_S = 30  # a pilot without work, or without a server, ends after this time; the server starts it when there is work
SITE = "local"
# Names of facts, since this module does not import the facts.
_BRING_WORK = ("BagSubmitted", "TasksAppended", "PartAppended", "BagPaused", "TasksRetried", "InputsGathered")


class Ticket:
    """The pilot's ticket, pilot/local.json in the data folder, readable by its owner only; made if it is missing."""

    def __init__(self, home: Home) -> None:
        private_directory(home.pilot)
        self.path = home.pilot / "local.json"
        server = f"unix:{home.socket}"
        found = _read(self.path)
        self.token = found.get("token") or new_token()
        self.nonce = found.get("nonce") or "local-" + os.urandom(8).hex()
        fields = {"server": server, "certificate": "", "token": self.token, "site": SITE, "nonce": self.nonce}
        if found != fields:
            write_private(self.path, json.dumps(fields).encode())


def _read(path: Path) -> dict[str, str]:
    try:
        if path.stat().st_mode & 0o077:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class LocalPilot:
    """The pilot's process.  When it ends, a thread calls `on_death`."""

    def __init__(self, home: Home, cores: int | None = None) -> None:
        self.ticket = Ticket(home)
        self._home = home
        self._cores = cores
        self._process: subprocess.Popen[bytes] | None = None
        self.on_death: Callable[[int], None] | None = None
        self._started = 0.0
        self._pause = FIRST_PAUSE_S

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.running():
            return
        command = [sys.executable, "-I", "-S", "-E", "-c", _START, _ROOT, "--ticket", str(self.ticket.path), "--quiet",
                   "--dir", str(self._home.pilot / "local"), "--idle", str(IDLE_S)]
        if self._cores is not None:
            command += ["--cores", str(self._cores)]
        with (self._home.pilot / "local.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._started = time.monotonic()

    def watch(self) -> None:
        """Call `on_death` when the process ends, or at once if it has ended already."""
        process = self._process
        if process is not None:
            threading.Thread(target=self._wait, args=(process,), name="local pilot", daemon=True).start()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if self.on_death is not None:
            self.on_death(code)

    def pause(self) -> float:
        """Return the seconds to wait before the next start; they double each time while the pilot dies young."""
        if time.monotonic() - self._started > STEADY_S:
            self._pause = FIRST_PAUSE_S
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE_S)
        return pause

    def log_tail(self) -> str:
        """Return the end of the pilot's log, for an error message."""
        try:
            return (self._home.pilot / "local.log").read_text(errors="replace")[-2000:].strip()
        except OSError:
            return ""

    def terminate(self) -> None:
        if self.running() and self._process is not None:
            self._process.terminate()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the process to end; return whether it has."""
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        if self.running() and self._process is not None:
            self._process.kill()
            self._process.wait()


class Supervisor:
    """The supervisor runs on the server's loop, tells the core when the pilot died, and starts it again for work."""

    def __init__(self, runtime: Any, pilot: LocalPilot) -> None:
        self._runtime = runtime
        self._writer = runtime.writer
        self._loop = runtime.http.loop
        self._pilot = pilot
        self._asleep = False
        self._stopped = False
        pilot.on_death = lambda code: self._loop.call_soon_threadsafe(self._died, code)
        runtime.writer.listeners.append(self._commit)

    def _died(self, code: int) -> None:
        if self._stopped or self._writer.closed:
            return
        from windfall.core.messages import events
        from windfall.core.messages.lifecycle import GONE

        for each in self._writer.state.pilots.values():
            if each.site == SITE and each.nonce == self._pilot.ticket.nonce and each.state != GONE:
                self._writer.put(events.Gone(0, each.number, "gone", proven=False))  # its next pilot looks
        if code == 0:
            self._asleep = True  # the pilot ended because it had no work
            self._loop.call_soon(lambda: self._look(self._writer.state.bags.values()))
        else:
            self._loop.call_later(self._pilot.pause(), self._again)

    def _commit(self, position: int, at: int, facts: Any) -> None:
        """Start a sleeping pilot if a commit brings work.  Only the bags of facts that may bring work are checked."""
        if self._asleep:
            bags = self._writer.state.bags
            named = (bags.get(fact.bag) for fact in facts if type(fact).__name__ in _BRING_WORK)
            self._look(bag for bag in named if bag is not None)

    def _look(self, bags: Iterable[Any]) -> None:
        if self._asleep and any(bag.not_ended() and not bag.paused for bag in bags):
            self._asleep = False
            self._again()

    def _again(self) -> None:
        if not self._stopped and not self._pilot.running():
            self._pilot.start()
            self._pilot.watch()

    def stop(self) -> None:
        self._stopped = True
