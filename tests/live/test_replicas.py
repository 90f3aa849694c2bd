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


def test_hanging_attempts_are_replaced_by_replicas_and_stopped(
    windfall: CommandLine, server: Server, pilots: Pilots
) -> None:
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


OVERDUE = BAG.replace('"tail-safe"', '"none"\nattempt-deadline = "2s"').replace("1..8", "1..3")


def test_attempt_beyond_its_deadline_is_given_to_another_pilot(
    windfall: CommandLine, server: Server, pilots: Pilots
) -> None:
    """No task of the bag ever ends, so its mean run time is unknown: only the deadline causes the replicas."""
    windfall.write("bag.toml", OVERDUE)
    pilots.start("stuck", 3)
    bag = int(windfall("submit", "bag.toml").stdout)
    with Client(server.profile) as client:
        until(lambda: len(client.running(bag)) == 3)
        pilots.start("fine", 1)
        assert client.wait(bag)["counts"]["succeeded"] == 3
        assert {row["site"] for row in windfall.json("results", bag)} == {"fine"}
        assert windfall("policy", bag).stdout == "attempt-deadline = 2\nreplicate = none\n"
        until(lambda: not [p for p in client.pilots() if p["held"]])


SLOW = """
[bag]
name = "slow"
command = "sleep 3600"
[task]
expect = "1h"
"""


def test_bag_in_its_tail_shows_its_expected_end(windfall: CommandLine, server: Server, pilots: Pilots) -> None:
    windfall.write("bag.toml", SLOW)
    pilots.start("here", 1)
    bag = int(windfall("submit", "bag.toml").stdout)
    with Client(server.profile) as client:
        until(lambda: client.running(bag))
        assert client.bag(bag)["tail"] and client.bag(bag)["expected"]
        assert "in its last round, expected to end" in windfall("show", bag).stdout
        assert ", expected to end in " in windfall("explain", bag, 0).stdout
        client.cancel(bag)
