"""`windfall retry BAG TASK --here`: the task in a new directory on this machine, to see what goes wrong.

The server says all that it would tell a pilot, and the pilot's own code makes it so: inputs, files of other targets,
checkpoint files, links to what lies on the host, a packed Python environment, modules, a container.  What a pilot does
beyond that (limits, GPUs, checks) is not done here, and said.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.present.output import print_json, say
from windfall.data.files import safe_join
from windfall.errors import BadInput
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.client.client import Client

UNDONE = {  # parts of a task's specification that only a pilot sees to
    "time": "its time limit", "memory": "its memory limit", "disk": "its disk limit", "gpus": "giving out GPUs",
    "outputs": "asking for its outputs", "capture": "capturing values",
}  # fmt: skip


def scratch_of(task: dict[str, Any]) -> tuple[str, int] | None:
    """The latest kept directory of a task: (sha256, size)."""
    kept = [row["scratch"] for row in task.get("attempts") or [] if row.get("scratch")]
    return (kept[-1][0], kept[-1][1]) if kept else None


def run_here(client: Client, bag: int, number: int, given: str | None, as_json: bool) -> int:
    from windfall.client.files.archive import unpack

    spec = client.task_spec(bag, number)
    if spec.get("kind", "command") != "command":
        raise BadInput("a Python call cannot be run again here", f"windfall logs {bag} {number}")
    directory = Path(given or f"task-{bag}-{number}")
    _make(directory)
    kept = scratch_of(client.task(bag, number))
    left_out = unpack(client, *kept, directory)[1] if kept else 0
    _bring(client, spec, directory)
    say(f"task {number} in {directory}/" + (", with what the failed attempt left there" if kept else "")
        + (f", but for {plural(left_out, 'link')}" if left_out else ""))
    if undone := left_undone(spec):
        say(f"  not done here: {', '.join(undone)}")
    code, said = _run(spec, _environment(client, spec, directory), directory.absolute())
    if as_json:
        print_json({"bag": bag, "task": number, "directory": str(directory), "exit": code, "not_done": undone})
    else:
        say(said or (f"exit {code}" if code >= 0 else f"killed by signal {-code}"))
    return 0 if code in (spec.get("check") or {}).get("exit", [0]) else 1


def left_undone(spec: dict[str, Any]) -> list[str]:
    undone = [says for name, says in UNDONE.items() if spec.get(name)]
    return undone + (["its check, but for the exit code"] if set(spec.get("check") or {}) - {"exit"} else [])


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise BadInput(f"{directory} exists already", "choose another with -o DIR") from None
    except OSError as error:
        raise BadInput(f"cannot make {directory}: {error.strerror}") from None


def _bring(client: Client, spec: dict[str, Any], directory: Path) -> None:
    from windfall.client.files.archive import download
    from windfall.pilot.files.staging import link_placed

    for path, sha, size, mode in spec.get("inputs") or ():
        file = safe_join(directory, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "w+b") as stream:
            download(client, stream, sha, size)
        os.chmod(file, mode & 0o777)
    link_placed(str(directory), spec.get("placed"))


def _environment(client: Client, spec: dict[str, Any], directory: Path) -> dict[str, str]:
    """This shell's, with what the task asks for; a packed Python environment is unpacked beside the directory."""
    from windfall.client.files.archive import download
    from windfall.pilot.files import packed

    environment = {**os.environ, **(spec.get("environment") or {})}
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
            raise BadInput(f"it cannot be run here: {error}") from None
        packed.apply(environment, str(folder), entry)
    return environment


def _run(spec: dict[str, Any], environment: dict[str, str], directory: Path) -> tuple[int, str]:
    """Exit code, negative for a signal; and what it means, where it was not the task's own."""
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
        raise BadInput(f"it cannot be started here: {error.strerror}: {argv[0]}") from None
    finally:
        if wrapper and (removal := wrapper.removal(own)):
            subprocess.run(removal, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return code, wrapper.explain(code, "") if wrapper else ""
