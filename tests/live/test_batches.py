"""Batches on real servers and pilots: where the tasks ran, in which order, and what is said of one that waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.real import CommandLine, Pilots, Server, until
from windfall import Client
from windfall.model.spec import Bag, Items, Policy, Target

pytestmark = pytest.mark.slow

BAG = """
[bag]
name = "fours"
command = "echo {n} $PWD >> TALLY; sleep 0.05; echo {n} end >> TALLY"
[sweep]
n = "0..23"
[policy]
batch = 4
batch-timeout = "10s"
"""


def test_a_batch_runs_on_one_pilot_in_order_one_at_a_time(windfall: CommandLine, pilots: Pilots) -> None:
    """Two pilots of two cores, six batches: within a batch one task ends before the next begins."""
    tally = windfall.folder / "tally"
    windfall.write("bag.toml", BAG.replace("TALLY", str(tally)))
    for name in ("a", "b"):
        pilots.start(name, 2)
    bag = int(windfall("submit", "bag.toml").stdout)
    assert windfall("wait", bag, "-q").returncode == 0
    said = [line.split() for line in tally.read_text().splitlines()]
    where = {int(words[0]): Path(words[1]).relative_to(windfall.folder).parts[0] for words in said if words[1] != "end"}
    for first in range(0, 24, 4):
        mine = [(int(words[0]), words[1] == "end") for words in said if first <= int(words[0]) < first + 4]
        assert mine == [(n, end) for n in range(first, first + 4) for end in (False, True)]
        assert len({where[task] for task in range(first, first + 4)}) == 1
    assert set(where.values()) == {"a", "b"}


def test_an_incomplete_batch_waits_and_explain_says_so(
    windfall: CommandLine, server: Server, pilots: Pilots
) -> None:
    """Three of four are there: nothing runs.  The fourth comes: all do.  One more comes: it goes after a while."""
    pilots.start("a", 2)
    with Client(server.profile) as client:
        target = Target(command="", source=Items(items=["true"] * 3))
        bag = client.submit(Bag(name="filling", targets=[target], open=True,
                                policy=Policy(batch=4, batch_timeout=1_500_000)))
        said = until(lambda: windfall.json("explain", bag, 2)["summary"])
        assert "waits for its batch to fill: 3 of 4 tasks are there" in said
        assert client.bag(bag)["counts"]["ready"] == 3
        client.append(bag, Items(items=["true"]))
        until(lambda: client.bag(bag)["counts"]["succeeded"] == 4)
        client.append(bag, Items(items=["true"]))
        client.close_bag(bag)
        until(lambda: client.bag(bag)["counts"]["succeeded"] == 5)


def test_dry_run_shows_the_batches(windfall: CommandLine) -> None:
    windfall.write("bag.toml", BAG.replace("TALLY", "tally"))
    said = windfall("run", "bag.toml", "--dry-run").stdout
    assert "in batches of 4: one after the other, in one slot of one pilot" in said
    assert windfall.json("run", "bag.toml", "--dry-run")["batch"] == 4
