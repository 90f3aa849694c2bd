"""Real servers, pilots and command lines, each a process of its own, for the tests that walk the whole way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

SOURCE = Path(__file__).resolve().parents[2] / "src"
MARK = "TESTED_HOME"  # carried by everybody a test starts, tasks too, which are not told of WINDFALL_HOME


def environment(home: Path, **more: str) -> dict[str, str]:
    """The developer's own, less everything that would lead to a server of his."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDFALL_")}
    return {**kept, "PYTHONPATH": str(SOURCE), "WINDFALL_HOME": str(home), MARK: str(home), **more}


class CommandLine:
    """`windfall …` on one home, from one working directory."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home, self.folder = home, folder

    def __call__(
        self, *arguments: object, text: bool = True, timeout: float = 120, **env: str
    ) -> subprocess.CompletedProcess[Any]:
        process = self.start(*arguments, text=text, **env)
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *arguments: object, text: bool = True, **env: str) -> subprocess.Popen[Any]:
        return subprocess.Popen(
            [sys.executable, "-m", "windfall", *map(str, arguments)], cwd=self.folder, text=text,
            env=environment(self.home, **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def json(self, *arguments: object, code: int = 0, **env: str) -> Any:
        """Run the command with --json and return its parsed output; it must exit with `code`."""
        done = self(*arguments, "--json", **env)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def write(self, name: str, text: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return name


class Server:
    """`windfall serve` on a home; ready when the constructor returns."""

    program: tuple[str, ...] = ("-m", "windfall")

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self.options = options
        self.log = home.with_name(home.name + ".log")
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "serve", *self.options], env=environment(self.home), stdout=log,
                stderr=log,
            )
        self.profile: dict[str, Any] = until(self._profile)

    def _profile(self) -> dict[str, Any] | None:
        assert self.process.poll() is None, self.said()
        try:
            found = json.loads((self.home / "server.json").read_text())
        except (OSError, ValueError):
            return None
        return found if found.get("pid") == self.process.pid else None

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


class Pilots:
    """Pilots of one command line, each in a folder of its site's name."""

    def __init__(self, windfall: CommandLine) -> None:
        self.windfall = windfall
        self.started: list[subprocess.Popen[str]] = []

    def enrol(self, site: str) -> str:
        """Makes the site known, if it is not; where the ticket is."""
        if not (self.windfall.folder / f"{site}.json").exists():
            done = self.windfall("token", "add", "--scope", "enrol", "--site", site, "-o", f"{site}.json")
            assert done.returncode == 0, done.stderr
        return f"{site}.json"

    def start(self, site: str, cores: int, *more: object, **env: str) -> None:
        ticket = self.enrol(site)
        words = ("--ticket", ticket, "--cores", cores, "--dir", site, "--quiet", *more)
        self.started.append(self.windfall.start("pilot", *words, **env))

    def stop(self) -> None:
        for each in self.started:
            each.terminate()
        for each in self.started:
            each.wait(20)


@contextmanager
def serving(home: Path, *options: str) -> Iterator[Server]:
    server = Server(home, *options)
    try:
        yield server
    finally:
        server.stop()
        until(lambda: not processes_of(home))


def until(found: Callable[[], Any], seconds: float = 60) -> Any:
    """Call `found` until it returns a true value; return that value."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(0.02)
    return value


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def processes_of(home: Path) -> list[int]:
    """Return the processes that belong to that home's server: the server, its pilot, their helpers, the tasks."""
    mark = f"{MARK}={home}\0".encode()
    found = []
    for process in psutil.process_iter():
        try:
            carries = mark in Path(f"/proc/{process.pid}/environ").read_bytes()
            if carries and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (OSError, psutil.Error):
            continue
    return found


def sweep_up(home: Path) -> None:
    """After a test that went wrong: nobody of that home stays behind."""
    for pid in processes_of(home):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
