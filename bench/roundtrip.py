"""How long does one trivial task take from its submission to its result, on a warm server?

A server over TLS and one pilot run commands and Python calls.  The time of a disk flush is printed, too: each task
waits for two of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ENV, Server, percentile, server


def flush_ms(folder: Path) -> float:
    times = []
    fd = os.open(folder / "flush", os.O_CREAT | os.O_WRONLY, 0o600)
    for _ in range(200):
        os.write(fd, b"x" * 200)
        began = time.perf_counter()
        os.fdatasync(fd)
        times.append(time.perf_counter() - began)
    os.close(fd)
    return statistics.median(times) * 1000


def pilot(s: Server, folder: str, cores: int = 2) -> subprocess.Popen[bytes]:
    client = s.client()
    client.add_site("bench", "ssh")
    token = client.add_token("enrol", site="bench")["token"]
    ticket = Path(folder) / "ticket.json"
    ticket.touch(0o600)
    ticket.write_text(json.dumps({**{k: s.profile[k] for k in ("server", "certificate")}, "token": token,
                                  "site": "bench", "nonce": "bench"}))
    return subprocess.Popen([sys.executable, "-m", "windfall", "pilot", "--ticket", str(ticket), "--cores", str(cores),
                             "--dir", folder + "/pilot"], env=ENV)


def command_once(client) -> None:  # type: ignore[no-untyped-def]
    """Submit a bag of one task, and wait for its row."""
    from windfall.model.spec import Bag, Target

    bag = client.submit(Bag(name="one", targets=[Target(command=["/bin/true"])]))
    rows = [row for update in client.watch(bag, rows=True) for row in update.get("rows", ())]
    assert rows[0]["state"] == "succeeded"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=300)
    options = parser.parse_args()
    with server() as s, tempfile.TemporaryDirectory() as folder:
        process = pilot(s, folder)
        try:
            client = s.client()
            print(f"flush: {flush_ms(Path(s.home)):.2f} ms")
            for name, once in (("command", lambda: command_once(client)), ("call", lambda: client.call(int))):
                for _ in range(50):
                    once()
                times = []
                for _ in range(options.n):
                    began = time.perf_counter()
                    once()
                    times.append((time.perf_counter() - began) * 1000)
                print(f"{name}: p50 {percentile(times, 50):.2f} ms  p99 {percentile(times, 99):.2f} ms  "
                      f"worst {max(times):.2f} ms  n={len(times)}", flush=True)
        finally:
            process.terminate()
            process.wait(20)


if __name__ == "__main__":
    main()
