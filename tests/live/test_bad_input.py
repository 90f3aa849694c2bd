"""Every line of the issue's list of bad input, the user's way: a clear sentence, and nothing is lost.

| what | here, through the command line | also |
| --- | --- | --- |
| unknown key, wrong type, empty sweep, | test_a_bag_file_that_is_wrong | tests/model/test_model_bagfile.py |
| missing input, unknown parameter |  |  |
| 10¹² tasks | test_a_bag_file_that_is_wrong | tests/model/test_model_check.py (HUGE) |
| a command that does not exist | test_a_command_that_does_not_exist | tests/pilot/test_running.py (missing_command) |
| full disk on the server | test_a_full_disk_on_the_server | tests/server/test_durability.py, tests/store |
| full disk on the pilot | – | tests/pilot/test_running.py (disk_limit, scratch) |
| corrupted, newer database | test_data_that_cannot_be_used | tests/store/test_journal.py |
| a file system without locks | – | tests/store/test_locking.py |
| second server on the same data | test_a_second_server | tests/server/test_durability.py |
| revoked token | tests/cli/test_cli_commands.py (test_tokens) | tests/pilot/test_exchange.py (revoked) |
| clock skew, a clock that jumps | – | tests/server/test_clock.py, tests/core/persist/test_recovery.py |
| non-UTF-8 output | test_output_that_is_not_utf8 | tests/pilot/test_running.py |
| a 2 GB output | test_two_gigabytes_come_home | tests/pilot/test_files.py |
| a task that daemonises | test_a_task_that_daemonises | tests/pilot/test_running.py |
| a task that ignores SIGTERM | test_a_task_that_ignores_sigterm | tests/pilot/test_running.py |
| a task that kills its parent | test_a_task_that_kills_its_parent | tests/pilot/test_running.py, tests/chaos |
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.rig import command_of
from tests.live.real import CommandLine, Server, processes_of, serving, until
from tests.store.small_disk import fill, small_disk


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("bad") / "home", "--pilot") as running:
        yield running


@pytest.fixture
def windfall(server: Server, tmp_path: Path) -> CommandLine:
    return CommandLine(server.home, tmp_path)


# --- the bag file -------------------------------------------------------------------------------------------

WRONG = {
    "unknown key": ('[bag]\ncommand = "p"\n[task]\ncoers = 2\n', 4, "cores"),
    "wrong type": ('[bag]\ncommand = "p"\n[task]\ncores = "two"\n', 4, "cores"),
    "empty sweep": ('[bag]\ncommand = "p {x}"\n[sweep]\nx = []\n', 4, "x"),
    "missing input": ('[bag]\ncommand = "p"\n[task]\ninputs = ["nothing.dat"]\n', 4, "nothing.dat"),
    "unknown parameter": ('[bag]\ncommand = "p {y}"\n[sweep]\nx = "1..3"\n', 2, "y"),
    "too many tasks": ('[bag]\ncommand = "p {x}"\n[sweep]\nx = "1..1000000000000"\n', 0, "1,000,000,000,000"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_bag_file_that_is_wrong(windfall: CommandLine, what: str) -> None:
    text, line, word = WRONG[what]
    file = windfall.write("wrong.toml", text)
    before = windfall.json("ls")
    for command in ("run", "submit"):
        done = windfall(command, file)
        assert done.returncode == 2 and done.stdout == "", done
        assert word in done.stderr and "Traceback" not in done.stderr
        if line:
            assert f"wrong.toml:{line}" in done.stderr
    assert windfall.json("run", file, code=2)["error"]["code"] in ("bad-input", "too-large")
    assert windfall.json("ls") == before


# --- the host -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("long_path", [False, True])
def test_a_command_that_does_not_exist(tmp_path: Path, long_path: bool) -> None:
    """Also where PATH alone is longer than what a report may say."""
    line = CommandLine(tmp_path / "home", tmp_path)
    path = os.pathsep.join([os.environ["PATH"], *(f"/nowhere/{i:04d}/bin" for i in range(500))])
    assert len(path) > 8000
    env = {"PATH": path} if long_path else {}
    done = line("run", "-s", "x=1..2", "--", "no-such-program", "{x}", **env)
    assert done.returncode == 1, done
    assert "no-such-program" in done.stderr and "could not be started" in done.stderr
    assert [row["state"] for row in line.json("results", 1)] == ["failed", "failed"]


def test_missing_program_is_told_once_after_one_attempt(tmp_path: Path) -> None:
    line = CommandLine(tmp_path / "home", tmp_path)
    done = line("run", "bin/prog {x}", "-s", "x=1..3")
    cure = "a task runs in a directory of its own; name the file with --input, or use an absolute path"
    assert done.returncode == 1 and done.stderr.count(cure) == 1, done
    assert line.json("show", 1, 0)["attempts"][1:] == []


@pytest.mark.root
def test_a_full_disk_on_the_server(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        line = CommandLine(disk / "home", tmp_path)
        with serving(line.home, "--pilot"):
            running = int(line("submit", f"until test -e {tmp_path}/go; do sleep 0.1; done; echo kept").stdout)
            until(lambda: line.json("show", running)["counts"]["active"])
            ballast = fill(disk, leave=6 << 20)
            refused = until(lambda: (done := line("submit", "echo refused")).returncode and done)
            assert refused.returncode == 3 and "is nearly full" in refused.stderr, refused
            assert str(disk) in refused.stderr
            (tmp_path / "go").touch()
            assert line.json("wait", running)["succeeded"] == 1  # results are taken all the same
            assert line("logs", running).stdout == "kept\n"
            ballast.unlink()
            until(lambda: line("run", "echo again", "-q").returncode == 0)


# --- the data -----------------------------------------------------------------------------------------------


def corrupt(journal: Path) -> None:
    with journal.open("r+b") as file:
        file.seek(100)
        file.write(b"\xde\xad\xbe\xef" * 900)


def newer(journal: Path) -> None:
    with sqlite3.connect(journal) as connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()


@pytest.mark.parametrize(("damage", "says"), [(corrupt, "damaged"), (newer, "newer")])
def test_data_that_cannot_be_used(tmp_path: Path, damage: object, says: str) -> None:
    """Refused by every command, and left as it is."""
    line = CommandLine(tmp_path / "home", tmp_path)
    assert line("run", "echo {x}", "-s", "x=1..50", "-q").returncode == 0
    journal = line.home / "journal.db"
    damage(journal)  # type: ignore[operator]
    before = hashlib.sha256(journal.read_bytes()).digest()
    for command in (("run", "true"), ("ls",), ("serve",)):
        done = line(*command)
        assert done.returncode == 3, done
        assert says in done.stderr and "journal.db" in done.stderr and "hint" in done.stderr
        assert "Traceback" not in done.stderr
    assert hashlib.sha256(journal.read_bytes()).digest() == before
    until(lambda: not processes_of(line.home))


def test_a_second_server(windfall: CommandLine, server: Server) -> None:
    done = windfall("serve")
    assert done.returncode == 3, done
    assert "another" in done.stderr and str(server.home) in done.stderr and "hint" in done.stderr
    assert windfall("run", "echo on").stdout == "on\n"


# --- what tasks do ------------------------------------------------------------------------------------------


def test_output_that_is_not_utf8(windfall: CommandLine) -> None:
    done = windfall("run", "printf '\\377\\376\\000\\200'; printf '\\300' >&2", "--name", "raw", text=False)
    assert done.returncode == 0
    assert done.stdout == b"\xff\xfe\0\x80" and b"\xc0" in done.stderr
    assert windfall("logs", "raw", text=False).stdout == b"\xff\xfe\0\x80"
    assert windfall.json("logs", "raw")["err"] == "\ufffd"


@pytest.mark.slow
def test_two_gigabytes_come_home(windfall: CommandLine) -> None:
    """Sparse where it is made; hashed, sent, kept and fetched as any other."""
    done = windfall("run", "truncate -s 2G big; printf end >> big", "--output", "big", "--name", "big", timeout=300)
    assert done.returncode == 0, done.stderr
    big = windfall.folder / "big.results" / "big"
    assert big.stat().st_size == (2 << 30) + 3
    with big.open("rb") as file:
        file.seek(2 << 30)
        assert file.read() == b"end"
    big.unlink()


def tasks_of(home: Path, word: str) -> list[int]:
    return [pid for pid in processes_of(home) if word in command_of(pid)]


def test_a_task_that_daemonises(windfall: CommandLine, tmp_path: Path) -> None:
    """Processes that the task leaves in other sessions end with the task."""
    stray = "setsid sleep 12345 > /dev/null 2>&1 & setsid -f sleep 12345"
    command = f"{stray}; until test -e {tmp_path}/go; do sleep 0.05; done; echo left"
    bag = int(windfall("submit", command).stdout)
    until(lambda: len(tasks_of(windfall.home, "sleep 12345")) >= 2)
    (tmp_path / "go").touch()
    assert windfall.json("wait", bag)["succeeded"] == 1
    assert windfall("logs", bag).stdout == "left\n"
    until(lambda: not tasks_of(windfall.home, "12345"))


def test_a_task_that_ignores_sigterm(windfall: CommandLine) -> None:
    file = windfall.write("deaf.toml", '[bag]\ncommand = "trap \'\' TERM; while :; do sleep 54321; done"\n'
                                       '[task]\ngrace = "1s"\n')
    bag = int(windfall("submit", file).stdout)
    until(lambda: tasks_of(windfall.home, "54321"))
    assert windfall.json("cancel", bag)["count"] == 1
    assert windfall.json("wait", bag, code=1)["cancelled"] == 1
    until(lambda: not tasks_of(windfall.home, "54321"))
    assert windfall("run", "echo on").stdout == "on\n"


def test_a_task_that_kills_its_parent(windfall: CommandLine) -> None:
    """All other tasks succeed, and the task is not retried for ever."""
    bag = int(windfall("submit", "test {x} = 3 && kill -9 $PPID; echo {x}", "-s", "x=1..8").stdout)
    try:
        until(lambda: windfall.json("show", bag)["state"] == "failed")
    finally:
        windfall("cancel", bag)
    rows = windfall.json("results", bag)
    assert [row["task"] for row in rows if row["state"] == "succeeded"] == [0, 1, 3, 4, 5, 6, 7]
    assert rows[2]["state"] in ("failed", "quarantined") and (rows[2]["why"] or rows[2]["note"])
