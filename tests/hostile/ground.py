"""The ground of the fuzzers: a server in a process of its own, clients, and a watcher of what other clients feel."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import random
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.live.real import Server, serving

EXPECTED = (503, 507)  # statuses from 500 on that are no mistakes of the server
SWEEP = {"name": "b", "targets": [{"command": ["p", "{x}"], "source": {
    "type": "sweep", "axes": [{"type": "range", "name": "x", "first": 1, "last": 20}]}}]}


class Reply(NamedTuple):
    status: int
    raw: bytes
    kind: str = ""
    retry_after: str = ""

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Caller:
    """A client that sends anything, over TLS, and notes the statuses it gets."""

    def __init__(self, profile: dict[str, Any], token: str | None = None) -> None:
        self.profile, self.token = profile, profile["token"] if token is None else token
        self.host, _, self.port = profile["server"][8:].rpartition(":")
        self.statuses: Counter[int] = Counter()
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(self.host, int(self.port), timeout=120, context=context)

    def call(self, method: str, path: str, body: Any = None, endless: bool = False, **headers: str) -> Reply:
        """Send a request and return its reply, or the beginning of an endless one; raise AssertionError if the reply
        shows a mistake of the server."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            named["Authorization"] = f"Bearer {self.token}"
        try:
            self._connection.request(method, path, data, named)
            reply = self._receive(endless)
        except (http.client.HTTPException, OSError):
            self._connection.close()
            self._connection = self._connect()
            reply = Reply(0, b"")  # the server may close the connection of a client that misbehaves
        self.statuses[reply.status] += 1
        assert reply.status < 500 or reply.status in EXPECTED, (method, path, str(data)[:2000], reply)
        return reply

    def _receive(self, endless: bool) -> Reply:
        connection = self._connection.sock
        response = self._connection.getresponse()
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        if not endless or response.status != 200:
            return Reply(response.status, response.read(), kind, response.headers.get("Retry-After", ""))
        raw = b""
        with suppress(TimeoutError):
            connection.settimeout(0.05)
            raw = response.read1(1 << 16)
        response.close()
        self._connection.close()
        return Reply(response.status, raw, kind)

    def as_user(self, name: str) -> Caller:
        return Caller(self.profile, self.call("POST", "/v1/tokens", {"scope": "user", "user": name}).body["token"])

    def enrolled(self, nonce: str, site: str = "local") -> tuple[Caller, int]:
        """Enrol a pilot; return its caller and its epoch."""
        ticket = self.call("POST", "/v1/tokens", {"scope": "enrol", "site": site}).body["token"]
        host = {"id": nonce, "name": "h", "cores": 4, "memory": 1 << 30}
        made = Caller(self.profile, ticket).call("POST", "/v1/enrol", {
            "v": 1, "site": site, "nonce": nonce, "host": host, "shape": {"cores": 4, "memory": 1 << 30}}).body
        return Caller(self.profile, made["token"]), made["epoch"]


class Ground:
    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.draw = server, random.Random(seed)
        self.caller = Caller(server.profile)

    def memory(self) -> int:
        """Return the bytes of the server's memory."""
        return int(psutil.Process(self.server.process.pid).memory_info().rss)

    def check_health(self) -> None:
        """The server must live, answer, and have met no error inside."""
        assert self.server.process.poll() is None, self.server.said()
        assert self.caller.call("GET", "/health").body["status"] == "ok"
        assert "internal error" not in self.server.said() and "Traceback" not in self.server.said()


@contextmanager
def ground(home: Path, seed: int = 1) -> Iterator[Ground]:
    with serving(home, "--listen", "127.0.0.1:0") as server:
        made = Ground(server, seed)
        yield made
        made.check_health()


# --- what other clients feel ----------------------------------------------------------------------------------


def _ask(profile: dict[str, Any], pipe: Connection) -> None:
    caller, times = Caller(profile), []
    while not pipe.poll():
        began = time.perf_counter()
        caller.call("GET", "/health")
        times.append(time.perf_counter() - began)
        time.sleep(0.005)
    pipe.send(sorted(times))


@contextmanager
def watching(profile: dict[str, Any]) -> Iterator[list[float]]:
    """Ask for the health again and again, in a process of its own; afterwards the list has the seconds each took."""
    times: list[float] = []
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_ask, args=(profile, theirs))
    process.start()
    try:
        yield times
    finally:
        with suppress(OSError, EOFError):
            ours.send(None)
            times += ours.recv()
        process.join()
