"""A task that hangs on one host is run on another, and cancelled where it hangs: real servers, real pilots."""

from __future__ import annotations

import pytest

from tests.live.real import CommandLine, Pilots, Server, until
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


def test_what_hangs_is_run_elsewhere_and_stopped(windfall: CommandLine, server: Server, pilots: Pilots) -> None:
    windfall.write("bag.toml", BAG)
    pilots.start("stuck", 1)
    bag = int(windfall("submit", "bag.toml").stdout)
    with Client(server.profile) as client:
        until(lambda: client.running(bag))
        pilots.start("fine", 1)
        assert client.wait(bag)["counts"]["succeeded"] == 8
        rows = windfall.json("results", bag)
        assert {row["site"] for row in rows} == {"fine"}, "one result each, and none from where it hung"
        until(lambda: not [p for p in client.pilots() if p["held"]])
