"""The output of many tasks: all, a range, those that failed, tagged, followed, and after a short run."""

from __future__ import annotations

import pytest

from tests.live.real import CommandLine

COMMAND = "echo out {x}; printf 'err {x}' >&2; test {x} != 2"


@pytest.fixture
def bag(windfall: CommandLine) -> int:
    """Return a bag of three tasks, the second of which has failed."""
    done = windfall.json("run", COMMAND, "--sweep", "x=1..3", "--retries", "0", code=1)
    return int(done["bag"])


def lines(windfall: CommandLine, *words: object) -> list[str]:
    done = windfall("logs", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_logs_of_a_bag_show_every_task_below_its_number(windfall: CommandLine, bag: int) -> None:
    assert lines(windfall, bag) == [
        "==> task 0 <==", "out 1", "err 1", "==> task 1, failed: exit 1 <==", "out 2", "err 2", "==> task 2 <==",
        "out 3", "err 3"]
    assert lines(windfall, bag, "1..2", "--out") == [
        "==> task 1, failed: exit 1 <==", "out 2", "==> task 2 <==", "out 3"]
    assert lines(windfall, bag, "--failed", "--err") == ["==> task 1, failed: exit 1 <==", "err 2"]
    assert lines(windfall, bag, 0, 2, "--tag") == ["0: out 1", "0: err 1", "2: out 3", "2: err 3"]
    assert lines(windfall, bag, 2, "--out") == ["out 3"]
    assert windfall.json("logs", bag, "--failed") == [{"task": 1, "state": "failed", "out": "out 2\n", "err": "err 2"}]
    beyond = windfall("logs", bag, "1..3")
    assert beyond.returncode == 2 and f"bag {bag} has 3 tasks, numbered from 0" in beyond.stderr


def test_followed_logs_of_an_ended_bag_are_printed_and_end(windfall: CommandLine, bag: int) -> None:
    assert lines(windfall, bag, "-f") == ["0: out 1", "1: out 2", "2: out 3"]


def test_logs_say_how_many_tasks_have_not_ended(windfall: CommandLine) -> None:
    bag = windfall("submit", "echo {x}", "--sweep", "x=1..3", "--cores", "1000").stdout.strip()
    done = windfall("logs", bag)
    assert done.returncode == 0 and "3 tasks" in done.stderr and f"windfall logs -f {bag}" in done.stderr
    windfall("cancel", bag)


def test_run_of_few_short_tasks_prints_their_output(windfall: CommandLine) -> None:
    few = windfall("run", COMMAND, "--sweep", "x=1..3", "--retries", "0")
    assert few.stdout == "out 1\nout 2\nout 3\n" and "err 2\n" in few.stderr
    assert windfall("run", "echo {x}", "--sweep", "x=1..11").stdout == ""
    assert windfall("run", "head -c 9000 /dev/zero; echo {x}", "--sweep", "x=1..2").stdout == ""
