"""A task that hangs on one host is run on another, and cancelled where it hangs: real servers, real pilots."""

from __future__ import annotations

from collections.abc import Iterator
from subprocess import Popen

import pytest

from tests.live.real import CommandLine, Server, free_port, until
from windfall import Client

pytestmark = pytest.mark.slow

BAG = """
[bag]
name = "hanging"
command = "case $PWD in */stuck/*) sleep 3600;; *) echo {n};; esac"
[sweep]
n = "1..8"
[policy]
replicate = "tail-safe"
"""


@pytest.fixture
def server(windfall: CommandLine) -> Iterator[Server]:
    running = Server(windfall.home, "--listen", f"127.0.0.1:{free_port()}")
    for site in ("stuck", "fine"):
        done = windfall("token", "add", "--scope", "enrol", "--site", site, "-o", f"{site}.json")
        assert done.returncode == 0, done.stderr
    yield running
    running.stop()


def pilot(windfall: CommandLine, site: str) -> Popen[str]:
    return windfall.start("pilot", "--ticket", f"{site}.json", "--cores", "1", "--dir", site, "--quiet")


def test_what_hangs_is_run_elsewhere_and_stopped(windfall: CommandLine, server: Server) -> None:
    windfall.write("bag.toml", BAG)
    pilots = [pilot(windfall, "stuck")]
    try:
        bag = int(windfall("submit", "bag.toml").stdout)
        with Client(server.profile) as client:
            until(lambda: client.running(bag))
            pilots.append(pilot(windfall, "fine"))
            assert client.wait(bag)["counts"]["succeeded"] == 8
            rows = windfall.json("results", bag)
            assert {row["site"] for row in rows} == {"fine"}, "one result each, and none from where it hung"
            until(lambda: not [p for p in client.pilots() if p["held"]])
    finally:
        for each in pilots:
            each.terminate()
        for each in pilots:
            each.wait(20)
