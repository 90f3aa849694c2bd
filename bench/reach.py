"""How much slower are relay and spool than a direct connection to the server?

Measured are null tasks a second, the time of a round trip, and megabytes a second, with one server over TLS and one
pilot of two cores.  Relay and spool run on this machine, at the other end of a pipe; with `--ssh HOST` (a name of
`~/.ssh/config`, or user@host:port) they run on HOST over SSH, on the same file system.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from common import ENV, Server, server

WAYS = ("direct", "relay", "spool")


class Ways:
    """A relay, in a thread of its own, that offers both a port and a spool."""

    def __init__(self, s: Server, folder: str, ssh: str) -> None:
        from windfall.pilot import bundle
        from windfall.provision.relay import Relay
        from windfall.sites.channels.here import Here

        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        pilot, _ = bundle.build(folder)
        channel: Any = Here(home=folder)
        if ssh:
            from windfall.sites.channels.ssh import Secure

            user, _, place = ssh.rpartition("@")
            host, _, port = place.partition(":")
            channel = Secure(host, user, int(port or 0))
        host, _, port = s.profile["server"][8:].rpartition(":")
        argv = (sys.executable, pilot, "relay", "--folder", folder + "/relay", "--spool")

        async def ready() -> Any:
            self.relay = Relay(channel, argv, (host, int(port)))
            return await self.relay.ready()

        offer = asyncio.run_coroutine_threadsafe(ready(), self.loop).result(60)
        self.routes = {"direct": s.profile["server"], "relay": f"https://127.0.0.1:{offer.port}", "spool": offer.spool}

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.relay.close(), self.loop).result(30)


def pilot(s: Server, folder: str, way: str, address: str) -> subprocess.Popen[bytes]:
    client = s.client()
    client.add_site(way, "ssh")
    token = client.add_token("enrol", site=way)["token"]
    ticket = Path(folder) / f"{way}.json"
    ticket.touch(0o600)
    ticket.write_text(json.dumps({**{k: s.profile[k] for k in ("server", "certificate")}, "token": token, "site": way,
                                  "routes": [{"kind": way, "address": address}]}))
    return subprocess.Popen([sys.executable, "-m", "windfall", "pilot", "--ticket", str(ticket), "--cores", "2",
                             "--quiet", "--dir", f"{folder}/{way}"], env=ENV)


def bag(client: Any, text: str) -> float:
    """Run a bag; return the seconds from its submission to its end."""
    from windfall.model.bagfile.reader import parse

    made = parse(text)
    began = time.perf_counter()
    done = client.wait(client.submit(made.bag, made.uploads))
    assert done["counts"]["succeeded"] == done["tasks"], done
    return time.perf_counter() - began


def send(client: Any, folder: str) -> None:
    """Upload the data before the measurement: the client's upload is not measured."""
    from windfall.model.bagfile.reader import parse

    made = parse(f'[bag]\nname = "sent"\ncommand = "true"\n[task]\ninputs = ["{folder}/data -> data"]\n')
    client.cancel(client.submit(made.bag, made.uploads))


def measure(client: Any, folder: str, tasks: int, size: int) -> tuple[float, float, float]:
    bag(client, '[bag]\nname = "warm"\ncommand = "true"\n')
    rate = tasks / bag(client, f'[bag]\nname = "null"\ncommand = ["/bin/true"]\n[sweep]\nn = "1..{tasks}"\n')
    trips = [bag(client, '[bag]\nname = "one"\ncommand = ["/bin/true"]\n') for _ in range(20)]
    moved = ('[bag]\nname = "data"\ncommand = "date +%N >>data; mv data back"\n[task]\n'
             f'inputs = ["{folder}/data -> data"]\noutputs = ["back"]\n')  # new content, so that it must be sent back
    seconds = bag(client, moved)
    return rate, statistics.median(trips) * 1000, 2 * size / 1e6 / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5000)
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--ssh", default="")
    options = parser.parse_args()
    with server() as s, tempfile.TemporaryDirectory() as folder:
        ways = Ways(s, folder, options.ssh)
        (Path(folder) / "data").write_bytes(os.urandom(options.megabytes << 20))
        send(s.client(), folder)
        base: tuple[float, float, float] | None = None
        for way in WAYS:
            process = pilot(s, folder, way, ways.routes[way])
            found = measure(s.client(), folder, options.n, options.megabytes << 20)
            base = base or found
            print(f"{way:7} {found[0]:7.0f} tasks/s ({found[0] / base[0]:4.2f})   round trip {found[1]:6.1f} ms   "
                  f"{found[2]:5.0f} MB/s ({found[2] / base[2]:4.2f})", flush=True)
            process.terminate()
            process.wait()
        ways.close()


if __name__ == "__main__":
    main()
