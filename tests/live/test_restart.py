"""Over TLS, with real processes: a server that is killed in mid-run, and a pilot that is cut off longer than its lease.

A restart with millions of tasks is measured by bench/restart.py; hundreds of random kills are in tests/chaos.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.live.real import CommandLine, Server, free_port, until
from tests.live.relay import Relay

pytestmark = pytest.mark.slow


@pytest.fixture
def server(windfall: CommandLine) -> Iterator[Server]:
    running = Server(windfall.home, "--listen", f"127.0.0.1:{free_port()}", "--lease", "1")
    yield running
    running.stop()


def ticket(windfall: CommandLine, name: str = "ticket.json", **changes: str) -> str:
    done = windfall("token", "add", "--scope", "enrol", "--site", "away", "-o", name)
    assert done.returncode == 0, done.stderr
    file = windfall.folder / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return name


def counts(windfall: CommandLine, bag: int) -> dict[str, int]:
    return dict(windfall.json("show", bag)["counts"])


def test_a_server_killed_in_mid_run_goes_on_where_it_was(windfall: CommandLine, server: Server) -> None:
    """Waiting clients go on waiting; each task has one result, and no accepted task runs again."""
    pilots = [windfall.start("pilot", "--ticket", ticket(windfall), "--cores", "2", "--idle", "60")]
    tally = windfall.folder / "tally"
    bag = int(windfall("submit", f"echo {{x}} >> {tally}; sleep 0.01", "-s", "x=1..1500").stdout)
    waiting = windfall.start("wait", bag, "-q")
    for part in (200, 600, 1000):
        until(lambda part=part: counts(windfall, bag)["succeeded"] >= part)
        accepted = {row["task"]: row["attempt"] for row in windfall.json("results", bag)}
        server.kill()
        server.start()
        rows = {row["task"]: row["attempt"] for row in windfall.json("results", bag)}
        assert accepted.items() <= rows.items()
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0 and "1,500 succeeded" in err, err
    ran = Counter(tally.read_text().split())
    assert sorted(map(int, ran)) == list(range(1, 1501))
    assert set(ran.values()) == {1}  # the pilot lived through it all, so nothing had to run twice
    for pilot in pilots:
        pilot.terminate()
        pilot.communicate(timeout=60)


def test_work_done_while_cut_off_longer_than_the_lease_counts(windfall: CommandLine, server: Server) -> None:
    """The server gives the attempt up after its limit and a lease; the late report still brings the result home."""
    host, _, port = server.profile["server"].removeprefix("https://").rpartition(":")
    relay = Relay((host, int(port)))
    through = ticket(windfall, server=f"https://127.0.0.1:{relay.address[1]}")
    pilot = windfall.start("pilot", "--ticket", through, "--cores", "1", "--idle", "60")
    tally, go = windfall.folder / "tally", windfall.folder / "go"
    work = f"echo {{x}} >> {tally}; until test -e {go}; do sleep 0.05; done; echo done {{x}}"
    bag = int(windfall("submit", work, "-s", "x=1..3", "--time", "3s").stdout)
    until(lambda: windfall.json("show", bag, 0)["state"] == "active" and tally.exists())
    until(lambda: "running" in windfall("explain", bag, 0).stdout)
    relay.stall()
    go.touch()  # it ends well, and nobody hears of it
    until(lambda: counts(windfall, bag)["ready"] == 3, 40)  # given up, and what had not started went back at once
    relay.flow()
    assert windfall.json("wait", bag)["succeeded"] == 3
    assert Counter(tally.read_text().split()) == {"1": 1, "2": 1, "3": 1}
    assert windfall("logs", bag, 0).stdout == "done 1\n"
    assert [row["outcome"] for row in windfall.json("results", bag)] == ["succeeded"] * 3
    pilot.terminate()
    pilot.communicate(timeout=60)
    relay.close()
