"""A large application is sent part by part: its first tasks run meanwhile, and an interrupted run can be finished."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.test_cli_application import application, component
from tests.live.real import CommandLine, environment, until
from windfall import Client
from windfall.client.profile import load
from windfall.core.messages import facts as f
from windfall.store import codec

SENDER = """
import sys, time
from windfall.cli.submission import send_parts as feeding
from windfall.cli.main import main
from windfall.workflow.build import streaming

streaming.PART, hold, stays, send = 4, {hold}, {stays}, feeding._send

def held(client, sent, part, number):
    while number == hold and (stays or not client.bag(sent.bag)["counts"].get("succeeded")):
        time.sleep(0.02)
    return send(client, sent, part, number)

feeding._send = held
sys.exit(main())
"""


def app(count: int) -> str:
    return application(
        f"par (i := 1; {count}) do compute Make(x[i], i); compute Next(y[i], x[i]); enddo compute Sum(total, y);",
        component("Make", "out integer value, in integer i", "SHELL", "echo $i > $value"),
        component("Next", "out integer value, in integer x", "SHELL", "echo $((x + 1)) > $value"),
        component("Sum", "out integer total, in integer* all", "SHELL",
                  "cat $all/* | awk '{n += $1} END {print n}' > $total"))


def start(windfall: CommandLine, hold: int, stays: bool, *words: object) -> subprocess.Popen[Any]:
    """Start a command that sends parts of four tasks; before part `hold` it waits for a success, or for ever."""
    script = SENDER.format(hold=hold, stays=stays)
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)], cwd=windfall.folder, text=True,
        env=environment(windfall.home), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def facts(windfall: CommandLine, bag: int) -> list[Any]:
    """Return the facts about a bag from a copy of the server's journal."""
    for file in windfall.home.glob("journal.db*"):
        shutil.copy(file, windfall.folder)
    connection = sqlite3.connect(windfall.folder / "journal.db")
    rows = [body for (body,) in connection.execute("SELECT body FROM journal ORDER BY seq")]
    connection.close()
    return [fact for body in rows for fact in codec.decode(body) if bag in bags_of(fact)]


def bags_of(fact: Any) -> list[int]:
    return [end.bag for end in fact.ends] if isinstance(fact, f.Ended) else [getattr(fact, "bag", 0)]


def total(windfall: CommandLine) -> int:
    return int((windfall.folder / "out" / "total").read_text())


def test_first_tasks_end_before_the_last_part_is_sent(windfall: CommandLine) -> None:
    windfall.write("app.query", app(8))
    process = start(windfall, 3, False, "run", "app.query", "-o", "out", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    done = json.loads(out)
    assert done["succeeded"] == done["tasks"] == 17 and total(windfall) == sum(range(2, 10))
    made = facts(windfall, done["bag"])
    parts = [fact for fact in made if isinstance(fact, f.PartAppended)]
    ends = [fact for fact in made if isinstance(fact, (f.Finished, f.Ended))]  # one by one, where the server is busy
    assert [(part.first, part.count) for part in parts] == [(4, 4), (8, 4), (12, 4), (16, 1)]
    assert ends[0].at <= parts[-1].at and made.index(ends[0]) < made.index(parts[-1])
    again = windfall.json("rerun", "app.query", "-o", "out")
    assert again["tasks"] == 0 and again["done_before"] == 17, "what came in parts is found again"
    exported = windfall.json("results", done["bag"], "--wfformat", "ran.json")
    assert exported["tasks"] == 17 and exported["edges"] == 16


def held_bag(windfall: CommandLine, name: str) -> int:
    """Wait for a bag that has eight of its seventeen tasks, and return its number."""
    with Client(load(windfall.home / "server.json")) as client:
        def found() -> int:
            return next((each["bag"] for each in client.bags() if (each["name"], each["tasks"]) == (name, 8)), 0)

        return int(until(found, 60))


def test_interrupted_run_closes_its_bag_and_rerun_does_the_rest(windfall: CommandLine) -> None:
    windfall.write("app.query", app(8))
    process = start(windfall, 1, True, "run", "app.query", "--name", "cut-short", "-o", "out")
    bag = held_bag(windfall, "cut-short")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "has 8 of its 17 tasks, and is closed" in err and "windfall rerun" in err
    ended = windfall.json("wait", bag)
    assert (ended["state"], ended["tasks"]) == ("succeeded", 8)
    again = windfall.json("rerun", "app.query", "--name", "cut-short", "-o", "out")
    assert again["succeeded"] == again["tasks"] == 9 and total(windfall) == sum(range(2, 10))


def test_a_bag_whose_client_died_is_explained(windfall: CommandLine) -> None:
    windfall.write("app.query", app(8))
    process = start(windfall, 1, True, "run", "app.query", "--name", "orphan", "-o", "out")
    bag = held_bag(windfall, "orphan")
    process.kill()
    process.communicate()
    until(lambda: windfall.json("show", bag)["state"] == "open", 60)
    assert f"windfall cancel {bag} closes it" in windfall("explain", bag).stdout
    windfall.json("cancel", bag)
    assert windfall.json("show", bag)["state"] == "succeeded"


def test_submit_sends_a_large_bag_in_parts(windfall: CommandLine) -> None:
    windfall.write("app.query", app(8))
    process = start(windfall, -1, False, "submit", "app.query", "--name", "left", "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    bag = json.loads(out)["bag"]
    assert json.loads(out)["tasks"] == 17 and windfall.json("wait", bag)["succeeded"] == 17
    assert sum(isinstance(fact, f.PartAppended) for fact in facts(windfall, bag)) == 4


@pytest.mark.needs("compilers")
def test_program_compiled_in_a_part_is_reused(windfall: CommandLine) -> None:
    """Programs are found by the task numbers of the server."""
    source = component("Sixfold", "out integer y, in integer x", "CXX", "y = 6 * x;", "// in parts")
    for last, tasks in ((9, 10), (7, 7)):  # the second time nothing is compiled
        windfall.write("app.query", application(f"par (i := 1; {last}) do compute Sixfold(y[i], i); enddo", source))
        out, err = start(windfall, -1, False, "run", "app.query", "-o", "out", "--json").communicate(timeout=120)
        assert json.loads(out)["succeeded"] == tasks, err
        assert (windfall.folder / "out" / f"y[{last}]").read_text().strip() == str(6 * last)
