"""The command line as people use it: processes, exit codes, what is printed where."""

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from windfall.cli.main import COMMANDS, main
from windfall.cli.parser import task_numbers
from windfall.errors import BadInput

SWEEP = """\
[bag]
name = "demo"
command = "printf '{x} squared is %d\\n' $(({x}*{x})) > out-{x}; exit $(({x} == {bad} ? 3 : 0))"
[sweep]
x = "1..6"
bad = %d
[task]
outputs = ["out-{x}"]
"""


@pytest.fixture
def good(stub):
    open("demo.toml", "w").write(SWEEP.replace("bad = %d", "bad = 0"))
    return "demo.toml"


@pytest.fixture
def bad(stub):
    open("demo.toml", "w").write(SWEEP.replace("bad = %d", "bad = 4"))
    return "demo.toml"


def test_run_brings_everything_home(windfall, good):
    done = windfall("run", good)
    assert done.returncode == 0, done.stderr
    assert open("demo.results/out-5").read() == "5 squared is 25\n"
    assert "6 succeeded" in done.stderr and "6 files in demo.results/" in done.stderr
    assert done.stdout == ""


def test_run_says_why_tasks_failed_and_what_to_type(windfall, bad):
    done = windfall("run", bad, "-o", "here")
    assert done.returncode == 1
    assert "1 × exit 3  (task 3)  windfall logs 1 3" in done.stderr
    assert "windfall retry 1" in done.stderr
    assert sorted(os.listdir("here")) == ["out-1", "out-2", "out-3", "out-5", "out-6"]


def test_run_in_json(windfall, bad):
    done = windfall("run", bad, "--json")
    answer = json.loads(done.stdout)
    assert {k: answer[k] for k in ("bag", "tasks", "succeeded", "failed")} == {
        "bag": 1,
        "tasks": 6,
        "succeeded": 5,
        "failed": 1,
    }
    assert 0 < answer["elapsed"] < 60
    assert done.stderr == ""


def test_run_of_a_command(windfall, stub):
    done = windfall(
        "run",
        "echo {x}-{y} > {o}",
        "-s",
        "x=1..2",
        "--sweep",
        "y=a,b c",
        "-s",
        "o=f-{x}-{y}",
        "--output",
        "{o}",
        "--name",
        "n",
    )
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir("n.results")) == ["f-1-a", "f-1-b c", "f-2-a", "f-2-b c"]


def test_run_of_a_vector_shows_a_single_tasks_output(windfall, stub):
    done = windfall("run", "--", "/bin/echo", "a  b", "$HOME", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "a  b $HOME --json\n"


def test_dry_run_runs_nothing_and_needs_no_server(windfall, tmp_path):
    done = windfall(
        "run", "prog {x}", "--sweep", "x=1..1000000", "--dry-run", env={"WINDFALL_HOME": str(tmp_path / "none")}
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == ["prog: 1,000,000 tasks", "       0  prog 1"]
    assert "999,980 more" in done.stdout
    done = windfall("run", "--json", "-n", "-s", "x=1,2", "--", "p", "{x}")
    assert json.loads(done.stdout)["targets"][0]["commands"] == [["p", "1"], ["p", "2"]]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "nothing.toml"],
        ["run", "p {x}"],
        ["run", "p", "q"],
        ["run", "p", "--sweep", "x"],
        ["run", "p", "--memory", "2"],
        ["run", "p {x}", "--sweep", "x=1..1000000000000"],
        ["run", "--"],
        ["run", "p", "--cores", "many"],
        ["rnu"],
        ["run", "--wibble", "p"],
        ["run", "x.toml", "--", "p"],
        ["show", "1", "x"],
        ["cancel", "1", "5..x"],
        ["token", "rm"],
        ["token", "ls", "5"],
        ["show", "nosuchname"],
        ["ls", "--", "x"],
        ["run", "p", "--input", "nothing"],
    ],
)
def test_bad_input_is_exit_2_and_a_sentence(windfall, stub, arguments):
    done = windfall(*arguments)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stderr.startswith("windfall: ")
    assert "Traceback" not in done.stderr
    assert stub.bags == []


def test_errors_in_json_too(windfall, stub):
    done = windfall("run", "p {x}", "--json")
    assert json.loads(done.stdout)["error"]["code"] == "bad-input"
    assert done.returncode == 2


def test_refusals_are_exit_3(windfall, stub, tmp_path):
    assert windfall("show", "99").returncode == 3
    os.chmod(tmp_path / "home" / "server.json", 0o644)
    done = windfall("ls")
    assert (done.returncode, "chmod 600" in done.stderr) == (3, True)
    done = windfall("ls", env={"WINDFALL_SERVER_FILE": str(tmp_path / "nix.json")})
    assert done.returncode == 3


def test_looking_at_bags(windfall, bad):
    windfall("run", bad, "-q")
    table = windfall("ls").stdout.splitlines()
    assert table[0].split()[:4] == ["bag", "name", "state", "tasks"]
    assert table[1].split()[:6] == ["1", "demo", "failed", "6", "5", "1"]
    assert json.loads(windfall("ls", "--json").stdout)[0]["name"] == "demo"
    assert "demo" in windfall("show", "demo").stdout
    assert "x = 4" in windfall("show", "1", "3").stdout
    assert "no pilot" in windfall("explain", "1").stdout
    assert windfall("wait", "1").returncode == 1
    assert json.loads(windfall("wait", "1", "--json").stdout)["failed"] == 1
    assert "6 tasks cancelled" in windfall("cancel", "1").stdout
    assert json.loads(windfall("retry", "1", "3", "5..6", "--json").stdout)["count"] == 3
    assert "paused" in windfall("pause", "1").stdout
    assert "failed" in windfall("unpause", "1").stdout


def test_results(windfall, bad):
    windfall("run", bad, "-q")
    table = windfall("results", "1").stdout.splitlines()
    assert table[0].split()[:5] == ["task", "x", "bad", "state", "exit"]
    assert "exit 3" in table[4]
    rows = list(csv.DictReader(io.StringIO(windfall("results", "1", "--csv").stdout)))
    assert [row["x"] for row in rows] == list("123456")
    assert [row["exit"] for row in rows] == ["0", "0", "0", "3", "0", "0"]
    assert [row["task"] for row in json.loads(windfall("results", "1", "--json").stdout)] == list(range(6))
    assert [
        json.loads(line)["task"]
        for line in windfall("results", "1", "--jsonl", "--state", "failed").stdout.splitlines()
    ] == [3]
    assert json.loads(windfall("results", "1", "--json", "--state", "cancelled").stdout) == []


def test_logs_are_bytes(windfall, stub):
    windfall("submit", "printf '\\377out'; printf err >&2")
    done = subprocess.run(
        [sys.executable, "-m", "windfall", "logs", "1"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == (b"\xffout", b"err")
    assert json.loads(windfall("logs", "1", "0", "--json").stdout)["err"] == "err"


def test_tokens(windfall, stub):
    assert windfall("token", "add").stdout == "wf_new\n"
    assert "t1" in windfall("token", "ls").stdout
    assert windfall("token", "add", "--scope", "enrol", "-o", "t.json").returncode == 0
    assert os.stat("t.json").st_mode & 0o777 == 0o600
    assert "wf_new" not in windfall("token", "add", "-o", "u.json", "--json").stdout
    assert windfall("token", "rm", "t1").returncode == 0


def test_submit(windfall, good):
    done = windfall("submit", good)
    assert (done.stdout, done.returncode) == ("1\n", 0)


def test_interrupted(stub):
    stub.hold = True
    process = subprocess.Popen(
        [sys.executable, "-m", "windfall", "run", "true"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    until = time.monotonic() + 20
    while not any("watch" in path for _, path in stub.requests) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "windfall wait 1 -o true.results" in text and "windfall cancel 1" in text
    assert "Traceback" not in text


def test_a_pipe_that_closes(windfall, stub):
    windfall("run", "true {x}", "--sweep", "x=1..300", "-q")
    done = subprocess.run(
        f"{sys.executable} -m windfall results 1 | head -1",
        shell=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.startswith("task")
    assert done.stderr == ""


def test_a_bar_on_a_terminal(good):
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "windfall", "run", good],
        stderr=child,
        stdout=child,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"},
    )
    os.close(child)
    text = b""
    try:
        while data := os.read(parent, 4096):
            text += data
    except OSError:
        pass
    process.wait(timeout=20)
    assert b"[########################] 100%" in text
    assert b"6 succeeded" in text


def test_a_traceback_only_when_asked_for(windfall, stub):
    assert "Traceback" in windfall("run", "p {x}", env={"WINDFALL_DEBUG": "1"}).stderr


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "pilot"])
def test_every_command_has_help_and_json(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: windfall {command}")
    assert "--json" in text


def test_help_and_version(capsys):
    assert main([]) == main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "windfall 0.1.0\n"


def test_task_numbers():
    assert task_numbers([]) is None
    assert task_numbers(["3", "5..7"]) == [3, 5, 6, 7]
    for wrong in ("x", "-1", "1..", "..2", "1..99999999999", "1.5"):
        with pytest.raises(BadInput):
            task_numbers([wrong])
