"""Modules and containers.  Shell scripts replace the hosts' tools, and write down how they were called."""

import json
import os
import subprocess

import pytest
from harness import wait_until

MODULE = """
module() {
  if [ "$2" = broken ]; then echo "no module $2 here" >&2; return 1; fi
  LOADED="$LOADED $2"; export LOADED
}
"""
# Writes its arguments down, then runs what comes after the image.
RUNTIME = """#!/bin/sh
python3 -c 'import json, sys; open("{log}", "a").write(json.dumps(sys.argv[1:]) + chr(10))' {name} "$@"
if [ "$1" = rm ]; then exit 0; fi
while [ "${{1%image:1}}" = "$1" ] && [ "$1" != image.sif ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def tools(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def begin(server, launch, tools):
    def begin(*runtimes, args=(), **env):
        for name in runtimes:
            (tools / name).write_text(RUNTIME.format(log=tools / "log", name=name))
            (tools / name).chmod(0o755)
        path = str(tools) + ":/usr/bin:/bin"
        return launch("--cores", "1", *args, env=dict(os.environ, PATH=path, **env))
    return begin


def log(tools):
    path = tools / "log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_modules_are_loaded_before_the_command(server, begin, tmp_path):
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "sh").write_text(MODULE)
    begin(MODULESHOME=str(tmp_path))
    server.submit([1, ["sh", "-c", "echo got $LOADED"]], [2, "echo got $LOADED"], modules=["gcc/12", "it's"])
    server.submit([3, "echo $LOADED $SET"], modules=["a"], setup=["SET=up"])
    server.submit([4, "echo never"], modules=["broken"])
    assert server.result(1)["out"] == server.result(2)["out"] == "got gcc/12 it's\n"
    assert server.result(3)["out"] == "a up\n"
    assert (server.result(4)["o"], server.result(4)["why"]) == ("failed", "start")
    assert server.result(4)["note"] == "the modules broken cannot be loaded: no module broken here"


def test_missing_module_command_fails_to_start(server, begin):
    if subprocess.run(["bash", "-lc", "command -v module"], stdout=subprocess.DEVNULL).returncode == 0:
        pytest.skip("this host has modules")
    begin()
    server.submit([1, "echo never"], modules=["gcc"])
    server.submit([2, "exit 197"])
    assert (server.result(1)["why"], server.result(1)["note"]) == ("start", "this host has no module command")
    assert server.result(2)["why"] == "exit"


def test_apptainer_runs_the_command_in_its_image(server, begin, tools):
    begin("apptainer", "docker")
    server.submit([1, ["sh", "-c", "pwd; echo $WORD"]], container="image:1", environment={"WORD": "x"})
    where, word = server.result(1)["out"].split()
    assert word == "x"
    assert log(tools) == [["apptainer", "exec", "--bind", f"{where}:{where}", "--pwd", where, "image:1",
                           "sh", "-c", "pwd; echo $WORD"]]


def test_docker_runs_as_the_user_with_passed_variables(server, begin, tools):
    begin("docker")
    server.submit([1, "echo $SET; cat f"], container="image:1", setup=["SET=up"], environment={"B": "x", "A": "y"},
                  inputs=[["f", server.blob(b"in"), 2, 0o644]])
    assert server.result(1)["out"] == "up\nin"
    argv, = log(tools)
    assert argv[:4] == ["docker", "run", "--rm", "--name"] and argv[4].endswith("-1")
    assert argv[9:11] == ["--user", f"{os.getuid()}:{os.getgid()}"]
    at = argv.index("image:1")
    assert argv[11:at:2] == ["--env"] * 6 and argv[at + 1 :] == ["/bin/sh", "-c", "SET=up\necho $SET; cat f"]
    own = [f"WINDFALL_{name}" for name in ("ATTEMPT", "BAG", "TARGET", "TASK")]
    assert argv[12:at:2] == ["A", "B", *own]


@pytest.mark.parametrize("runtime, words", [
    ("singularity", ["--nv"]), ("podman", ["--device", "nvidia.com/gpu=0"]), ("docker", ["--gpus", '"device=0"'])])
def test_container_gets_the_gpus_of_its_task(server, tools, begin, runtime, words):
    begin(runtime, args=["--gpus", "1"])
    server.submit([1, "true"], container="image:1", gpus=1)
    assert "o" not in server.result(1)
    argv = log(tools)[0]
    assert " ".join(words) in " ".join(argv)


def test_killed_container_is_removed_by_its_name(server, begin, tools):
    begin("docker")
    server.submit([1, "trap '' TERM; sleep 600"], container="image:1", time=3000, grace=200)
    assert server.result(1)["why"] == "time"
    wait_until(lambda: ["docker", "rm", "-f", log(tools)[0][4]] in log(tools))
    server.submit([2, "echo on"])
    assert server.result(2)["out"] == "on\n"


def test_container_is_removed_when_the_pilot_stops(server, begin, tools, tmp_path):
    pilot = begin("podman")
    server.submit([1, f"trap '' TERM; touch {tmp_path}/begun; sleep 600"], container="image:1", grace=300)
    wait_until((tmp_path / "begun").exists)
    assert pilot.stop() == 0
    wait_until(lambda: ["podman", "rm", "-f", log(tools)[0][4]] in log(tools))


@pytest.mark.parametrize("runtime, named", [
    ("apptainer", "docker://image:1"), ("podman", "image:1"), ("docker", "image:1")])
def test_image_of_a_registry_is_named_for_its_runtime(server, begin, tools, runtime, named):
    begin(runtime)
    server.submit([1, ["echo", "in"]], container="docker://image:1")
    assert server.result(1)["out"] == "in\n"
    assert log(tools)[0][-3:] == [named, "echo", "in"]


def test_sif_image_runs_with_singularity(server, begin, tools):
    begin("singularity", "docker")
    server.submit([1, ["echo", "in"]], container="image.sif")
    assert server.result(1)["out"] == "in\n" and log(tools)[0][0] == "singularity"


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_sif_image_is_refused_by_other_runtimes(server, begin, tools, runtime):
    begin(runtime)
    server.submit([1, "echo never"], container="image.sif")
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "start") and log(tools) == []
    assert "image.sif is for apptainer or singularity" in report["note"] and runtime in report["note"]


def test_missing_container_runtime_fails_to_start(server, launch, tools):
    os.symlink("/bin/sh", str(tools / "sh"))
    launch("--cores", "1", env=dict(os.environ, PATH=str(tools)))
    server.submit([1, "echo never"], container="image:1")
    server.submit([2, "echo on"])
    report = server.result(1)
    assert (report["o"], report["why"]) == ("failed", "start")
    name = os.uname().nodename
    assert report["note"] == f"no container runtime on {name} (looked for apptainer, singularity, podman, docker)"
    assert server.result(2)["out"] == "on\n"


def test_call_in_a_container_is_refused(server, begin):
    begin("docker")
    server.submit([1, "gASVAAAA"], kind="call", container="image:1")
    assert server.result(1)["why"] == "start" and "calls" in server.result(1)["note"]
