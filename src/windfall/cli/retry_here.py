"""`windfall retry BAG TASK --here`: run one task in a new directory on this machine, to see why it fails.

The server sends the specification that it would send to a pilot, and the pilot's own code follows it: inputs, files of
other targets, checkpoint files, links to files that lie on the host, a packed Python environment, modules, a container.
The rest of a pilot's work (limits, GPUs, checks) is left out, and a message lists it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.present.output import files_of, print_json, say
from windfall.data.files import safe_join
from windfall.errors import BadInput
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.client.client import Client

LEFT_OUT = {  # parts of a task's specification that only a pilot acts on
    "time": "time limit", "memory": "memory limit", "disk": "disk limit", "gpus": "choice of GPUs",
    "outputs": "check that the outputs exist", "capture": "captured values",
}  # fmt: skip


def scratch_of(task: dict[str, Any]) -> tuple[str, int] | None:
    """Return (sha256, size) of the directory of the task's latest attempt of which the server kept one."""
    kept = [row["scratch"] for row in task.get("attempts") or [] if row.get("scratch")]
    return (kept[-1][0], kept[-1][1]) if kept else None


def run_here(client: Client, bag: int, number: int, given: str | None, as_json: bool) -> int:
    from windfall.client.files.archive import unpack
    from windfall.pilot.run.job import TASK

    spec = client.task_spec(bag, number)
    if spec.get("kind", "command") != "command":
        raise BadInput("a Python call cannot run here", f"to see its output: windfall logs {bag} {number}")
    directory = Path(given or f"task-{bag}-{number}")
    _make(directory)
    kept = scratch_of(client.task(bag, number))
    links_skipped = unpack(client, *kept, directory)[1] if kept else 0
    fetch_inputs(client, spec, directory)
    files = ", with the files that the failed attempt left" if kept else ""
    files += f", except {plural(links_skipped, 'link')}" if links_skipped else ""
    say(f"task {number} runs in {directory}/{files}")
    say(f"  its inputs are {files_of(client.bag(bag))}; with the files as they are now: windfall rerun {bag} --failed")
    if skipped := left_out(spec):
        say(f"  left out here: {', '.join(skipped)}")
    environment = {**_environment(client, spec, directory), TASK: str(number)}
    code, explanation = _run(spec, environment, directory.absolute())
    if as_json:
        print_json({"bag": bag, "task": number, "directory": str(directory), "exit": code, "not_done": skipped})
    else:
        say(explanation or _ending(code))
    return 0 if code in (spec.get("check") or {}).get("exit", [0]) else 1


def _ending(code: int) -> str:
    return f"exit {code}" if code >= 0 else f"killed by signal {-code}"


def left_out(spec: dict[str, Any]) -> list[str]:
    """Return the parts of the task's specification that only a pilot acts on."""
    found = [text for name, text in LEFT_OUT.items() if spec.get(name)]
    return found + (["check, except of the exit code"] if set(spec.get("check") or {}) - {"exit"} else [])


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise BadInput(f"{directory} exists already", "choose another with -o DIR") from None
    except OSError as error:
        raise BadInput(f"cannot make {directory}: {error.strerror}") from None


def fetch_inputs(client: Client, spec: dict[str, Any], directory: Path, *, missing: bool = False) -> int:
    """Fetch a task's input files, or only those that are missing; return how many."""
    from windfall.client.files.archive import download
    from windfall.pilot.files.staging import link_placed

    count = 0
    for path, sha, size, mode in spec.get("inputs") or ():
        file = safe_join(directory, path)
        if missing and (file.exists() or any(above.is_file() for above in file.parents)):
            continue  # the task may have put a file where a directory was
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "w+b") as stream:
            download(client, stream, sha, size)
        os.chmod(file, mode & 0o777)
        count += 1
    link_placed(str(directory), spec.get("placed"))
    return count


def _environment(client: Client, spec: dict[str, Any], directory: Path) -> dict[str, str]:
    """Return this shell's environment with the task's own variables; unpack its packed Python beside `directory`."""
    from windfall.client.files.archive import download
    from windfall.pilot.files import packed
    from windfall.pilot.run.job import bag_variables

    environment = {**os.environ, **(spec.get("environment") or {}), **bag_variables(spec)}
    entry = spec.get("packed")
    if entry:
        folder = directory.absolute().with_name(directory.name + ".python")
        archive = folder / "packed.tar.gz"
        _make(folder / entry[0])
        with open(archive, "w+b") as stream:
            download(client, stream, entry[0], entry[1])
        packed.unpack(str(archive), str(folder / entry[0]))
        archive.unlink()
        try:
            packed.compare(str(folder), entry, False)
        except packed.Mismatch as error:
            raise BadInput(f"cannot run the task here: {error}") from None
        packed.apply(environment, str(folder), entry)
    return environment


def _run(spec: dict[str, Any], environment: dict[str, str], directory: Path) -> tuple[int, str]:
    """Return the exit code, negative for a signal, and an explanation if it is the container's or the modules' own."""
    from windfall.pilot.run.environment_modules import CommandWrapper
    from windfall.pilot.run.job import Plan
    from windfall.pilot.run.spawn import argv_of

    command, setup, own = spec["command"], spec.get("setup") or [], os.getpid()
    wrapper = None
    if spec.get("modules") or spec.get("container"):
        wrapper = CommandWrapper(Plan(spec, environment), None, "here")
    argv = wrapper.argv(command, setup, str(directory), own) if wrapper else argv_of(command, setup)
    try:
        code = subprocess.run(argv, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stdout,
                              check=False).returncode  # fmt: skip
    except OSError as error:
        raise BadInput(f"cannot start {argv[0]} here: {error.strerror}") from None
    finally:
        if wrapper and (removal := wrapper.removal(own)):
            subprocess.run(removal, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return code, wrapper.explain(code, "") if wrapper else ""
