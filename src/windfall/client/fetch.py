"""Bringing output files home.

Where a file lands is known before anything has run: directly in the directory where all tasks name different
files, else in a directory per task, named by its number.  A file appears under its name only when it is
complete and its hash fits; a path that would leave the directory is refused, whoever sent it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files import hash_file, safe_join
from ..errors import WindfallError

if TYPE_CHECKING:
    from ..model.spec import Bag
    from .client import Client
    from .http import Http

MAX_COMPARED = 1_000_000  # file names; with more, every task gets its directory


def fetch(client: Client, http: Http, bag: int, directory: Path, on_file: Callable[[Path], None] | None) -> int:
    spec = client.spec(bag)
    if not any(target.outputs for target in spec.targets):
        return 0
    flat = is_flat(spec)
    count = 0
    for row in client.results(bag, state="succeeded"):
        for path, sha, size, mode in row.get("files") or ():
            target = place(directory, row["task"], path, flat)
            if _bring(http, target, sha, size, mode):
                count += 1
            if on_file:
                on_file(target)
    return count


def is_flat(bag: Bag) -> bool:
    """Do all tasks name different files?"""
    from ..model.render import Renderer

    seen: set[str] = set()
    for target in bag.targets:
        renderer = Renderer(target)
        if renderer.count * len(target.outputs) + len(seen) > MAX_COMPARED or bag.open:
            return False
        for index in range(renderer.count):
            for path in renderer.outputs(index):
                if path in seen:
                    return False
                seen.add(path)
    return True


def place(directory: Path, task: int, path: str, flat: bool) -> Path:
    """Where a task's file lands; BadInput if that would be outside."""
    path = path.removeprefix("./")
    return safe_join(directory, path if flat else f"{task:d}/{path}")


def _bring(http: Http, target: Path, sha: str, size: int, mode: int) -> bool:
    """True if the file is there now, or was."""
    if _is_there(target, sha, size):
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / f".windfall-{sha[:16]}-{os.getpid()}.part"
    try:
        with open(part, "w+b") as stream:
            http.download(sha, stream, size)
            _verify(stream, sha, size, target)
        os.chmod(part, mode & 0o777 or 0o644)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return True


def _is_there(target: Path, sha: str, size: int) -> bool:
    try:
        return target.stat().st_size == size and hash_file(target) == (sha, size)
    except OSError:
        return False


def _verify(stream: Any, sha: str, size: int, target: Path) -> None:
    stream.flush()
    stream.seek(0)
    if hashlib.file_digest(stream, "sha256").hexdigest() != sha or stream.tell() != size:
        raise WindfallError(f"what arrived for {target.name} is not what the task made", "fetch it again")
