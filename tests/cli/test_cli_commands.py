"""The command line as people use it, against a real server and pilot: processes, exit codes, what is printed where."""

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading

import pytest

from tests.live.real import CommandLine, environment, free_port, serving, until
from windfall import Client
from windfall.cli.main import COMMANDS, main
from windfall.cli.parser import task_numbers
from windfall.cli.watch import follow_logs as following
from windfall.errors import BadInput

SWEEP = """\
[bag]
name = "demo"
command = "printf '{x} squared is %d\\n' $(({x}*{x})) > out-{x}; exit $(({x} == {bad} ? 3 : 0))"
[sweep]
x = "1..6"
bad = BAD
[task]
outputs = ["out-{x}"]
"""


@pytest.fixture
def good(windfall):
    return windfall.write("demo.toml", SWEEP.replace("BAD", "0"))


@pytest.fixture
def bad(windfall):
    return windfall.write("demo.toml", SWEEP.replace("BAD", "4"))


# --- run ----------------------------------------------------------------------------------------------------


def test_run_brings_everything_home(windfall, good):
    done = windfall("run", good)
    assert done.returncode == 0, done.stderr
    assert (windfall.folder / "demo.results" / "out-5").read_text() == "5 squared is 25\n"
    assert "6 succeeded" in done.stderr and "6 files in demo.results/" in done.stderr
    assert done.stdout == ""


def test_run_follows_no_link_for_results_that_nobody_named(windfall):
    good = windfall.write("linked.toml", SWEEP.replace("BAD", "0").replace("demo", "linked"))
    elsewhere = windfall.folder / "elsewhere"
    elsewhere.mkdir()
    (windfall.folder / "linked.results").symlink_to(elsewhere)
    refused = windfall("run", good)
    assert refused.returncode == 2 and "linked.results" in refused.stderr and "-o" in refused.stderr
    assert not any(each["name"] == "linked" for each in windfall.json("ls")) and not list(elsewhere.iterdir())
    assert windfall("run", good, "-o", "linked.results").returncode == 0 and len(list(elsewhere.iterdir())) == 6


def test_run_says_why_tasks_failed_and_what_to_type(windfall, bad):
    done = windfall("run", bad, "-o", "here")
    assert done.returncode == 1
    bag = windfall.json("ls")[0]["bag"]
    assert "1 × exit 3  (task 3)" in done.stderr and f"windfall logs {bag} 3" in done.stderr
    assert f"windfall retry {bag} --why exit --exit 3" in done.stderr
    assert sorted(os.listdir(windfall.folder / "here")) == ["out-1", "out-2", "out-3", "out-5", "out-6"]


def test_run_in_json(windfall, bad):
    done = windfall("run", bad, "--json")
    answer = json.loads(done.stdout)
    assert {k: answer[k] for k in ("tasks", "succeeded", "failed", "cancelled", "files", "directory", "state")} == {
        "tasks": 6, "succeeded": 5, "failed": 1, "cancelled": 0, "files": 5, "directory": "demo.results",
        "state": "failed",
    }
    assert isinstance(answer["elapsed"], float)
    assert done.stderr == ""


def test_run_sweeps_a_command_given_as_text(windfall):
    done = windfall("run", "echo {x}-{y} > {o}", "-s", "x=1..2", "--sweep", "y=a,b c", "-s", "o=f-{x}-{y}",
                    "--output", "{o}", "--name", "n")
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(windfall.folder / "n.results")) == ["f-1-a", "f-1-b c", "f-2-a", "f-2-b c"]


def test_run_of_a_vector_shows_a_single_tasks_output(windfall):
    done = windfall("run", "--", "/bin/echo", "a  b", "$HOME", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "a  b $HOME --json\n"


def test_inputs_travel_there_and_outputs_back(windfall):
    data = bytes(range(256)) * 1000
    windfall.write("in.dat", data)
    done = windfall("run", "cat {f} there/other > copy; chmod 750 copy", "-s", "f=in.dat", "--input", "in.dat",
                    "--input", "in.dat -> there/other", "--output", "copy", "--name", "io")
    assert done.returncode == 0, done.stderr
    copy = windfall.folder / "io.results" / "copy"
    assert copy.read_bytes() == data * 2
    assert copy.stat().st_mode & 0o777 == 0o750


def test_dry_run_runs_nothing_and_needs_no_server(alone):
    done = alone("run", "prog {x}", "--sweep", "x=1..1000000", "--dry-run")
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == ["prog: 1,000,000 tasks", "       0  prog 1"]
    assert "999,980 more" in done.stdout
    shown = json.loads(alone("run", "--json", "-n", "-s", "x=1,2", "--", "p", "{x}").stdout)
    assert shown["targets"][0]["commands"] == [["p", "1"], ["p", "2"]]
    assert not alone.home.exists()


def test_a_dry_run_shows_the_command_that_runs(windfall):
    windfall.write("two.toml", """\
[bag]
name = "two"
command = "touch r-{x} s-{x}"
[sweep]
x = "5..6"
[task]
outputs = ["r-{x}", "s-{x}"]
[targets.merge]
command = "ls {main.outputs}"
after = ["main"]
""")
    shown = windfall.json("run", "two.toml", "-n")["targets"][1]["commands"]
    assert shown == [["ls", "main/0/r-5", "main/0/s-5", "main/1/r-6", "..."]]
    done = windfall("run", "two.toml")
    assert done.returncode == 0, done.stderr
    assert windfall("logs", "two", "2").stdout.split() == [*shown[0][1:-1], "main/1/s-6"]


# --- what is wrong, said in a sentence ----------------------------------------------------------------------


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
def test_bad_input_is_exit_2_and_a_sentence(windfall, server, arguments):
    with Client(server.profile) as client:
        before = client.bags()
        done = windfall(*arguments)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert done.stderr.startswith("windfall: ")
        assert "Traceback" not in done.stderr
        assert client.bags() == before


def test_errors_come_in_json_on_request(windfall):
    assert windfall.json("run", "p {x}", code=2)["error"]["code"] == "bad-input"


def test_refusals_are_exit_3(windfall, server, tmp_path):
    assert windfall("show", "999999").returncode == 2
    loose = tmp_path / "loose.json"
    loose.write_text(json.dumps(server.profile))
    loose.chmod(0o644)
    done = windfall("ls", WINDFALL_SERVER_FILE=str(loose))
    assert (done.returncode, "chmod 600" in done.stderr) == (3, True)
    loose.write_text(json.dumps({**server.profile, "token": "nope"}))
    loose.chmod(0o600)
    assert windfall("ls", WINDFALL_SERVER_FILE=str(loose)).returncode == 3
    assert windfall("ls", WINDFALL_SERVER_FILE=str(tmp_path / "nix.json")).returncode == 3


def test_traceback_appears_when_windfall_debug_is_set(windfall):
    assert "Traceback" in windfall("run", "p {x}", WINDFALL_DEBUG="1").stderr


# --- looking and acting -------------------------------------------------------------------------------------


def test_ls_show_explain_and_wait_describe_a_failed_bag(windfall, bad):
    bag = windfall.json("run", bad, code=1)["bag"]
    table = windfall("ls", "-n", "1").stdout.splitlines()
    assert table[0].split()[:4] == ["bag", "name", "state", "tasks"]
    assert table[1].split()[:6] == [str(bag), "demo", "failed", "6", "5", "1"]
    assert windfall.json("ls")[0]["name"] == "demo"
    assert f"bag {bag} 'demo': failed, 6 tasks" in windfall("show", "demo").stdout
    shown = windfall("show", bag, 3).stdout
    assert "x = 4" in shown and "exit 3" in shown and "task 3 of main: failed" in shown
    assert windfall.json("show", bag, 3)["attempts"][0]["exit"] == 3
    assert windfall.json("show", bag)["counts"]["failed"] == 1
    said = windfall("explain", bag, 3).stdout
    assert said.startswith("task 3: failed") and "last attempt: exit" in said
    assert windfall.json("explain", bag, 3)["state"] == "failed"
    assert windfall("wait", bag).returncode == 1
    assert windfall.json("wait", bag, code=1)["failed"] == 1


def test_show_story_prints_every_fact_of_a_task_in_order(windfall, bad):
    bag = windfall.json("run", bad, code=1)["bag"]
    lines = windfall.json("show", bag, 3, "--story")
    assert [line["kind"] for line in lines][:2] == ["submitted", "granted"] and lines[-1]["kind"] == "ended"
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    shown = windfall("show", bag, 3, "--story").stdout
    assert "exit code 3; the task has failed  [attempt " in shown and shown.count("site local") >= 2
    assert "--story is about one task" in windfall("show", bag, "--story").stderr


def test_a_failed_task_is_retried_and_succeeds(windfall):
    windfall.write("flag", "")
    flag = windfall.folder / "flag"
    bag = windfall.json("run", f"test ! -e {flag}", code=1)["bag"]
    flag.unlink()
    assert f"bag {bag}: 1 task to run again" in windfall("retry", bag).stdout
    assert windfall.json("wait", bag)["succeeded"] == 1
    assert windfall.json("retry", bag)["count"] == 0
    assert [row["generation"] for row in windfall.json("results", bag)] == [1]


def test_submit_pause_explain_unpause_cancel_wait(windfall):
    done = windfall("submit", "sleep {x}", "-s", "x=60,61,62,63,64,65", "--name", "sleepy")
    bag = int(done.stdout)
    assert "no server is running" not in done.stderr  # there is a server
    until(lambda: windfall.json("show", bag)["counts"]["active"])
    assert f"bag {bag}: paused" in windfall("pause", "sleepy").stdout
    until(lambda: "paused" in windfall("explain", bag, 5).stdout)
    assert f"bag {bag}: running" in windfall("unpause", bag).stdout
    assert f"bag {bag}: 1 task cancelled" in windfall("cancel", bag, 5).stdout
    assert windfall.json("cancel", bag, "3", "4")["count"] == 2
    assert windfall.json("cancel", bag)["count"] == 3
    ended = windfall.json("wait", bag, code=1)
    assert ended["cancelled"] == 6
    now = windfall.json("show", bag)
    assert ended["elapsed"] == (now["ended"] - now["submitted"]) / 1000  # the bag's time, not this command's


def test_explain_names_the_clause_that_no_pilot_meets(windfall):
    bag = int(windfall("submit", "true", "--cores", "10000").stdout)
    said = windfall("explain", bag).stdout
    assert "NO" in said and "cores" in said and "local" in said
    assert windfall.json("cancel", bag)["count"] == 1


def test_results_come_as_table_csv_json_lines_and_files(windfall, bad):
    bag = windfall.json("run", bad, code=1)["bag"]
    table = windfall("results", bag).stdout.splitlines()
    assert table[0].split()[:5] == ["task", "x", "bad", "state", "exit"]
    assert "exit 3" in table[4]
    rows = list(csv.DictReader(io.StringIO(windfall("results", bag, "--csv").stdout)))
    assert [row["x"] for row in rows] == list("123456")
    assert [row["exit"] for row in rows] == ["0", "0", "0", "3", "0", "0"]
    assert all(int(row["started"]) >= int(row["granted"]) > 0 and int(row["rss"]) > 0 for row in rows)
    assert [row["task"] for row in windfall.json("results", bag)] == list(range(6))
    lines = windfall("results", bag, "--jsonl", "--state", "failed").stdout.splitlines()
    assert [json.loads(line)["task"] for line in lines] == [3]
    assert windfall.json("results", bag, "--state", "cancelled") == []
    assert "5 files in again" in windfall("results", bag, "-o", "again").stdout


def test_logs_print_every_byte_unchanged(windfall):
    bag = windfall.json("run", "printf '\\377out'; printf err >&2")["bag"]
    done = windfall("logs", bag, text=False)
    assert (done.stdout, done.stderr) == (b"\xffout", b"err")
    assert windfall("logs", bag, "--err", text=False).stdout == b"err"
    assert windfall.json("logs", bag, 0)["err"] == "err"


def test_logs_of_a_task_that_still_runs(windfall):
    bag = int(windfall("submit", "echo begin; sleep 60").stdout)
    following = windfall.start("logs", bag, 0, "-f")
    assert following.stdout.readline() == "begin\n"
    windfall("cancel", bag)
    following.communicate(timeout=60)
    assert following.returncode == 0


def test_logs_of_all_tasks_of_a_bag(windfall):
    """Live, whole lines, also of tasks that start later; ends with the bag."""
    wait = "while [ ! -e {folder}/go-{x} ]; do sleep 0.02; done"
    text = f"echo begin {{x}}; {wait}; printf 'end {{x}}'".replace("{folder}", str(windfall.folder))
    bag = int(windfall("submit", text, "--sweep", "x=0..39").stdout)
    following = windfall.start("logs", bag, "-f")
    begun = following.stdout.readline()
    assert re.fullmatch(r"(\d+): begin \1\n", begun)
    for x in range(40):
        (windfall.folder / f"go-{x}").touch()
    out = following.stdout.read()  # `communicate` would not see lines that came with the first and lie in the buffer
    assert following.wait(timeout=60) == 0, following.stderr.read()
    lines = [begun.rstrip(), *out.splitlines()]
    assert sorted(lines) == sorted(f"{x}: {word} {x}" for x in range(40) for word in ("begin", "end"))
    assert all(lines.index(f"{x}: begin {x}") < lines.index(f"{x}: end {x}") for x in range(40))
    assert windfall("logs", bag, "-f").stdout.splitlines() == [
        f"{x}: {word} {x}" for x in range(40) for word in ("begin", "end")]  # it has ended


def test_logs_refuse_to_follow_a_bag_without_a_server(alone):
    assert alone("submit", "true").returncode == 0
    done = alone("logs", "1", "-f")
    assert done.returncode == 2 and "windfall wait 1" in done.stderr


@pytest.mark.parametrize("streams", [0, 1])
def test_tasks_that_are_not_followed_are_printed_as_they_end(windfall, server, streams, monkeypatch, capsysbinary):
    monkeypatch.setattr(following, "STREAMS", streams)
    with Client(server.profile) as client:
        wait = f"while [ ! -e {windfall.folder}/go ]; do sleep 0.02; done"
        bag = int(windfall("submit", wait + "; echo {x}; echo no >&2", "--sweep", "x=0..9").stdout)
        threading.Timer(1, (windfall.folder / "go").touch).start()
        following.follow(client, bag, "out")
    shown = capsysbinary.readouterr().out.decode().split("\n")[:-1]
    assert sorted(shown) == [f"{x}: {x}" for x in range(10)]


def test_lines_of_several_tasks_do_not_mix(capsysbinary):
    printer = following.Printer()
    pieces = [(7, b"a"), (8, b"x\ny"), (7, b"b\n"), (8, None), (9, b"z" * (following.MAX_LINE + 1)), (9, b"!\n")]
    for task, data in pieces:
        printer(task, data)
    lines = capsysbinary.readouterr().out.split(b"\n")
    assert lines[:3] == [b"8: x", b"7: ab", b"8: y"] and [line[:4] for line in lines[3:]] == [b"9: z", b"9: !", b""]


def test_bag_goes_on_after_its_run_is_interrupted(windfall):
    process = windfall.start("run", "sleep 60", "--name", "long")
    until(lambda: (bags := windfall.json("ls")) and bags[0]["name"] == "long" and bags[0]["counts"]["active"])
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    bag = windfall.json("ls")[0]["bag"]
    assert f"windfall wait {bag}\n" in said and f"windfall cancel {bag}" in said
    assert "Traceback" not in said
    assert windfall.json("show", bag)["state"] == "running"
    windfall("cancel", bag)


# --- tokens -------------------------------------------------------------------------------------------------


def test_token_opens_the_server_until_it_is_revoked(windfall, server, tmp_path):
    made = windfall.json("token", "add", "--days", "1")
    assert made["token"] not in windfall("token", "ls").stdout and made["id"] in windfall("token", "ls").stdout
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**server.profile, "token": made["token"]}))
    other.chmod(0o600)
    assert windfall("ls", WINDFALL_SERVER_FILE=str(other)).returncode == 0
    assert f"token {made['id']} is revoked" in windfall("token", "rm", made["id"]).stdout
    done = windfall("ls", WINDFALL_SERVER_FILE=str(other))
    assert done.returncode == 3 and "token" in done.stderr
    assert made["id"] not in [token["id"] for token in windfall.json("token", "ls")]


def test_a_token_in_a_file_is_shown_nowhere(windfall):
    assert windfall.json("token", "add", "-o", "u.json")["token"] is None
    file = windfall.folder / "u.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["token"]
    assert windfall("token", "add", "-o", "u.json").returncode == 2  # never over a file that is there


def test_a_ticket_lets_a_pilot_in_over_tls(tmp_path):
    """Two commands, as the tutorial has them: a ticket from the server, a pilot with the ticket."""
    (tmp_path / "work").mkdir()
    line = CommandLine(tmp_path / "home", tmp_path / "work")
    with serving(line.home, "--listen", f"127.0.0.1:{free_port()}"):
        said = line("token", "add", "--scope", "enrol", "--site", "cluster", "-o", "ticket.json")
        assert "windfall pilot --ticket ticket.json" in said.stdout
        assert json.loads((line.folder / "ticket.json").read_text())["server"].startswith("https://")
        bag = int(line("submit", "echo $WINDFALL_ATTEMPT", "-s", "x=1..20").stdout)
        assert "no pilot" in line("explain", bag).stdout
        pilots = [line.start("pilot", "--ticket", "ticket.json", "--cores", "1", "--idle", "60") for _ in range(2)]
        try:
            assert line.json("wait", bag)["succeeded"] == 20
            until(lambda: windfall_pilots(line) == 2)
            assert {row["site"] for row in line.json("results", bag)} == {"cluster"}
        finally:
            for pilot in pilots:
                pilot.terminate()
            assert [pilot.wait(20) for pilot in pilots] == [0, 0]
            for pilot in pilots:
                pilot.communicate()


def windfall_pilots(line):
    with Client(json.loads((line.home / "server.json").read_text())) as client:
        return sum(pilot["site"] == "cluster" for pilot in client.pilots())


# --- terminals and pipes ------------------------------------------------------------------------------------


def test_closed_pipe_ends_a_command_quietly(windfall):
    bag = windfall.json("run", "true {x}", "--sweep", "x=1..300")["bag"]
    done = subprocess.run(
        f"{sys.executable} -m windfall results {bag} | head -1", shell=True, capture_output=True, text=True,
        env=environment(windfall.home),
    )
    assert done.stdout.startswith("task")
    assert done.stderr == ""


def test_terminal_shows_a_progress_bar(windfall, good):
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "windfall", "run", good], stderr=child, stdout=child, cwd=windfall.folder,
        env=environment(windfall.home, TERM="xterm"),
    )
    os.close(child)
    text = b""
    try:
        while data := os.read(parent, 4096):
            text += data
    except OSError:
        pass
    process.wait(timeout=60)
    assert b"[----" in text and b"0/6" in text
    assert b"6 succeeded" in text


# --- help ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "pilot"])
def test_every_command_has_help_and_json(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: windfall {command}")
    assert "--json" in text


def test_help_lists_all_commands_and_version_is_printed(capsys):
    assert main([]) == main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "windfall 0.1.0\n"


def test_task_numbers_are_read_from_numbers_and_ranges():
    assert task_numbers([]) is None
    assert task_numbers(["3", "5..7"]) == [3, 5, 6, 7]
    for wrong in ("x", "-1", "1..", "..2", "1..99999999999", "1.5"):
        with pytest.raises(BadInput):
            task_numbers([wrong])
