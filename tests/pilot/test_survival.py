"""Killed and stopped processes: no process is left running, and no outcome is guessed."""

import os
import signal
import time

import pytest
from harness import alive, children, wait_until

from windfall.pilot.run import proctree

TREE = "echo $$ > {0}/a$$; (setsid sleep 60 & echo $! > {0}/b$$); env -i sleep 60 & echo $! > {0}/c$$; sleep 60"


def start_trees(server, launch, folder, count=2):
    pilot = launch("--cores", str(count))
    server.submit(*[[i, TREE.format(folder)] for i in range(1, count + 1)])
    wait_until(lambda: len(pids(folder)) == 3 * count)
    return pilot


def pids(folder):
    return [int(p.read_text()) for p in folder.iterdir() if p.name[0] in "abc" and p.read_text().strip()]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pids").mkdir()
    return tmp_path / "pids"


def assert_gone(pilot, family, folder):
    wait_until(lambda: not any(alive(pid) for pid in pids(folder) + family))


@pytest.mark.parametrize("victims", ["guardian", "agent", "agent+spawners", "guardian+agent", "guardian+spawners"])
def test_killed_pilot_leaves_no_process(server, launch, folder, victims):
    pilot = start_trees(server, launch, folder)
    agent, spawners = pilot.agent(), pilot.spawners()
    doomed = {"guardian": [pilot.pid], "agent": [agent], "spawners": spawners}
    for name in victims.split("+"):
        for pid in doomed[name]:
            os.kill(pid, signal.SIGKILL)
    assert_gone(pilot, [agent] + spawners, folder)
    pilot.wait()


def test_killed_spawner_is_replaced(server, launch, folder):
    pilot = start_trees(server, launch, folder)
    for pid in pilot.spawners():
        os.kill(pid, signal.SIGKILL)
    for i in (1, 2):
        assert (server.result(i)["o"], server.result(i)["why"]) == ("returned", "gone")
    assert_gone(pilot, [], folder)
    server.submit(*[[i, "echo again"] for i in range(10, 40)])
    for i in range(10, 40):
        assert server.result(i)["out"] == "again\n"


def test_tasks_a_killed_spawner_had_not_started_run_elsewhere(server, launch):
    pilot = launch("--cores", "1")
    server.submit(*[[i, "true"] for i in range(1, 50)])
    server.result(49)
    server.submit([100, "sleep 600"], *[[i, f"echo {i}"] for i in range(101, 120)])
    server.wait_started(100)
    os.kill(pilot.spawners()[0], signal.SIGKILL)
    assert server.result(100)["why"] == "gone"
    for i in range(101, 120):
        assert server.result(i)["out"] == f"{i}\n"


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_stopped_tasks_are_killed_with_the_pilot(server, launch, folder):
    pilot = launch("--cores", "1")
    server.submit([1, f"echo $$ > {folder}/a; kill -STOP $$; sleep 60"], grace=300)
    wait_until(lambda: len(pids(folder)) == 1)
    wait_until(lambda: state(pids(folder)[0]) == "T")
    assert pilot.stop() == 0
    assert not alive(pids(folder)[0])


def test_spawner_stopped_by_its_task_is_continued(server, launch):
    pilot = launch("--cores", "1")
    server.submit([1, "kill -STOP $PPID; echo stopped"], [2, "echo next"])
    server.submit([3, "kill -STOP $PPID; sleep 60"], time=500, grace=100)
    assert server.result(1)["out"] == "stopped\n" and server.result(2)["out"] == "next\n"
    assert server.result(3)["why"] == "time" and "continued" in pilot.text()


def test_many_left_processes_are_found_in_one_snapshot(monkeypatch):
    """The table of processes is read once, however many processes were left."""
    looks, killed = [], []
    table = {pid: (1 if pid < 900 else pid - 500, pid, pid, 0) for pid in range(100, 1300)}
    monkeypatch.setattr(proctree, "snapshot", lambda: looks.append(1) or table)
    monkeypatch.setattr(proctree, "send", lambda pid, number: killed.append(pid))
    proctree.signal_trees(range(100, 900), signal.SIGKILL)
    assert killed == list(range(100, 1300)) and len(looks) == 1


def test_eight_hundred_left_processes_are_killed(server, launch):
    launch("--cores", "1")
    bomb = "import os, time\nfor i in range(800):\n  if not os.fork(): os.setsid(), time.sleep(60)\nprint('all')"
    server.submit([1, ["python3", "-c", bomb]])
    server.submit([2, "echo next"])
    assert server.result(1, 60)["out"] == "all\n" and server.result(2, 60)["out"] == "next\n"
    wait_until(lambda: not any(name.isdigit() and b"range(800)" in _command(name) for name in os.listdir("/proc")))


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_random_kills_neither_lose_nor_repeat_tasks(server, launch, tmp_path):
    """Spawners die at random while short tasks run: each attempt begins once and ends once, and none is guessed."""
    pilot = launch("--cores", "2")
    log = tmp_path / "log"
    wait_until(lambda: server.requests)
    server.submit(*[[i, f"echo {i}; echo {i} >> {log}"] for i in range(1, 1501)])
    for _ in range(8):
        time.sleep(0.05)
        living = pilot.spawners()
        if living:
            try:
                os.kill(living[-1], signal.SIGKILL)
            except ProcessLookupError:
                pass
    server.wait_for(lambda: len(server.reports) == 1500)
    for attempt, reports in server.reports.items():
        assert all(r == reports[0] for r in reports)
        report = reports[0]
        assert report.get("why") == "gone" or report["out"] == f"{attempt}\n"
    ran = log.read_text().split()
    assert len(ran) == len(set(ran))
    gone = [a for a, r in server.reports.items() if r[0].get("why") == "gone"]
    assert len(gone) <= 8 * 40 and len(ran) + len(gone) >= 1500


def test_scratch_of_a_killed_pilot_is_cleared_by_the_next(server, launch):
    pilot = launch("--cores", "1")
    server.submit([1, "touch rubbish; sleep 60"])
    server.wait_started(1)
    agent = pilot.agent()
    for pid in (pilot.pid, agent):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(agent))
    old = os.listdir(pilot.dir)
    assert old
    launch("--idle", "0.5").wait()
    wait_until(lambda: os.listdir(pilot.dir) == [])


def killed_whole(pilot):
    agent = pilot.agent()
    processes = [pilot.pid, agent, *children(agent)]
    for pid in processes[:2]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in processes[1:]))


def test_directory_of_a_pilot_that_was_killed_whole_is_removed_by_the_next(server, launch, tmp_path):
    env = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    (tmp_path / "scratch").mkdir()
    pilot = launch("--cores", "1", env=env)
    server.submit([1, "touch rubbish; sleep 60"])
    server.wait_started(1)
    killed_whole(pilot)
    assert len(os.listdir(env["TMPDIR"])) == 1
    launch("--idle", "2", env=env, nonce="n2").wait()
    wait_until(lambda: os.listdir(env["TMPDIR"]) == [])


def test_directories_of_living_pilots_other_hosts_and_undelivered_results_stay(server, launch, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = {**os.environ, "TMPDIR": str(scratch)}
    living = launch("--cores", "1", env=env)
    server.submit([1, "sleep 60"])
    server.wait_started(1)
    here = os.uname().nodename
    for name, host, more in (("elsewhere", "another-" + here, "cache"), ("undelivered", here, "outbox")):
        run = scratch / ("windfall-pilot-" + name) / "run-1"
        run.mkdir(parents=True)
        (run / ".host").write_text(host)
        (run.parent / more).mkdir()
    (scratch / "windfall-pilot-link").symlink_to(tmp_path)
    kept = sorted(os.listdir(scratch))
    next_one = launch("--idle", "2", env=env, nonce="n2")
    next_one.wait()
    wait_until(lambda: sorted(os.listdir(scratch)) == kept)
    assert living.process.poll() is None
