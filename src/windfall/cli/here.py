"""`windfall retry BAG TASK --here`: the task's command in a new directory on this machine, to see what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files import safe_join
from ..errors import BadInput
from .output import print_json, say

if TYPE_CHECKING:
    from ..client.client import Client


def scratch_of(task: dict[str, Any]) -> tuple[str, int] | None:
    """The latest kept directory of a task: (sha256, size)."""
    kept = [row["scratch"] for row in task.get("attempts") or [] if row.get("scratch")]
    return (kept[-1][0], kept[-1][1]) if kept else None


def run_here(client: Client, bag: int, number: int, given: str | None, as_json: bool) -> int:
    from ..client.archive import download, unpack
    from ..model.render import Renderer

    view = client.bag(bag)
    task = client.task(bag, number)
    place = next(t for t in view["targets"] if t["name"] == task["target"])
    target = next(t for t in client.spec(bag).targets if t.name == task["target"])
    if target.kind != "command":
        raise BadInput("a Python call cannot be run again here", f"windfall logs {bag} {number}")
    directory = Path(given or f"task-{bag}-{number}")
    _make(directory)
    kept = scratch_of(task)
    if kept:
        unpack(client, *kept, directory)
    renderer, index = Renderer(target), number - place["first"]
    common = [(each.path, each.blob, each.size, each.mode) for each in target.inputs]
    for path, sha, size, mode in [*common, *renderer.inputs(index)]:
        file = safe_join(directory, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "w+b") as stream:
            download(client, stream, sha, size)
        os.chmod(file, mode & 0o777)
    say(f"task {number} in {directory}/" + (", with what the failed attempt left there" if kept else ""))
    code = _run(task["command"], target.setup, {**os.environ, **renderer.environment(index)}, directory)
    if as_json:
        print_json({"bag": bag, "task": number, "directory": str(directory), "exit": code})
    else:
        say(f"exit {code}" if code >= 0 else f"killed by signal {-code}")
    return 0 if code in target.check.exit else 1


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise BadInput(f"{directory} exists already", "choose another with -o DIR") from None
    except OSError as error:
        raise BadInput(f"cannot make {directory}: {error.strerror}") from None


def _run(command: str | list[str], setup: list[str], environment: dict[str, str], directory: Path) -> int:
    """As a pilot does it: an argument vector without a shell, text and set-up lines with one."""
    from shlex import join

    if setup or isinstance(command, str):
        text = command if isinstance(command, str) else join(command)
        command = ["/bin/sh", "-c", "\n".join([*setup, text])]
    try:
        return subprocess.run(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stdout,
                              check=False).returncode
    except OSError as error:
        raise BadInput(f"it cannot be started here: {error.strerror}: {command[0]}") from None
