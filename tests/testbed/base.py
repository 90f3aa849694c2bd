"""Folders, ports and daemons of a testbed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import TypeVar

import pytest

HERE = Path(__file__).resolve().parent
INSTALLED = Path(os.environ.get("WINDFALL_TESTBED_DIR", "/var/lib/windfall-testbed"))
CHROOT = INSTALLED / "trixie"
USER = "wfpilot"
PORTS = 60  # of each process of tests
T = TypeVar("T")


def require() -> None:
    """Skip the test where there is no testbed; fail it where there has to be one."""
    if os.geteuid() != 0:
        why = "needs root to start batch systems (which tests/testbed/install installs)"
    else:
        checked = subprocess.run([HERE / "install", "--check"], capture_output=True, text=True, timeout=60)
        missing = ", ".join(checked.stdout.split("\n")).strip(", ")
        why = "needs batch systems (Debian 12, as root: tests/testbed/install); missing: " + missing
        why = why if checked.returncode else ""
    if why and os.environ.get("WINDFALL_TESTBED") == "1":
        pytest.fail(f"WINDFALL_TESTBED=1 asks for the testbed, but: {why}")
    if why:
        pytest.skip(why)


_held: list[tuple[int, socket.socket]] = []


def slot() -> int:
    """Return a small number that no other live process of tests has."""
    while not _held:
        for number in range(len(_all_ports()) // PORTS):
            mark = socket.socket(socket.AF_UNIX)
            try:
                mark.bind(f"\0windfall-testbed-{number}")
            except OSError:
                mark.close()
                continue
            _held.append((number, mark))
            break
        else:
            time.sleep(1)
    return _held[0][0]


def _all_ports() -> range:
    """Return ports outside the range from which the kernel gives ports away; reserved ones if that range is too
    wide."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return range(20_000, 32_000) if first >= 32_000 else range(600, 1_024)


def _ports() -> Iterator[int]:
    """Yield this process's ports in turn, for a daemon that is ending may still have the last ones."""
    return cycle(_all_ports()[slot() * PORTS:(slot() + 1) * PORTS])


_candidates: list[Iterator[int]] = []  # made at the first request


def free_ports(count: int) -> list[int]:
    """Return ports without a listener, which no other process of tests will take."""
    if not _candidates:
        _candidates.append(_ports())
    found: list[int] = []
    for port in islice(_candidates[0], PORTS):
        with socket.socket() as each:
            try:
                each.bind(("", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"there are no {count} free ports")


def eventually(ask: Callable[[], T], what: str, seconds: float = 60, every: float = 0.2) -> T:
    """Call `ask` until it returns something true, and return that."""
    until = time.monotonic() + seconds
    while True:
        if answer := ask():
            return answer
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        time.sleep(every)


class Bed:
    """A folder that an ordinary user can read, and the daemons that live there."""

    def __init__(self, name: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=f"windfall-{name}-"))
        self.root.chmod(0o755)
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.home = self.folder("home", owner=USER)

    def folder(self, name: str, owner: str = "", mode: int = 0o755) -> Path:
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        if owner:
            who = pwd.getpwnam(owner)
            os.chown(path, who.pw_uid, who.pw_gid)
        return path

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None,
              death: str = "TERM") -> subprocess.Popen[bytes]:
        """Start a daemon, which gets this signal if this process is killed."""
        with (self.root / "daemons.log").open("ab") as log:
            daemon = subprocess.Popen(["setpriv", "--pdeathsig", death, *argv], stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=log, start_new_session=True, env={**os.environ, **(env or {})})
        self.daemons.append(daemon)
        return daemon

    def run(self, argv: Sequence[str], env: Mapping[str, str] | None = None, stdin: str = "") -> str:
        done = subprocess.run(argv, capture_output=True, text=True, input=stdin, timeout=120,
                              env={**os.environ, **(env or {})})
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def said(self) -> str:
        """Return what the daemons wrote, for the message of a test that fails."""
        texts = [path.read_text(errors="replace")[-3000:] for path in self.root.rglob("*.log") if path.is_file()]
        return "\n".join(texts)[-8000:]

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            end(daemon)
        self.daemons.clear()
        shutil.rmtree(self.root, ignore_errors=True)


def end(daemon: subprocess.Popen[bytes], seconds: float = 10) -> None:
    """End a daemon with SIGTERM, and with SIGKILL if it does not end in time."""
    if daemon.poll() is not None:
        return
    daemon.terminate()
    try:
        daemon.wait(seconds)
    except subprocess.TimeoutExpired:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
