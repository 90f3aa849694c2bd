"""Predecessors: a pilot tells whether a process of a pilot that ran on its host before is left."""

import os
import shutil
import signal
import subprocess
import tempfile

import pytest
from harness import alive, wait_until
from test_links import run_as_plain_user

from windfall.pilot import host
from windfall.pilot.run import predecessors, proctree


def started(server, launch):
    """Start a pilot with a task; return the pilot, its life, its own processes and the task's."""
    pilot = launch("--cores", "1")
    server.submit([1, f"echo $$ > {server.folder}/pid; exec sleep 60"])
    wait_until(lambda: os.path.exists(server.folder + "/pid") and open(server.folder + "/pid").read().strip())
    task = int(open(server.folder + "/pid").read())
    return pilot, server.enrols[-1]["host"]["life"], [pilot.pid, pilot.agent(), *pilot.spawners()], task


def kill(pilot, *pids):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # none of them clears up after another
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    if pilot.pid in pids:
        pilot.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids))


def test_later_pilot_tells_when_no_process_of_its_predecessor_is_left(server, launch):
    pilot, life, own, task = started(server, launch)
    later = launch("--cores", "1")
    server.wait_for(lambda: len(server.enrols) == 2)
    assert server.enrols[-1]["host"]["life"] not in ("", life)
    kill(pilot, *own)
    assert not predecessors.is_dead(life), "its task runs on"
    kill(pilot, task)

    def told():
        server.extra.setdefault("look", [life])  # the server asks in each answer until it is told
        return any(life in request.get("dead", ()) for request in server.requests)

    server.wait_for(told)
    later.end()


def test_living_pilot_is_not_dead_whichever_of_its_processes_is_left(server, launch):
    pilot, life, own, task = started(server, launch)
    assert not predecessors.is_dead(life)
    guardian, agent, spawner = own
    os.kill(spawner, signal.SIGSTOP)
    kill(pilot, guardian, agent, task)
    assert not predecessors.is_dead(life), "a spawner that is stopped may go on"
    kill(pilot, spawner)
    assert predecessors.is_dead(life)


def test_process_that_has_ended_and_was_not_reaped_is_dead():
    mark = os.urandom(8).hex()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        predecessors.take_name(mark)
        os.write(writer, predecessors.life(mark).encode())
        os._exit(0)
    life = os.read(reader, 100).decode()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert life.endswith(":" + mark) and predecessors.is_dead(life)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_task_whose_program_may_not_be_read_keeps_its_pilot_from_being_dead():
    folder = tempfile.mkdtemp()
    program = shutil.copy("/bin/sleep", folder)
    os.chmod(folder, 0o755)
    os.chmod(program, 0o711)

    def check(_):
        before = int(proctree.stat_of("self")[3])
        child = subprocess.Popen([program, "60"])
        space = predecessors._pid_namespace()
        try:
            assert not predecessors.is_dead(f"{space}.{before}:{os.urandom(8).hex()}"), "it may be a task's"
            assert predecessors.is_dead(f"{space}.{1 << 62}:{os.urandom(8).hex()}"), "it is older than the pilot"
        finally:
            child.kill()
            child.wait()

    try:
        run_as_plain_user(check)
    finally:
        shutil.rmtree(folder)


def test_life_that_cannot_be_seen_from_here_is_not_dead():
    space = predecessors.life("") or predecessors._pid_namespace()
    for life in ("", ":", "1:" + "ab" * 8, "nonsense", space + ":"):
        assert not predecessors.is_dead(life)


def test_process_without_the_pilots_name_has_no_life():
    assert predecessors.life(os.urandom(8).hex()) == ""


def test_seeker_delivers_what_is_left_and_looks_twice_before_it_tells():
    delivered = []
    seeker = predecessors.Seeker(lambda: delivered.append(1))
    life = f"{predecessors._pid_namespace()}.{1 << 62}:{os.urandom(8).hex()}"
    assert seeker.look([life], False) == [] and delivered == [1]
    assert seeker.look([life], True) == [] and delivered == [1]
    assert seeker.look([life], False) == [life]
    assert seeker.look(["1:other"], False) == [] and delivered == [1]


def test_hardware_of_a_host_is_the_same_each_time():
    assert host.hardware() == host.hardware() and len(host.hardware()) in (0, 32)
