"""Messages of the command line at the places where people get stuck."""

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.live.real import CommandLine, environment, serving, until
from windfall.cli.watch import departure
from windfall.client.columns import Names
from windfall.errors import NoServer


def test_a_run_that_can_never_start_says_why(windfall):
    process = windfall.start("run", "echo", "--cores", "1000", "--name", "big")
    assert process.stderr.readline() == "big: 1 task\n"
    line = process.stderr.readline()
    assert line.startswith("big: nothing can run: needs 1000 cores, the largest pilot has "), line
    assert "(windfall explain " in line
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "windfall pause" in said and " -o " not in said
    assert windfall("cancel", "big").returncode == 0
    done = windfall("wait", "big")
    assert (done.returncode, "1 cancelled" in done.stderr) == (1, True)
    done = windfall("logs", "big")
    assert (done.returncode, done.stderr) == (1, "task 0 never ran: cancelled (on request)\n")


@pytest.fixture
def idle(tmp_path):
    """Return the command line beside a server without pilots."""
    (tmp_path / "work").mkdir()
    with serving(tmp_path / "home") as running:
        yield CommandLine(running.home, tmp_path / "work")


def test_run_beside_a_server_without_pilots_says_so_at_once(idle):
    """The bag waits; `run` does not, for longer than it is told to."""
    process = idle.start("run", "echo", "--name", "alone", "--timeout", "10min")
    assert process.stderr.readline() == "alone: 1 task\n"
    assert process.stderr.readline().startswith("alone: no pilot is connected: start one with 'windfall serve --pilot'")
    assert [bag["state"] for bag in idle.json("ls")] == ["waiting"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    for command in (["wait", "alone"], ["run", "echo"]):
        done = idle(*command, "--timeout", "1s")
        assert done.returncode == 124 and "has not ended within 1s" in done.stderr and "is kept" in done.stderr
    assert idle("wait", "alone", "--timeout", "soon").returncode == 2
    idle("cancel", "alone")
    idle("cancel", "echo")


def test_run_asks_for_no_pilot_where_the_server_starts_them(idle):
    """`here` may start a pilot, after a while: nobody has to start one by hand."""
    assert idle("site", "add", "here", "--local", "--cores", "1").returncode == 0
    file = idle.home / "sites" / "here.toml"
    file.write_text(file.read_text().replace("[site]\n", '[site]\nstart-delay = "10min"\n', 1))
    until(lambda: any(site.get("limits", {}).get("pilots") for site in idle.json("site", "ls")))
    process = idle.start("run", "echo", "--name", "coming", "--timeout", "10min")
    assert process.stderr.readline() == "coming: 1 task\n"
    said = process.stderr.readline()
    assert "start one with" not in said and "here" in said, said
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    idle("cancel", "coming")


class Pilots:
    """A session whose client knows some pilots."""

    def __init__(self, *pilots, queued=0):
        self.client, self._pilots, self._queued = self, pilots, queued

    def pilots(self):
        return [dict(zip(("site", "cores", "nonce", "ended"), pilot, strict=True)) for pilot in self._pilots]

    def sites(self):
        return [{"site": "lab", "kind": "slurm", "queued": self._queued}, {"site": "far", "kind": "lsf", "queued": 0},
                {"site": "local", "kind": "local", "queued": 0}]


def test_leaving_a_bag_names_the_jobs_that_hold_cores():
    found = departure.holders(Pilots(("lab", 8, "m-1", None), ("lab", 8, "m-2", None), ("far", 1, "m-3", None),
                                     ("lab", 4, "m-4", 5), ("local", 2, "local-1", None), queued=2))
    assert found == ("  cores still held: lab: 16 cores (wfm-1, wfm-2); far: 1 core (wfm-3); "
                     "waiting: 2 jobs of pilots in batch queues\n  give them back: windfall site drain SITE --now")
    assert departure.holders(Pilots(("local", 2, "local-1", None))) == ""


def test_a_paused_bag_says_so(windfall):
    bag = windfall.json("submit", "sleep 30", "--cores", "1000")["bag"]
    windfall("pause", bag)
    process = windfall.start("wait", bag)
    assert f"paused: windfall unpause {bag}" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    windfall("cancel", bag)


def test_logs_of_a_task_that_wrote_nothing_or_never_ran(windfall):
    file = windfall.write("e.toml", '[bag]\nname = "e"\ncommand = "exit 4"\n[task]\nretries = 0\n'
                                    '[targets.x]\ncommand = "p"\nafter = ["main"]\n')
    assert windfall("run", file).returncode == 1
    assert windfall("logs", "e", "0").stderr == "task 0 wrote nothing; failed: exit 4\n"
    done = windfall("logs", "e", "1")
    assert (done.returncode, done.stderr) == (1, "task 1 never ran: cancelled (a task that it waits for failed)\n")
    assert windfall.json("logs", "e", "1", code=1)["state"] == "cancelled"
    assert windfall("logs", "e", "2").returncode == 2


def test_rm_refuses_a_bag_that_has_not_ended(windfall):
    bag = windfall.json("submit", "sleep 30", "--cores", "1000")["bag"]
    done = windfall("rm", bag)
    assert (done.returncode, f"windfall cancel {bag}" in done.stderr) == (3, True)
    windfall("cancel", bag)
    assert windfall.json("rm", bag) == {"bags": [bag], "removed": True, "freed": 0}
    assert windfall("show", bag).returncode == 2


def test_run_counts_files_in_the_directory_that_are_not_its_own(windfall):
    (windfall.folder / "st.results").mkdir()
    (windfall.folder / "st.results" / "old").touch()
    done = windfall("run", "touch f", "--output", "f", "--name", "st")
    assert "st.results/ also holds 1 file that is not from this bag" in done.stderr


def test_parameters_named_like_columns_get_a_prefix():
    def titles(*parameters, captured=()):
        names = Names(list(parameters), list(captured))
        return [*names.parameters.values(), *names.captured.values()]

    assert titles("x", "task", "state", "memory") == ["x", "param_task", "param_state", "param_memory"]
    assert titles("task", "param_task") == ["param_param_task", "param_task"]
    assert titles("x", "value_x", captured=["x", "wall"]) == ["x", "param_value_x", "value_x", "value_wall"]


@pytest.mark.parametrize(("option", "hint"), [
    (["--retries", "1"], "put retries = 1 under [task]"),
    (["--memory", "2GB"], 'put memory = "2GB" under [task]'),
    (["--sweep", "x=1..3"], 'put x = "1..3" under [sweep]'),
])
def test_option_beside_a_bag_file_is_refused_with_its_line_for_the_file(alone, option, hint):
    done = alone("run", "x.toml", *option)
    assert (done.returncode, hint in done.stderr) == (2, True)


@pytest.mark.parametrize("command", [["ls"], ["serve"]])
def test_home_that_cannot_be_made_is_refused_with_a_hint(alone, command):
    done = alone(*command, WINDFALL_HOME="/proc/nowhere")
    assert (done.returncode, "choose another with WINDFALL_HOME" in done.stderr) == (2, True)


def test_ls_shows_the_latest_twenty(alone):
    for n in range(21):
        assert alone("submit", "p", "--name", f"n{n}").returncode == 0
    done = alone("ls")
    assert len(done.stdout.splitlines()) == 21 and "1 older" in done.stderr
    assert len(alone("ls", "--all").stdout.splitlines()) == 22
    assert len(alone.json("ls")) == 21


def test_terminal_without_a_size_counts_as_80_columns():
    controller, terminal = pty.openpty()
    code = "from windfall.cli.watch.progress import columns; print(columns())"
    done = subprocess.run([sys.executable, "-c", code], stderr=terminal, stdout=subprocess.PIPE, text=True, check=True,
                          env=environment("/nowhere"))
    os.close(controller), os.close(terminal)
    assert done.stdout == "80\n"


def test_pilot_is_saved_as_one_file_that_runs(alone):
    assert alone("pilot", "--save", "p.pyz").returncode == 0
    command = [sys.executable, alone.folder / "p.pyz", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: windfall-pilot")
    assert alone("pilot", "--save").returncode == 2


def test_a_client_without_a_server_fails_at_once(tmp_path):
    from time import monotonic

    from windfall import Client

    started = monotonic()
    with pytest.raises(NoServer) as caught:
        Client({"server": f"unix:{tmp_path}/socket", "token": "t"}).bags()
    assert monotonic() - started < 1 and "windfall serve --pilot" in caught.value.hint


def test_a_range_of_tasks_the_wrong_way_round_is_refused(windfall):
    done = windfall("retry", "1", "5..1")
    said = done.stderr
    assert done.returncode == 2 and "'5..1' is not a range of task numbers" in said and "1..5" in said


@pytest.mark.parametrize(("words", "said"), [
    (["run", "--swep", "x=1..3", "p {x}"], "there is no option '--swep'\n  hint: did you mean '--sweep'?"),
    (["run", "--cpus", "3", "p"], "there is no option '--cpus'\n  hint: did you mean '--cores'?"),
    (["run", "--memry=2GB", "p"], "there is no option '--memry'\n  hint: did you mean '--memory'?"),
    (["site", "lst"], "did you mean 'ls'?"),
    (["ls", "7"], "'7' is one argument too many"),
    (["pilot", "--tiket", "t"], "there is no option --tiket\n  hint: did you mean --ticket?"),
])
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(alone, words, said):
    done = alone(*words)
    assert done.returncode == 2 and said in done.stderr, done.stderr
