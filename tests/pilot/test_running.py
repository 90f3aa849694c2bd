"""Running tasks: outcomes, output, limits, left processes.  Real processes, a scripted server."""

import base64
import os
import signal
import time

import psutil
import pytest
from harness import Gate, alive, children, wait_until

from windfall.pilot.run.capture import GAP


@pytest.fixture
def one(server, launch):
    """Run a single task and return its report."""
    launch("--idle", "30")
    numbers = iter(range(1, 10000))

    def run(command, extra=None, timeout=60.0, **spec):
        number = next(numbers)
        server.submit([number, command, extra] if extra else [number, command], **spec)
        return server.result(number, timeout)

    return run


def test_report_of_a_success_has_output_and_usage(one):
    report = one(["/bin/sh", "-c", "echo out; echo err >&2"])
    assert report.get("o", "succeeded") == "succeeded" and report["exit"] == 0
    assert report["out"] == "out\n" and report["err"] == "err\n" and report["out_size"] == 4
    assert report["rss"] > 0 and report["wall"] >= 0 and report["t1"] >= report["t0"] > 1.5e12


def test_cpu_and_memory_are_measured(one):
    report = one(["python3", "-c", "x = bytearray(60 << 20)\nfor i in range(3000000): pass"])
    assert report["cpu"] >= 50 and report["rss"] > 60 << 20


def test_bad_exit_fails(one):
    report = one("exit 7")
    assert (report["o"], report["why"], report["exit"]) == ("failed", "exit", 7)


def test_signal_is_named(one):
    report = one("kill -SEGV $$")
    assert (report["o"], report["why"], report["signal"]) == ("failed", "signal", signal.SIGSEGV)
    assert "SIGSEGV" in report["note"]


def test_missing_command_names_command_and_path(one):
    report = one(["no-such-command-anywhere"])
    assert (report["o"], report["why"]) == ("failed", "start")
    assert "no-such-command-anywhere" in report["note"] and "PATH" in report["note"] and "/bin" in report["note"]


@pytest.mark.parametrize("command", [["bin/prog", "1"], "bin/prog 1 | cat >&2; exit 127", "./prog>out"])
def test_program_missing_from_the_own_directory_says_what_to_do(one, command):
    report = one(command)
    assert (report["o"], report["why"]) == ("failed", "program")
    assert "directory of its own" in report["note"] and "--input" in report["note"] and "absolute" in report["note"]


def test_input_that_is_not_executable_says_what_to_do(server, launch):
    launch()
    script = ["prog", server.blob(b"echo here"), 9, 0o644]
    server.submit([1, ["./prog"]], [2, "./prog"], inputs=[script])
    for attempt in (1, 2):
        report = server.result(attempt)
        assert (report["why"], "chmod +x" in report["note"]) == ("program", True), report


@pytest.mark.parametrize("command", ["exit 127", "cd /tmp; bin/prog", "{ bin/prog; }", "/bin/prog-nowhere"])
def test_shell_that_finds_no_program_may_find_it_on_another_host(one, command):
    assert one(command)["why"] == "exit"


def test_missing_interpreter_may_be_on_another_host(server, launch):
    launch()
    server.submit([1, ["./prog"]], inputs=[["prog", server.blob(b"#!/no/interpreter\n"), 18, 0o755]])
    assert server.result(1)["why"] == "start"


def test_file_that_is_not_executable_fails_to_start(one):
    report = one(["/etc/passwd"])
    assert (report["o"], report["why"]) == ("failed", "start")


@pytest.mark.parametrize("command", [[], ["nul\0byte"], [""], "echo \0", None, 7, [1, 2], ["echo", None]])
def test_malformed_commands_fail_to_start(one, command):
    assert (one(command)["o"], one(command)["why"]) == ("failed", "start")
    assert one("echo fine")["out"] == "fine\n"


@pytest.mark.parametrize("spec", [{"environment": {"A=B": "c"}}, {"time": "soon"}, {"environment": [1]}, {"keep": "x"}])
def test_malformed_specs_fail_to_start(one, spec):
    assert (one("true", **spec)["o"], one("true", **spec)["why"]) == ("failed", "start")
    assert one("echo fine")["out"] == "fine\n"


def test_malformed_checks_fail_the_task(one):
    assert one("true", check={"exit": 5})["why"] == "output" and one("true", check=[1])["why"] == "output"
    assert one("true", check={"match": "("})["why"] == "output" and one("true", check={"file": [1]})["why"] == "output"


def test_script_without_interpreter_line_runs(one, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo plain $1\n")
    script.chmod(0o755)
    assert one([str(script), "x"])["out"] == "plain x\n"


def test_task_gets_environment_and_setup_lines(one, monkeypatch):
    report = one(["sh", "-c", "echo $A $B $0"], setup=["B=set", "export B"], environment={"A": "given"})
    assert report["out"].startswith("given set ")
    assert one("echo $A-$B", {"environment": {"A": "own"}}, setup=["B=2"])["out"] == "own-2\n"


def test_environment_of_a_task_has_no_secret(one):
    text = one("env")["out"]
    assert "token" not in text and "WINDFALL_ATTEMPT=" in text


def test_stdin_of_a_task_is_empty(one):
    assert one("cat; echo end")["out"] == "end\n"


def test_task_gets_its_own_session_and_empty_private_directory(one):
    look = "cut -d' ' -f6 /proc/$$/stat; echo $$; ls -A | wc -l; stat -c %a ."
    dirty = "touch junk; mkdir -p d/e; ln -s / root"
    first = one(["sh", "-c", look + ";" + dirty])
    sid, pid, entries, mode = first["out"].split()
    assert sid == pid and entries == "0" and mode == "700"
    for _ in range(4):
        assert "out" not in one("ls -A")


def test_directory_that_a_task_removed_or_locked_is_replaced(one):
    assert one("rmdir $PWD")["exit"] == 0
    assert one("touch x; chmod 000 .")["exit"] == 0
    for _ in range(4):
        assert one("touch y && ls")["out"] == "y\n"


def test_output_that_is_not_utf8_travels_as_base64(one):
    report = one(["printf", r"\377\376abc"])
    assert base64.b64decode(report["out64"]) == b"\xff\xfeabc" and "out" not in report


def test_long_output_keeps_both_ends(one):
    report = one("echo first; seq 1 20000; echo last >&1")
    assert report["out"].startswith("first\n") and report["out"].endswith("last\n")
    gap = GAP.format(report["out_size"] - 16384)
    assert len(report["out"]) == 16384 + len(gap) and gap in report["out"] and report["out_size"] > 100000
    short = one("seq 1 20000", keep=10)
    assert short["out"] == "1\n2\n3\n4\n5\n" + GAP.format(short["out_size"] - 20) + "999\n20000\n"


def test_cut_output_has_no_half_characters(one):
    report = one(["python3", "-c", "import sys; sys.stdout.buffer.write('ä€😀'.encode() * 20000)"])
    head, _, tail = report["out"].replace("]\n", "[").split("[")
    assert set(head.strip() + tail) == set("ä€😀")


def test_300_megabytes_of_output_are_cut(one):
    report = one("head -c 300000000 /dev/zero", timeout=120)
    assert report["out_size"] == 300000000 and len(report["out"]) == 16384 + len(GAP.format(300000000 - 16384))


def test_nonblocking_pipe_is_not_passed_on(one):
    one(["python3", "-c", "import os; os.set_blocking(1, False)"])
    for _ in range(3):
        assert one(["python3", "-c", "import os; print(os.get_blocking(1))"])["out"] == "True\n"


def test_task_over_its_time_limit_is_ended(one):
    report = one("echo begun; sleep 600", time=2000, grace=200)
    assert (report["o"], report["why"], report["out"]) == ("failed", "time", "begun\n")
    assert report["wall"] >= 2000


def test_task_that_ignores_sigterm_gets_sigkill(one):
    report = one("trap '' TERM; sleep 600 & while :; do sleep 1; done", time=2000, grace=300)
    assert (report["why"], report["signal"]) == ("time", signal.SIGKILL)


def test_task_can_save_its_state_within_its_grace(one):
    report = one("trap 'echo saved; exit 0' TERM; sleep 600 & wait", time=2000, grace=30000)
    assert (report["o"], report["why"], report["out"]) == ("failed", "time", "saved\n")


def test_task_over_its_memory_limit_is_ended(one):
    report = one(["python3", "-c", "x = bytearray(200 << 20); import time; time.sleep(600)"], memory=50 << 20)
    assert (report["o"], report["why"]) == ("failed", "memory")


def test_task_over_its_disk_limit_is_ended(one):
    report = one("head -c 30000000 /dev/zero > big; sync; sleep 600", disk=10000000)
    assert (report["o"], report["why"]) == ("failed", "disk")


def test_check_of_exit_files_and_output_decides_the_outcome(one):
    assert one("exit 3", check={"exit": [0, 3]}).get("o", "succeeded") == "succeeded"
    report = one("true", check={"file": ["made"]})
    assert (report["o"], report["why"]) == ("failed", "output") and "made" in report["note"]
    assert "o" not in one("touch made", check={"file": ["made"]})
    assert "o" not in one("echo has converged", check={"match": "conv.*d"})
    assert one("echo nothing", check={"match": "conv.*d"})["why"] == "output"


def test_pattern_that_takes_for_ever_is_stopped(one):
    report = one("echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", check={"match": "(a+)+$"})
    assert report["why"] == "output" and "longer" in report["note"]


DAEMON = """
import os, sys, time
said, say = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(say, str(os.getpid()).encode())
        if sys.argv[1:] == ["no environment"]: os.execve("/bin/sleep", ["sleep", "600"], {})
        time.sleep(600)
    os._exit(0)
os.wait()
daemon = os.read(said, 20).decode()
"""
LASTING = DAEMON + """
open(sys.argv[1], "w").write(daemon)
while not os.path.exists(sys.argv[2]): time.sleep(0.02)
"""


@pytest.mark.parametrize("more", [[], ["no environment"]])
def test_task_that_daemonises_leaves_no_process(one, more):
    report = one(["python3", "-c", DAEMON] + more)
    assert report["exit"] == 0
    wait_until(lambda: not alive(int(report["out"])))
    assert one("echo next")["out"] == "next\n"


def test_background_children_are_killed(one):
    report = one("sleep 600 & echo $!; setsid sleep 601 & echo $!")
    for pid in map(int, report["out"].split()):
        wait_until(lambda: not alive(pid))


def test_daemon_of_a_running_task_lives_on(server, launch, gate, tmp_path):
    launch("--cores", "8")  # several slots per spawner
    (tmp_path / "daemons").mkdir()
    notes = [tmp_path / "daemons" / str(i) for i in range(1, 5)]
    server.submit(*[[i, ["python3", "-c", LASTING, str(note), gate.path]] for i, note in enumerate(notes, 1)])
    wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
    server.submit(*[[i, "true"] for i in range(10, 30)])
    for i in range(10, 30):
        server.result(i)
    assert all(alive(int(note.read_text())) for note in notes)
    gate.open()
    for i in range(1, 5):
        pid = int(server.result(i)["out"])
        wait_until(lambda: not alive(pid))


def test_task_that_kills_its_spawner_is_returned(server, launch):
    pilot = launch("--cores", "1")
    server.submit([1, "sleep 60 & echo $!; kill -9 $PPID; sleep 600"], [2, "echo fine"])
    report = server.result(1)
    assert (report["o"], report["why"]) == ("returned", "gone")
    assert server.result(2)["out"] == "fine\n"
    assert not [p for p in children(pilot.agent()) if p not in pilot.spawners()]


def test_spawner_survives_all_other_signals_of_its_task(one):
    assert one("for s in TERM INT HUP USR1 USR2 QUIT PIPE; do kill -$s $PPID; done; echo done")["out"] == "done\n"
    assert one("echo still")["out"] == "still\n"


def test_killed_tasks_do_not_harm_others(server, launch):
    launch("--cores", "4")
    server.submit(*[[i, "kill -9 $$" if i % 5 == 0 else f"echo {i}"] for i in range(1, 101)])
    for i in range(1, 101):
        report = server.result(i)
        assert report.get("why") == "signal" if i % 5 == 0 else report["out"] == f"{i}\n"


def test_tasks_never_use_more_than_the_cores(server, launch, tmp_path, gate):
    launch("--cores", "3")
    log = tmp_path / "log"
    server.submit(*[[i, f"echo + >> {log}; {gate.shell}; sleep 0.03; echo - >> {log}"] for i in range(1, 31)])
    server.submit(*[[i, f"echo ++ >> {log}; sleep 0.03; echo -- >> {log}"] for i in range(31, 41)], cores=2)
    wait_until(lambda: log.exists() and log.read_text().count("+") >= 3)
    gate.open()
    for i in range(1, 41):
        server.result(i)
    level = peak = 0
    for line in log.read_text().split():
        level += len(line) if line[0] == "+" else -len(line)
        peak = max(peak, level)
    assert peak == 3 and level == 0


def test_gpus_are_bound_and_never_shared(server, launch, tmp_path):
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="3,7")
    launch("--cores", "4", env=env)
    server.submit(*[[i, "echo $CUDA_VISIBLE_DEVICES; sleep 0.2"] for i in range(1, 5)], gpus=1)
    server.submit([5, "echo $CUDA_VISIBLE_DEVICES"], gpus=2)
    server.submit([6, "echo none${CUDA_VISIBLE_DEVICES}"])
    seen = [server.result(i)["out"].strip() for i in range(1, 5)]
    assert sorted(seen) == ["3", "3", "7", "7"] and set(seen[:2]) == {"3", "7"}
    assert server.result(5)["out"] == "3,7\n" and server.result(6)["out"] == "none\n"
    assert len(server.enrols[0]["host"]["gpus"]) == 2


def test_pilot_without_gpus_hides_those_of_its_host(server, launch):
    launch("--gpus", "0", env=dict(os.environ, CUDA_VISIBLE_DEVICES="3"))
    server.submit([1, "echo none${CUDA_VISIBLE_DEVICES}"])
    assert server.result(1)["out"] == "none\n"


def test_task_that_can_never_fit_is_returned(server, launch):
    launch("--cores", "2", "--memory", "1000000000")
    server.submit([1, "true"], cores=3)
    server.submit([2, "true"], memory=2000000000)
    server.submit([3, "true"])
    for i in (1, 2):
        assert (server.result(i)["o"], server.result(i)["why"]) == ("returned", "refused")
    assert server.result(3)["exit"] == 0


def test_tasks_staged_behind_a_long_one_run_elsewhere(server, launch, gate):
    launch("--cores", "2")
    server.submit(*[[i, "true"] for i in range(1, 101)])
    server.result(100)
    server.submit([101, gate.shell], *[[i, "sleep 0.01"] for i in range(102, 200)])
    for i in range(102, 200):
        server.result(i)
    assert 101 not in server.reports
    gate.open()
    assert server.result(101)["exit"] == 0


def test_task_without_a_scratch_directory_fails(server, launch):
    pilot = launch("--cores", "1")
    wait_until(lambda: os.path.isdir(pilot.dir) and os.listdir(pilot.dir))
    run = os.path.join(pilot.dir, [n for n in os.listdir(pilot.dir) if n.startswith("run-")][0])
    wait_until(lambda: os.path.isdir(run + "/w1"))
    os.rename(run + "/w1", run + "/gone")
    server.submit([1, "true"])
    assert server.result(1)["o"] == "failed"
    os.rename(run + "/gone", run + "/w1")
    server.submit([2, "true"])
    assert server.result(2)["exit"] == 0


def test_time_limit_of_months_works(one):
    assert one(["true"], time=90 * 86_400_000)["exit"] == 0


def test_check_of_a_file_outside_the_directory_fails(one):
    report = one(["true"], check={"file": ["/etc/passwd"]})
    assert report["why"] == "output" and "leads out" in report["note"]


def test_idle_pilot_uses_no_processor_time(server, launch):
    """Checks of a task's limits end with the task."""
    pilot = launch("--cores", "1")
    server.submit([1, "sleep 1.5"], memory=100000000, time=60000, disk=100000000)
    server.result(1)
    family = [psutil.Process(pilot.process.pid)]
    family += family[0].children(recursive=True)
    before = sum(sum(each.cpu_times()[:2]) for each in family)
    time.sleep(2)
    used = sum(sum(each.cpu_times()[:2]) for each in family) - before
    assert used < 1.0, "two seconds of a loop that spins would be two"


def test_recalled_tasks_that_wait_at_a_spawner_are_returned(server, launch):
    gate = Gate(server.folder)
    launch("--cores", "1")
    server.submit(*[[i, "true"] for i in range(1, 50)])
    server.result(49)
    server.submit([100, gate.shell], *[[i, f"echo {i}"] for i in range(101, 120)])
    server.wait_started(100)
    server.say(recall=list(range(101, 110)))
    for i in range(101, 110):
        assert (server.result(i)["o"], server.result(i)["why"]) == ("returned", "recall")
    gate.open()
    assert [server.result(i)["out"] for i in range(110, 120)] == [f"{i}\n" for i in range(110, 120)]
