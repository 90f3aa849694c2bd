"""A real server and real pilots, and the means to kill any of them at any moment.

Every process that the rig starts, and every descendant, has a mark in its environment; at the end no process may have
it.  The rig kills only processes with the mark, by pid.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError):
        return 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


class Rig:
    """A server and some pilots; `kill(kind)` kills one process, and starts it again unless another process does so."""

    def __init__(
        self, folder: Path, pilots: int, seed: int, lease: float = 3.0, server_env: dict[str, str] | None = None,
        serve: Sequence[str] = ("-m", "windfall"),
    ) -> None:
        self.server_env = server_env or {}
        self.serve = serve
        self.folder = folder
        self.home = folder / "home"
        self.lease = lease
        self.random = random.Random(seed)
        self.mark = "CHAOS_MARK=" + uuid.uuid4().hex
        name, value = self.mark.split("=")
        self.env = {**os.environ, "PYTHONPATH": str(SOURCE), name: value}
        self.kills: dict[str, int] = {}
        self.log = open(folder / "log", "wb")  # noqa: SIM115
        self.server = self._start_server()
        self.profile = self._wait_ready()
        self.pilots = [self._start_pilot(i) for i in range(pilots)]

    # --- starting ---------------------------------------------------------------------------------------------

    def _start_server(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, *self.serve, "serve", "--home", str(self.home), "--lease", str(self.lease),
                   "--listen", f"127.0.0.1:{self._port()}"]
        return subprocess.Popen(command, env={**self.env, **self.server_env}, stdout=self.log, stderr=self.log)

    def _port(self) -> int:
        from socket import socket

        if not hasattr(self, "port"):
            with socket() as s:
                s.bind(("127.0.0.1", 0))
                self.port = int(s.getsockname()[1])
        return self.port

    def _wait_ready(self) -> dict[str, str]:
        path = self.home / "server.json"
        for _ in range(1000):
            if self.server.poll() is not None:
                raise AssertionError("the server ended: " + (self.folder / "log").read_text()[-3000:])
            try:
                profile = json.loads(path.read_text())
                if profile.get("pid") == self.server.pid:
                    return dict(profile)
            except (OSError, ValueError):
                pass
            time.sleep(0.01)
        raise AssertionError("the server did not get ready")

    def _start_pilot(self, index: int) -> subprocess.Popen[bytes]:
        ticket = self.folder / f"ticket-{index}.json"
        if not ticket.exists():
            self._write_ticket(ticket, index)
        command = [sys.executable, "-m", "windfall", "pilot", "--ticket", str(ticket), "--cores", "2",
                   "--dir", str(self.folder / f"pilot-{index}-{uuid.uuid4().hex[:6]}"), "--idle", "600"]
        return subprocess.Popen(command, env=self.env, stdout=self.log, stderr=self.log)

    def _write_ticket(self, ticket: Path, index: int) -> None:
        from windfall import Client

        with Client(self.profile) as client:
            client.add_site("chaos", "ssh")
            token = client.add_token("enrol", site="chaos")["token"]
        ticket.touch(0o600)
        ticket.write_text(json.dumps({
            "server": self.profile["server"], "certificate": self.profile["certificate"], "token": token,
            "site": "chaos", "nonce": f"chaos-{index}",
        }))

    # --- killing ----------------------------------------------------------------------------------------------

    def kill(self, kind: str) -> bool:
        """SIGKILL one victim of that kind; False if there is none just now."""
        ways = {
            "server": self._kill_server, "pilot": self._kill_pilot,
            "runner": self._kill_runner, "task": self._kill_task,
        }
        if not ways[kind]():
            return False
        self.kills[kind] = self.kills.get(kind, 0) + 1
        return True

    def _kill_server(self) -> bool:
        self.server.kill()
        self.server.wait()
        self.server = self._start_server()
        self._wait_ready()
        return True

    def _kill_pilot(self) -> bool:
        """The process the site started."""
        victim = self.pilots[self.random.randrange(len(self.pilots))]
        victim.kill()
        victim.wait()
        self.mend()
        return True

    def mend(self) -> None:
        """Report ended pilots dead and start others on their tickets, as a site does."""
        for index, pilot in enumerate(self.pilots):
            if pilot.poll() is not None:
                self._report_dead(index)
                self.pilots[index] = self._start_pilot(index)

    def _report_dead(self, index: int) -> None:
        from windfall import Client
        from windfall.errors import WindfallError

        try:
            with Client(self.profile, patience=2) as client:
                for pilot in client.pilots():
                    if pilot["nonce"] == f"chaos-{index}" and pilot["state"] != "gone":
                        client.gone(pilot["pilot"])
        except (WindfallError, OSError):
            pass  # then its limits and leases have to do

    def _kill_runner(self) -> bool:
        """Any process of a pilot that is neither its root nor a task: agent, spawner, runner of calls."""
        roots = {p.pid for p in self.pilots} | {self.server.pid}
        hit = self._hit([
            pid for pid in self.family() if pid not in roots and b"WINDFALL_ATTEMPT=" not in environment_of(pid)
        ])
        self.mend()
        return hit

    def _kill_task(self) -> bool:
        return self._hit([pid for pid in self.family() if b"WINDFALL_ATTEMPT=" in environment_of(pid)])

    def _hit(self, victims: list[int]) -> bool:
        if not victims:
            return False
        try:
            os.kill(self.random.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def family(self) -> list[int]:
        """Everybody who carries the mark, but not we."""
        return list(self._marked())

    def _marked(self) -> Iterator[int]:
        mark = self.mark.encode()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid() and mark in environment_of(int(name)) and alive(int(name)):
                yield int(name)

    # --- the end ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        for pilot in self.pilots:
            pilot.terminate()
        for pilot in self.pilots:
            pilot.wait(30)
        self.server.terminate()
        self.server.wait(30)
        self.log.close()

    def leftovers(self, patience: float = 10.0) -> list[str]:
        """Return the marked processes that are still alive after `patience` seconds."""
        until = time.monotonic() + patience
        while (left := self.family()) and time.monotonic() < until:
            time.sleep(0.1)
        return [f"{pid}: {command_of(pid)}" for pid in left if alive(pid)]

    def sweep_up(self) -> None:
        """Kill all marked processes."""
        for pid in self.family():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
