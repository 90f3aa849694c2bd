"""Parts that the benchmarks share: a server of their own, medians with their spread."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """`windfall serve` in a process of its own, over TLS, on a fresh or a given home."""

    def __init__(self, home: Path, port: int | None = None, tls: bool = True, pilot: bool = False) -> None:
        self.home = home
        self.port = port or free_port()
        listen = ["--listen", f"127.0.0.1:{self.port}"] if tls else []
        more = ["--pilot"] if pilot else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windfall", "serve", "--home", str(home), *listen, *more], env=ENV,
            stdout=subprocess.DEVNULL,
        )
        self.profile = self._wait()

    def _wait(self) -> dict[str, str]:
        path = self.home / "server.json"
        for _ in range(600):
            if self.process.poll() is not None:
                raise SystemExit("the server ended before it was ready")
            if path.exists() and json.loads(path.read_text()).get("pid", self.process.pid) == self.process.pid:
                profile = json.loads(path.read_text())
                if _answers(profile):
                    return profile
            time.sleep(0.02)
        raise SystemExit("the server did not get ready")

    def client(self):  # type: ignore[no-untyped-def]
        from windfall import Client

        return Client(self.profile)

    def rss(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        return 0

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(30)


def _answers(profile: dict[str, str]) -> bool:
    where = profile["server"]
    try:
        if where.startswith("unix:"):
            s = socket.socket(socket.AF_UNIX)
            s.connect(where[5:])
        else:
            host, port = where.split("//")[1].rsplit(":", 1)
            s = socket.create_connection((host, int(port)), 1)
        s.close()
    except OSError:
        return False
    return True


@contextmanager
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="windfall-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server(**options) -> Iterator[Server]:  # type: ignore[no-untyped-def]
    with home() as folder:
        s = Server(folder, **options)
        try:
            yield s
        finally:
            s.stop()


def spread(values: list[float]) -> str:
    """Return the median and the range of some values, as text."""
    return f"{statistics.median(values):,.1f}  [{min(values):,.1f} … {max(values):,.1f}]  n={len(values)}"


def percentile(values: list[float], p: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))]


def repeat(times: int, question: Callable[[], float]) -> list[float]:
    return [question() for _ in range(times)]


def raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
