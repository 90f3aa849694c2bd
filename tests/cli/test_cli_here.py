"""`windfall retry BAG TASK --here`: all that a pilot would do for a task's surroundings, done here."""

import json
import os
import sys
import venv

from windfall.cli.retry_here import left_out

MODULE = 'module() {\n  if [ "$2" = broken ]; then return 1; fi\n  LOADED="$LOADED $2"; export LOADED\n}\n'
RUNTIME = """#!/bin/sh
if [ "$1" = rm ]; then exit 0; fi
echo "in a container: $1 $2"
while [ "$1" != image:1 ]; do shift; done
shift
exec "$@"
"""


def bag(windfall, name, task, command="exit 1", more=""):
    text = f"[bag]\nname = \"{name}\"\ncommand = '''{command}'''\n[task]\nretries = 0\n{task}\n{more}"
    return windfall.write(f"{name}.toml", text)


def here(windfall, *arguments, **env):
    return windfall("retry", *arguments, "--here", **env)


def test_retry_here_loads_the_modules_of_a_task(windfall, tmp_path):
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "sh").write_text(MODULE)
    text = bag(windfall, "moduled", 'modules = ["gcc/12", "fftw"]\ntime = "1min"', "echo got $LOADED")
    windfall("run", text, timeout=60)
    done = here(windfall, "moduled", "0", MODULESHOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "got gcc/12 fftw\n"), done.stderr
    assert "left out here: time limit" in done.stderr
    windfall("run", bag(windfall, "broken", 'modules = ["broken"]'), timeout=60)
    done = here(windfall, "broken", "0", MODULESHOME=str(tmp_path))
    assert (done.returncode, "the modules broken cannot be loaded" in done.stderr) == (1, True), done.stderr


def test_retry_here_uses_the_container_of_a_task(windfall, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "podman").write_text(RUNTIME)
    (tmp_path / "bin" / "podman").chmod(0o755)
    number = windfall("submit", bag(windfall, "boxed", 'container = "image:1"\nsetup = ["W=world"]', "echo hi $W"))
    number = number.stdout.strip()
    path = os.environ["PATH"]
    try:
        done = here(windfall, number, "0", PATH=f"{tmp_path / 'bin'}:{path}")
        assert (done.returncode, done.stdout) == (0, "in a container: run --rm\nhi world\n"), done.stderr
        done = here(windfall, number, "0", "-o", "none", PATH=str(tmp_path))
        assert (done.returncode, "no container runtime" in done.stderr) == (2, True), done.stderr
    finally:
        windfall("cancel", number)


def test_retry_here_brings_files_of_other_targets_and_of_the_host(windfall, tmp_path):
    (tmp_path / "there.dat").write_text("there\n")
    text = bag(
        windfall, "merged", 'outputs = ["o-{x}"]', "echo {x} > o-{x}",
        '[sweep]\nx = "1..3"\n[targets.all]\nafter = ["main"]\ncommand = "cat {main.outputs} near.dat; exit 7"\n'
        f'retries = 0\ninputs = ["site:{tmp_path}/there.dat -> near.dat"]\n',
    )
    assert windfall("run", text).returncode == 1
    done = here(windfall, "merged", "3")
    assert (done.returncode, done.stdout) == (1, "1\n2\n3\nthere\n"), done.stderr
    (tmp_path / "there.dat").unlink()
    done = here(windfall, "merged", "3", "-o", "again")
    assert (done.returncode, "there.dat is not on this host" in done.stderr) == (2, True), done.stderr


def test_retry_here_refuses_a_task_that_waits(windfall):
    text = bag(windfall, "waiting", "", "sleep 60", '[targets.then]\nafter = ["main"]\ncommand = "true"\n')
    number = windfall("submit", text).stdout.strip()
    done = here(windfall, number, "1")
    windfall("cancel", number)
    assert (done.returncode, "waits for other tasks" in done.stderr) == (2, True), done.stderr


def test_retry_here_runs_a_task_of_an_extension(windfall):
    run = ("run", "cat d-{x}; exit {x}", "--name", "longer", "--input", "d-{x}", "--retries", "0")
    windfall.write("d-1", "one\n"), windfall.write("d-2", "two\n")
    assert windfall(*run, "-s", "x=1").returncode == 1
    assert windfall(*run, "-s", "x=1,2", "--extend", "longer").returncode == 1
    done = here(windfall, "longer", "1", "--json")
    said, _, answer = done.stdout.partition("\n")
    assert (done.returncode, said, json.loads(answer)["exit"]) == (1, "two", 2), done.stderr


def test_retry_here_unpacks_the_python_environment(windfall):
    environment = windfall.folder / ".venv"
    venv.create(environment, with_pip=False)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (environment / "lib" / version / "site-packages" / "tool.py").write_text("ANSWER = 42\n")
    command = 'python3 -c "import tool; print(tool.ANSWER); raise SystemExit(5)"'
    assert windfall("run", bag(windfall, "packs", 'python = ".venv"', command)).returncode == 1
    done = here(windfall, "packs", "0", "-o", "p")
    assert (done.returncode, done.stdout, "exit 5" in done.stderr) == (1, "42\n", True), done.stderr
    assert (windfall.folder / "p.python").is_dir() and not list((windfall.folder / "p").iterdir())


def test_retry_here_lists_what_it_leaves_out():
    assert left_out({"check": {"exit": [0, 3]}, "setup": ["x"], "memory": 0}) == []
    assert left_out({"check": {"match": "x"}, "memory": 1, "gpus": 2}) == [
        "memory limit", "choice of GPUs", "check, except of the exit code"]


def test_a_task_knows_its_number_its_bag_and_its_target(windfall):
    said = "echo $WINDFALL_BAG $WINDFALL_TARGET $WINDFALL_TASK {x}"
    windfall.write("known.toml", f'[bag]\nname = "known"\ncommand = "{said}"\n[sweep]\nx = "1..3"\n'
                                 f'[targets.second]\ncommand = "{said}; exit 3"\nretries = 0\n'
                                 '[targets.second.sweep]\nx = [8, 9]\n')
    number = windfall.json("run", "known.toml", code=1)["bag"]
    found = [windfall("logs", "known", task).stdout for task in range(5)]
    assert found == [f"{number} main {task} {task + 1}\n" for task in range(3)] + [
        f"{number} second {task} {task + 5}\n" for task in (3, 4)]
    assert here(windfall, "known", "4").stdout == f"{number} second 4 9\n"
