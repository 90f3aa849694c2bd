"""Checks of results: schemas, check commands, captured values.  Real processes, a scripted server."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from harness import alive, children, wait_until

from windfall.errors import BadInput
from windfall.pilot.files import checks

SCHEMA = json.dumps({"type": "object", "required": ["lod"], "properties": {"lod": {"type": "number"}}})


@pytest.fixture
def one(server, launch):
    launch("--idle", "30")
    numbers = iter(range(1, 10000))

    def run(command, timeout=60.0, **spec):
        number = next(numbers)
        server.submit([number, command], **spec)
        return server.result(number, timeout)

    return run


def test_result_file_must_fit_its_schema(one):
    check = {"file": ["result.json"], "schema": SCHEMA}
    assert "o" not in one("echo '{\"lod\": 3.5}' > result.json", check=check)
    report = one("echo '{\"lod\": \"x\"}' > result.json", check=check)
    assert (report["o"], report["why"]) == ("failed", "output")
    assert report["note"] == "result.json: /lod: 'x' is not a number"
    assert "missing" in one("true", check=check)["note"]


def test_output_must_fit_its_schema(one):
    assert "o" not in one("echo '{\"lod\": 3.5}'", check={"schema": SCHEMA})
    assert one("echo no", check={"schema": SCHEMA})["note"].startswith("the output: not JSON")


def test_unusable_schemas_and_files_fail_the_task(one):
    check = {"file": ["r"], "schema": SCHEMA}
    assert "larger than 16 MB" in one("head -c 20000000 /dev/zero > r", check=check)["note"]
    assert "not a file" in one("mkfifo r", check=check)["note"]
    assert one("echo {}", check={"schema": 5})["why"] == "output"
    slow = json.dumps({"type": "string", "pattern": "(a+)+$"})
    report = one("echo '\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\"'", timeout=40, check={"schema": slow})
    assert "longer than 10 s" in report["note"]
    assert one("echo fine")["out"] == "fine\n"


def test_deeply_nested_result_fails_its_task_alone(server, launch):
    pilot = launch("--cores", "2", "--idle", "30")
    server.submit([1, "sleep 3; echo on"])
    server.wait_started(1)
    spawners = pilot.spawners()
    deep = "[" * 700 + "]" * 700
    for number, schema in enumerate(({"const": 1}, {"enum": [1]}, {"uniqueItems": True}), 10):
        server.submit([number, f"echo '{deep}' > r"], check={"file": ["r"], "schema": json.dumps(schema)})
        report = server.result(number)
        assert (report["o"], report["why"]) == ("failed", "output") and report["note"] == "r: nested too deeply"
    assert server.result(1)["out"] == "on\n" and pilot.spawners() == spawners


def test_slow_inspection_does_not_delay_other_tasks(server, launch):
    """Another task of the spawner hits its time limit while an inspection with a costly schema runs."""
    launch("--cores", "2", "--idle", "30")
    slow = json.dumps({"type": "string", "pattern": "(a+)+$"})
    word = '"' + 47 * "a" + 'b"'
    server.submit([1, f"echo '{word}'"], check={"schema": slow}, grace=100)
    server.wait_started(1)
    server.submit([2, "sleep 60"], time=500, grace=100)
    server.submit([3, "echo other"])
    assert server.result(2)["why"] == "time" and server.result(3)["out"] == "other\n" and 1 not in server.reports
    server.say(cancel=[1])
    report = server.result(1)
    assert report["o"] == "cancelled" and report["out"] == word + "\n"


def test_killed_inspection_ends_its_attempt_alone(server, launch):
    """The task gets a verdict, and its slot is free again, whatever ends the inspecting process."""
    pilot = launch("--cores", "1", "--idle", "30")
    slow = json.dumps({"type": "string", "pattern": "(a+)+$"})
    server.submit([1, "echo '\"" + 47 * "a" + "b\"'"], check={"schema": slow})
    server.wait_started(1)
    spawner, = pilot.spawners()
    wait_until(lambda: any(_forked(pid) for pid in children(spawner)))
    os.kill(children(spawner)[0], signal.SIGKILL)
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "output")
    assert report["note"] == "the result could not be checked: ended by SIGKILL"
    server.submit([2, "echo on"])
    assert server.result(2)["out"] == "on\n" and pilot.spawners() == [spawner]


def _forked(pid):
    """Is this process a fork that has executed no other program, as the inspecting one?"""
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return "--ticket" in file.read()
    except OSError:  # gone since it was listed
        return False


DEAF = """
import select, sys
from windfall.pilot.files import checks
from windfall.pilot.run import spawners
checks.SECONDS = 0.3
checks.Inspection.found = lambda inspection: select.select([], [], [], 60)  # hears no alarm: none is set
settings = spawners.SpawnerSettings(mark="m", script="", gpus=False, environments="")
spawner, = spawners.Spawners(1, 1, sys.argv[1], settings).handles
spawner.order("specs", {1: {"bag": 1, "check": {"schema": "{}"}}, 2: {"bag": 1}})
spawner.order("run", 1, [(7, 1, "echo 3", None, None, (), None, 1, 0), (8, 2, "echo on", None, None, (), None, 2, 1)])
spawner.flush()
reports = []
while len(reports) < 2:
    select.select([spawner.frames], [], [])
    for kind, some in spawner.frames.receive():
        reports.extend(some)
print(reports[0]["o"], reports[0]["why"], reports[0]["note"], "|", reports[1]["out"], spawner.running())
spawner.order("quit")
spawner.flush()
"""


def test_inspection_that_misses_its_alarm_is_killed(tmp_path):
    """The spawner kills an inspection whose own alarm fails, and starts the next task in its slot."""
    said = subprocess.run([sys.executable, "-c", DEAF, str(tmp_path)], stdout=subprocess.PIPE, timeout=30, check=True)
    assert said.stdout.decode() == ("failed output the result could not be checked: it took longer than 0.3 s "
                                    "| on\n []\n")


def test_inspection_returns_more_than_a_pipe_holds(one):
    capture = [[f"value{i}", ".+", ""] for i in range(300)] + [["file", "x", "r"]]
    report = one("printf %01000d 7; echo x > r", capture=capture)
    assert len(report["values"]) == 301 and report["values"]["value299"].endswith("7")


def test_alarm_at_the_last_moment_stays_inside():
    for _ in range(300):
        try:
            checks.bounded(0.0003, lambda: time.sleep(0.0002), "it")
        except BadInput as error:
            assert error.message == "it took longer than 0.0003 s"
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_check_command_decides_the_outcome(one):
    good = {"command": "test \"$WORD\" = yes && grep -q 3 r && echo noise && echo more >&2"}
    report = one("echo 3 > r; echo mine", check=good, environment={"WORD": "yes"})
    assert "o" not in report and report["out"] == "mine\n" and "err" not in report
    bad = one("echo 4 > r; echo mine", check={"command": ["sh", "-c", "echo first >&2; echo no 3 in r >&2; exit 2"]})
    assert (bad["o"], bad["why"], bad["exit"]) == ("failed", "output", 0)
    assert bad["note"] == "the check failed: exit code 2: no 3 in r" and bad["out"] == "mine\n"
    assert "SIGTERM" in one("true", check={"command": "kill -TERM $$"})["note"]
    assert one("exit 3", check={"command": "touch /never"})["why"] == "exit"
    assert "cannot be run" in one("true", check={"command": ["nowhere-to-be-found"]})["note"]
    assert one("echo on", check={"command": "true"})["out"] == "on\n"


def test_check_command_is_limited_and_killed_as_a_tree(one, tmp_path):
    left = tmp_path / "pid"
    check = {"command": f"sleep 600 & echo $! > {left}; sleep 600"}
    report = one("echo mine", time=3000, grace=100, check=check)
    assert (report["o"], report["why"]) == ("failed", "output") and "longer than 3 s" in report["note"]
    wait_until(lambda: not alive(int(left.read_text())))
    assert one("echo fine")["out"] == "fine\n"


def test_check_command_is_cancelled_and_does_not_hold_others_up(server, launch, tmp_path):
    launch("--cores", "2", "--idle", "30")
    begun = tmp_path / "begun"
    server.submit([1, "echo mine"], check={"command": f"echo noise; touch {begun}; sleep 600"}, grace=100)
    wait_until(begun.exists)
    server.submit([2, "echo other"])
    assert server.result(2)["out"] == "other\n"
    server.say(stream=[1])
    server.say(cancel=[1])
    assert server.result(1)["o"] == "cancelled" and server.result(1)["out"] == "mine\n" and not server.outputs


def test_values_are_captured_from_output_and_files(one):
    capture = [["lod", r"LOD=(\S+)", ""], ["all", r"n=\d+", ""], ["none", "nowhere", ""], ["deep", "end (.)", "log"]]
    report = one("echo LOD=3.5 n=12; head -c 20000000 /dev/zero > log; echo end Z >> log", capture=capture)
    assert report["values"] == {"lod": "3.5", "all": "n=12", "deep": "Z"} and "note" not in report
    long = one("printf %02000d 7", capture=[["long", ".+", ""]])
    assert len(long["values"]["long"]) == 1000


def test_values_are_captured_only_after_an_exit(one):
    capture = [["x", "x=(.)", ""]]
    assert one("echo x=1", check={"match": "y"}, capture=capture)["values"] == {"x": "1"}
    assert "values" not in one("echo x=1; kill -9 $$", capture=capture)
    assert "values" not in one("echo nothing", capture=capture)


def test_invalid_captures_are_noted(one):
    for capture in ([["x", "(", ""]], [["x", "a", "../../etc/passwd"]], [["x", "a", "none"]], [3], 3):
        report = one("echo a", capture=capture)
        assert "o" not in report and "values" not in report and report["note"]
    report = one("echo x; echo " + 40 * "a" + "b", capture=[["x", "x", ""], ["slow", "(a+)+$", ""]])
    assert report["values"] == {"x": "x"} and "longer" in report["note"]


def test_check_cannot_read_outside_the_directory(one):
    path = os.path.relpath("/etc/passwd", "/")
    assert "note" in one("ln -s /etc/passwd r", check={"file": ["../" + path], "schema": "{}"})
