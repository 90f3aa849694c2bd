"""The user's files: their hashes, and paths that stay inside a directory."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from windfall.errors import BadInput

_BLOCK = 1 << 20


def hash_file(path: Path) -> tuple[str, int]:
    """Return a file's SHA-256 in hex and the size that was read, with one block in memory at a time."""
    digest = hashlib.sha256()
    size = 0
    buffer = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            size += count
    return digest.hexdigest(), size


def safe_join(root: Path, relative: str) -> Path:
    """Return `root/relative`; raise BadInput if it leads out of `root` or through a symbolic link."""
    parts = relative.split("/")
    if not relative or "\0" in relative or relative.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise BadInput(f"{relative!r} is not a path below a working directory", "use a relative path without '..'")
    path = root
    for part in parts:
        path = path / part
        if _is_link(path):
            raise BadInput(f"{relative!r} leads through a symbolic link", "give the path without the link")
    return path


def _is_link(path: Path) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return False
        raise BadInput(f"{path.name!r} cannot be used as a path: {error.strerror}") from error
