"""Null pilots, which enrol, ask, and report success at once, over TLS, on one event loop in a process of their own.

This module is no benchmark; `dispatch.py` and `polls.py` import it.  It builds requests by hand, so that the server is
the limit.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
import time

import msgspec
import uvloop

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/src")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Pilot(asyncio.Protocol):
    """A pilot on a connection of its own, which answers each answer with the next request."""

    def __init__(self, farm: Farm, name: str) -> None:
        self.farm = farm
        self.name = name
        self.token = farm.token
        self.buffer = b""
        self.need = -1
        self.pilot = self.seq = self.ack = 0
        self.sent = 0.0
        self.resent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.pilot:
            self.exchange([])
            return
        shape = {"cores": self.farm.cores, "memory": 8 << 30}
        self.send("/v1/enrol", {
            "v": 1, "site": "null", "nonce": self.name, "shape": shape,
            "host": {"id": self.name, "name": self.name, "cores": self.farm.cores, "memory": 8 << 30},
        })

    def send(self, path: str, body: object) -> None:
        data = _encode(body)
        self.sent = time.perf_counter()
        self.transport.write(
            b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer %s\r\ncontent-length: %d\r\n\r\n%s"
            % (path.encode(), self.token, len(data), data)
        )

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer + data if self.buffer else data
        while buffer:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                break
            head = buffer[:end].lower()
            length = int(re.search(rb"content-length: (\d+)", head).group(1))  # type: ignore[union-attr]
            if len(buffer) < end + 4 + length:
                break
            body, buffer = buffer[end + 4 : end + 4 + length], buffer[end + 4 + length :]
            self.answered(int(head[9:12]), body)
        self.buffer = buffer

    def answered(self, status: int, body: bytes) -> None:
        if status != 200:
            self.farm.trouble(self, status, body)
            return
        answer = _decode(body)
        if "token" in answer:
            self.token = answer["token"].encode()
            self.pilot = answer["pilot"]
            self.epoch = answer["epoch"]
            self.farm.enrolled(self)
            return
        done = []
        for grant in answer.get("grants", ()):
            if grant["n"] > self.ack:
                self.ack = grant["n"]
                for group in grant["groups"]:
                    done += [task[0] for task in group["tasks"]]
                    self.farm.granted(group["tasks"])
        self.farm.answered(self, len(done), time.perf_counter() - self.sent)
        if not self.farm.stopped:
            self.exchange(done)

    def exchange(self, done: list[int]) -> None:
        self.seq += 1
        self.send("/v1/exchange", {
            "v": 1, "epoch": self.epoch, "seq": self.seq, "ack": self.ack,
            "want": self.farm.want, "wait": self.farm.wait,
            "reports": [{"a": a, "wall": 1, "cpu": 1, "rss": 1 << 20} for a in done],
        })

    def connection_lost(self, error: Exception | None) -> None:
        self.farm.lost(self)


class Farm:
    """Many null pilots against one server."""

    def __init__(
        self, profile: dict[str, str], token: str, pilots: int, want: int, cores: int, wait: int = 20_000
    ) -> None:
        self.where = profile["server"]
        self.token = token.encode()
        self.pilots = pilots
        self.want, self.cores, self.wait = want, cores, wait
        self.tasks = 0
        self.stopped = False
        self.waiting: asyncio.Event = asyncio.Event()
        self.ready = 0
        self.latencies: list[float] = []
        self.goal = 0
        self.reached = asyncio.Event()
        self.members: list[Pilot] = []
        self.context = None
        if not self.where.startswith("unix:"):
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self.context.check_hostname = False
            self.context.load_verify_locations(cadata=profile["certificate"])

    async def connect(self, pilot: Pilot) -> None:
        loop = asyncio.get_running_loop()
        if self.context is None:
            await loop.create_unix_connection(lambda: pilot, self.where[5:])
        else:
            host, port = self.where.split("//")[1].rsplit(":", 1)
            await loop.create_connection(lambda: pilot, host, int(port), ssl=self.context)

    async def enrol(self, at_once: int = 50) -> None:
        self.members = [Pilot(self, f"null-{i}") for i in range(self.pilots)]
        gate = asyncio.Semaphore(at_once)

        async def one(pilot: Pilot) -> None:
            async with gate:
                await self.connect(pilot)
        await asyncio.gather(*(one(p) for p in self.members))
        await self.waiting.wait()

    def enrolled(self, pilot: Pilot) -> None:
        self.ready += 1
        if self.ready == self.pilots:
            self.waiting.set()

    def start(self) -> None:
        for pilot in self.members:
            pilot.exchange([])

    def answered(self, pilot: Pilot, tasks: int, seconds: float) -> None:
        self.tasks += tasks
        if tasks:
            self.latencies.append(seconds)
        if self.goal and self.tasks >= self.goal:
            self.reached.set()

    def granted(self, tasks: list[list]) -> None:  # type: ignore[type-arg]
        """Take note of granted tasks; a hook for subclasses."""

    def trouble(self, pilot: Pilot, status: int, body: bytes) -> None:
        raise SystemExit(f"the server answered {status}: {body[:300]!r}")

    def lost(self, pilot: Pilot) -> None:
        if not self.stopped:
            self.reached.set()


def run(main) -> None:  # type: ignore[no-untyped-def]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
