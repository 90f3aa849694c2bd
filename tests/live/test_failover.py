"""Tasks that keep failing go to the site that their bag names (G11): real servers, real pilots, one restart."""

from __future__ import annotations

import pytest

from tests.live.real import CommandLine, Pilots, Server, until
from windfall import Client

pytestmark = pytest.mark.slow

BAG = """
[bag]
name = "brittle"
command = "case $PWD in */safe/*) echo {n};; *) exit 3;; esac"
[sweep]
n = "0..3"
[task]
retries = 2
[policy]
fail-over = "safe"
"""


def test_failing_tasks_wait_for_the_fail_over_site_across_a_restart(
    windfall: CommandLine, server: Server, pilots: Pilots
) -> None:
    windfall.write("bag.toml", BAG)
    pilots.enrol("safe")
    pilots.start("grid", 2)
    bag = int(windfall("submit", "bag.toml").stdout)
    with Client(server.profile) as client:
        until(lambda: all("goes to safe now" in client.explain(bag, task)["summary"] for task in range(4)))
        said = [line["says"] for line in client.site("safe")["history"] if line["kind"] == "fail-over"]
    assert said == [f"tasks of bag {bag} that keep failing go here now"]
    told = windfall("explain", bag, 0).stdout
    assert "has failed 2 times and goes to safe now" in told, told
    server.kill()
    server.start()
    pilots.start("safe", 2)
    assert windfall("wait", bag, "-q").returncode == 0
    assert {row["site"] for row in windfall.json("results", bag)} == {"safe"}
    assert "keep failing" in windfall("site", "show", "safe").stdout


def test_a_site_that_is_not_there_is_refused_before_anything_runs(windfall: CommandLine, pilots: Pilots) -> None:
    pilots.enrol("safe")
    windfall.write("bag.toml", BAG.replace('"safe"', '"sfae"'))
    done = windfall("submit", "bag.toml")
    assert done.returncode == 2 and "no site called 'sfae'" in done.stderr and "did you mean 'safe'?" in done.stderr
