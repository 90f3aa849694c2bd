"""`windfall simulate` and `windfall experiment`, as processes."""

from __future__ import annotations

import gzip

import pytest

from tests.cli.test_cli_terminal import Terminal
from tests.live.real import CommandLine

JOB = "{} {} 0 {} {} -1 -1 {} {} -1 1 1 1 -1 -1 -1 -1 -1"


@pytest.fixture
def windfall(tmp_path):
    """Needs no server."""
    return CommandLine(tmp_path / "home", tmp_path)


def log(*jobs):
    """(submit, run, procs, estimate) each."""
    lines = [JOB.format(n, submit, run, procs, procs, ask) for n, (submit, run, procs, ask) in enumerate(jobs, 1)]
    return "; Version: 2.2\n; MaxProcs: 10\n" + "\n".join(lines) + "\n"


# The second job waits for the first; the third may pass it, if the queue backfills.
THREE = log((0, 100, 8, 100), (10, 50, 8, 50), (20, 30, 2, 30))


def test_log_of_jobs_waits_by_the_discipline_of_its_queue(windfall):
    windfall.write("log.swf", THREE)
    easy = windfall.json("simulate", "--swf", "log.swf", "--procs", 10, "--discipline", "easy")
    assert (easy["jobs"], easy["mean_wait"]) == (3, 30.0)  # 0, 90, 0
    assert easy["mean_bounded_slowdown"] == pytest.approx((1 + 140 / 50 + 1) / 3)
    fcfs = windfall.json("simulate", "--swf", "log.swf", "--discipline", "fcfs")
    assert (fcfs["procs"], fcfs["mean_wait"]) == (10, pytest.approx((0 + 90 + 80) / 3))


def test_gzipped_log_is_summed_up_for_people(windfall):
    windfall.write("log.swf.gz", gzip.compress(THREE.encode()))
    done = windfall("simulate", "--swf", "log.swf.gz")
    assert done.returncode == 0 and "3 jobs on 10 processors, easy" in done.stdout and "30.00 s" in done.stdout


def test_every_wait_of_a_log_is_written_to_a_folder(windfall, tmp_path):
    windfall.write("log.swf", THREE)
    assert windfall.json("simulate", "--swf", "log.swf", "-o", "deep/out")["waits"] == "deep/out/waits.csv"
    lines = (tmp_path / "deep" / "out" / "waits.csv").read_text().splitlines()
    assert lines == ["job,submitted,wait,started,ended,run,procs,bounded_slowdown", "1,0,0,0,100,100,8,1.000000",
                     "2,10,90,100,150,50,8,2.800000", "3,20,0,20,50,30,2,1.000000"]
    windfall.write("file", "")
    done = windfall("simulate", "--swf", "log.swf", "-o", "file")
    assert done.returncode == 2 and "cannot write file/waits.csv" in done.stderr


@pytest.mark.parametrize(("text", "says"), [
    (THREE + "4 30 broken\n", "log.swf:6: a line of SWF has 18 numbers, this has 3"),
    (log((0, 100, 12, 100)), "job 1 of the log asks for 12 processors, the machine has 10"),
    (THREE.replace("; MaxProcs: 10\n", ""), "does not say how many processors"),
    ("; MaxProcs: 4\n", "no jobs that ran"),
])  # fmt: skip
def test_impossible_log_of_jobs_is_refused(windfall, text, says):
    windfall.write("log.swf", text)
    done = windfall("simulate", "--swf", "log.swf")
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


def test_simulate_without_an_input_is_refused(windfall):
    assert windfall("simulate").returncode == 2
    missing = windfall("simulate", "--swf", "nowhere.swf", "--procs", 3)
    assert missing.returncode == 2 and "nowhere.swf" in missing.stderr


# --- experiments ---------------------------------------------------------------------------------------------------


def test_the_studies_are_listed(windfall):
    listed = windfall.json("experiment", "--list")
    assert {"s-f1", "s-t2", "t-2.3", "t-6.18", "a-f5", "g-r", "y-t1"} <= {each["id"] for each in listed}
    assert not any(each["here"] for each in listed if each["id"][0] in "ay")
    lines = windfall("experiment", "--list").stdout.splitlines()
    assert len(lines) == len(listed) and all(each["title"] in line for each, line in zip(listed, lines, strict=True))
    assert [("not there yet" in line) for line in lines] == [not each["here"] for each in listed]


@pytest.mark.parametrize(("arguments", "says"), [
    (("s-f3",), "did you mean s-f"),
    (("y-t1",), "not there yet"),
    (("quicksort",), "--list"),
    ((), "which experiment"),
    (("s-f1", "--seeds", 0), "--seeds must be from 1 to 100,000, not 0"),
])  # fmt: skip
def test_unknown_study_and_number_of_seeds_are_refused(windfall, arguments, says):
    done = windfall("experiment", *arguments)
    assert done.returncode == 2 and says in done.stderr


# --- scenarios -----------------------------------------------------------------------------------------------------

LAB = '[hosts.lab]\ncount = 4\nspeed = "uniform(1, 2)"\n[bags.main]\ntasks = 40\nduration = "exponential(5min)"\n'


def test_a_scenario_is_played_and_drawn(windfall):
    windfall.write("lab.toml", LAB)
    done = windfall("simulate", "lab.toml", "-o", "out")
    assert done.returncode == 0 and "40/40" in done.stdout and "tables and plots are in out" in done.stdout
    assert (windfall.folder / "out" / "gantt.png").read_bytes().startswith(b"\x89PNG")
    first = windfall.json("simulate", "lab.toml")
    again = windfall.json("simulate", "lab.toml", "--seed", 1)
    assert first == again and first["runs"][0]["finished"] and first["runs"][0]["bags"][0]["accepted"] == 40


def test_several_seeds_give_one_run_each(windfall):
    windfall.write("lab.toml", LAB)
    found = windfall.json("simulate", "lab.toml", "--seeds", 3, "--seed", 5, "-o", "out")
    assert [run["seed"] for run in found["runs"]] == [5, 6, 7]
    assert len({run["bags"][0]["wall_clock"] for run in found["runs"]}) == 3
    assert (windfall.folder / "out" / "seed-6" / "attempts.csv").exists()
    assert "makespan" in windfall("simulate", "lab.toml", "--seeds", 2).stdout


def test_a_scenario_that_does_not_end_in_time_says_so(windfall):
    windfall.write("lab.toml", 'until = "1min"\n' + LAB)
    done = windfall("simulate", "lab.toml")
    assert done.returncode == 1 and "not everything had ended after 1m00s" in done.stdout


@pytest.mark.parametrize(("text", "says"), [
    (LAB.replace("count = 4", "count = -4"), "lab.toml:2: count must be 1 or more, not -4"),
    ("", "lab.toml: the scenario has no bag"),
    (LAB.encode() + b"\xff", "lab.toml:7: the scenario is not UTF-8 text"),
])  # fmt: skip
def test_a_bad_scenario_is_refused_where_it_is_bad(windfall, text, says):
    windfall.write("lab.toml", text)
    done = windfall("simulate", "lab.toml")
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


def test_long_simulation_shows_its_progress_on_a_terminal(windfall):
    """Ctrl-C ends it."""
    windfall.write("long.toml", '[hosts.lab]\ncount = 50\n[bags.main]\ntasks = 1000000\nduration = "5min"\n')
    line = Terminal(windfall, "simulate", "long.toml")
    line.until("/1,000,000 tasks")
    assert "long: 1,000,000 tasks, 1 run" in line.seen
    line.type("\x03")
    assert line.end() == 130


def test_simulate_prints_no_control_codes_without_a_terminal(windfall):
    windfall.write("lab.toml", LAB)
    done = windfall("simulate", "lab.toml")
    assert "\x1b" not in done.stdout + done.stderr and "\r" not in done.stderr
