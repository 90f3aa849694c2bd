"""A laptop, a cluster behind its head node's sshd, and what a provisioner would do there."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import threading
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.live.real import Server
from tests.testbed.base import USER
from tests.testbed.network import Network, inside
from tests.testbed.sshd import Sshd
from windfall import Client
from windfall.pilot import bundle
from windfall.provision.relay import Relay
from windfall.sites.channels.ssh import Secure

T = TypeVar("T")


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def do(self, what: Awaitable[T], seconds: float = 60) -> T:
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(seconds)  # type: ignore[arg-type]

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)
        self.loop.close()


class Cluster:
    """The head node's account, over SSH; a relay there; a ticket with the routes that a test wants."""

    def __init__(self, server: Server, client: Client, network: Network, folder: Path, *, extra: str = "",
                 relay: Sequence[str] = ()) -> None:
        self.server, self.client, self.network, self.loop = server, client, network, Loop()
        self.place = f"windfall-reach-{os.getpid()}-{os.urandom(3).hex()}"
        self.home = Path(pwd.getpwnam(USER).pw_dir) / self.place
        self.sshd = Sshd(extra, address=network.head, prefix=inside(network.head_name))
        self.channel = Secure(network.head, USER, self.sshd.port, options=self.sshd.options)
        self.pilot = str(self.home / "pilot.pyz")
        path, _ = bundle.build(str(folder / "pilot"))
        self.loop.do(self.channel.put(self.pilot, Path(path).read_bytes(), 0o700))
        client.add_site("far", "batch")
        self.token = client.add_token("enrol", site="far")["token"]
        host, _, port = server.profile["server"][8:].rpartition(":")
        self.direct = {"kind": "direct", "address": server.profile["server"]}
        argv = ("python3", self.pilot, "relay", "--folder", str(self.home / "relay"), *relay)
        self.relay = Relay(self.channel, argv, (host, int(port)))
        self.ticket = str(self.home / "ticket.json")
        self.command = ("python3", self.pilot, "--ticket", self.ticket, "--idle", "300")

    def offer(self) -> Any:
        async def ready() -> Any:
            return await self.relay.ready()

        return self.loop.do(ready())

    def write_ticket(self, *routes: dict[str, str]) -> None:
        profile = self.server.profile
        fields = {"server": profile["server"], "certificate": profile["certificate"], "token": self.token,
                  "site": "far", "routes": list(routes)}
        self.loop.do(self.channel.put(self.ticket, json.dumps(fields).encode()))

    def relay_routes(self) -> list[dict[str, str]]:
        offer = self.offer()
        return [{"kind": "relay", "address": f"https://{host}:{offer.port}"} for host in offer.addresses]

    def reach(self, name: str) -> list[dict[str, Any]]:
        """Return the routes that a pilot tests on that node, with their outcomes."""
        done = subprocess.run([*self.on(name), "python3", self.pilot, "reach", "--ticket", self.ticket],
                              capture_output=True, text=True, timeout=120)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def on(self, name: str) -> list[str]:
        """Words before a command of the user's on that node."""
        return [*inside(name), "runuser", "-u", USER, "--"]

    def relays(self) -> list[int]:
        """Process ids."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"relay" in words and words[0].startswith(b"python3") and self.pilot.encode() in words:
                found.append(int(path.parent.name))
        return found

    def close(self) -> None:
        try:
            self.loop.do(self.relay.close())
            self.loop.do(self.channel.close())
        finally:
            self.loop.stop()
            self.sshd.stop()
            shutil.rmtree(self.home, ignore_errors=True)
