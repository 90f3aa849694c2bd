"""Hosts on which a bag cannot rely, with real servers and pilots: one spoils what it makes, one falls silent and comes
back when nobody waits for it any more.  With thousands of tasks and hosts: tests/sim."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.live.real import CommandLine, Pilots, Server, free_port, until
from windfall import Client

pytestmark = pytest.mark.slow


@pytest.fixture
def server(windfall: CommandLine) -> Iterator[Server]:
    """Yield a server with a short lease, after which it takes unstarted tasks back from a silent pilot."""
    running = Server(windfall.home, "--listen", f"127.0.0.1:{free_port()}", "--lease", "2")
    yield running
    running.stop()


SPOILT = """
[bag]
name = "squares"
command = "sleep 0.05; case $PWD in */spoilt/*) echo 7 > sq-{n};; *) echo $(({n} * {n})) > sq-{n};; esac"
[sweep]
n = "10..249"
[task]
retries = 6
outputs = ["sq-{n}"]
[check]
command = "test $(cat sq-{n}) = $(({n} * {n}))"
[policy]
per-host = 2
"""


def test_wrong_output_of_one_host_is_made_elsewhere_and_the_host_is_barred(
    windfall: CommandLine, server: Server, pilots: Pilots
) -> None:
    """The bad host's exit codes are 0 and its run times are normal; only its output files are wrong."""
    windfall.write("bag.toml", SPOILT)
    for site in ("spoilt", "one", "two", "three"):
        pilots.start(site, 1)
    with Client(server.profile) as client:
        until(lambda: len(client.pilots()) == 4)
        bag = int(windfall("submit", "bag.toml").stdout)
        counts = client.wait(bag)["counts"]
        said = [line["says"] for line in client.site("spoilt")["history"] if line["kind"] == "host"]
        assert client.fetch(bag, windfall.folder / "out") == 240
        others = [line for site in ("one", "two", "three") for line in client.site(site)["history"]
                  if line["kind"] == "host"]
    assert counts["succeeded"] == 240, counts
    assert "quarantined" in said[0] and not others
    rows = windfall.json("results", bag)
    assert {row["site"] for row in rows} <= {"one", "two", "three"}
    found = {path.name: path.read_text() for path in (windfall.folder / "out").rglob("sq-*")}
    assert found == {f"sq-{n}": f"{n * n}\n" for n in range(10, 250)}


SILENT = """
[bag]
name = "silent"
command = "case $PWD in */mute/*) until test -e GO; do sleep 0.05; done;; esac; echo {n} $PWD >> TALLY; echo {n}"
[sweep]
n = "0..7"
[policy]
POLICY
"""


@contextmanager
def stopped(pilot: subprocess.Popen[Any]) -> Iterator[None]:
    """The pilot and its helpers, all of them Python, are halted, and so silent; the tasks that it has started go on."""
    root = psutil.Process(pilot.pid)
    ours = [each for each in [root, *root.children(recursive=True)] if _runs(each, root.exe())]
    assert len(ours) > 2, "guardian, agent, spawners"
    for each in ours:
        each.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for each in ours:
            each.send_signal(signal.SIGCONT)


def _runs(process: psutil.Process, program: str) -> bool:
    """Tasks' own children come and go meanwhile."""
    try:
        return process.exe() == program
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("policy", ['replicate = "none"\nattempt-deadline = "2s"', 'replicate = "tail-safe"'])
def test_a_bag_ends_without_a_host_that_fell_silent_and_what_that_says_later_does_no_harm(
    windfall: CommandLine, server: Server, pilots: Pilots, policy: str
) -> None:
    go, tally = windfall.folder / "go", windfall.folder / "tally"
    windfall.write("bag.toml", SILENT.replace("GO", str(go)).replace("TALLY", str(tally)).replace("POLICY", policy))
    pilots.start("mute", 2)
    bag = int(windfall("submit", "bag.toml").stdout)
    with Client(server.profile) as client:
        until(lambda: len(client.running(bag)) == 2)
        with stopped(pilots.started[0]):
            pilots.start("fine", 1)
            assert client.wait(bag)["counts"]["succeeded"] == 8
            rows = windfall.json("results", bag)
            assert sorted(row["task"] for row in rows) == list(range(8))
            assert {row["site"] for row in rows} == {"fine"}
            go.touch()
            until(lambda: len(_ran_on(tally, "mute")) == 2)  # they end well there, and nobody hears of it
        until(lambda: not [each for each in client.pilots() if each["held"]])
        pilots.started[1].terminate()
        pilots.started[1].wait(20)
        more = int(windfall("submit", "echo {x}", "-s", "x=1..4").stdout)
        assert client.wait(more)["counts"]["succeeded"] == 4
        assert {row["site"] for row in windfall.json("results", more)} == {"mute"}, "it is as good as any other again"
        assert windfall.json("results", bag) == rows and client.bag(bag)["counts"]["succeeded"] == 8
        assert {*_ran_on(tally, "fine")} == {*map(str, range(8))}


def _ran_on(tally: Path, site: str) -> list[str]:
    lines = [line.split() for line in tally.read_text().splitlines()]
    return [words[0] for words in lines if f"/{site}/" in words[1]]
