"""Bringing output files home.

Where a file lands is decided by `places`.  It appears under its name only when it is complete and its hash fits; a path
that would leave the directory is refused, whoever sent it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files import hash_file
from ..errors import WindfallError
from .places import below, placing

if TYPE_CHECKING:
    from .client import Client
    from .http import Http


def fetch(
    client: Client, http: Http, bag: int, directory: Path, on_file: Callable[[Path], None] | None, files: str
) -> int:
    spec = client.spec(bag)
    if not any(target.outputs for target in spec.targets):
        return 0
    place, count = placing(client, bag, spec, files), 0
    for row in client.results(bag, state="succeeded"):
        for path, sha, size, mode in row.get("files") or ():
            target = below(directory, place(row, path))
            if _bring(http, target, sha, size, mode):
                count += 1
            if on_file:
                on_file(target)
    return count


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
