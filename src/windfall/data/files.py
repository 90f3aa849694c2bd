"""Files of the user: what they hold, and where they may lie."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from windfall.errors import BadInput

_BLOCK = 1 << 20


def hash_file(path: Path) -> tuple[str, int]:
    """SHA-256 in hex, and size, of what was read; never more than a block in memory."""
    digest = hashlib.sha256()
    size = 0
    buffer = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            size += count
    return digest.hexdigest(), size


def safe_join(root: Path, relative: str) -> Path:
    """`root/relative`, refused when it leads out of `root` or through a symbolic link."""
    parts = relative.split("/")
    if not relative or "\0" in relative or relative.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise BadInput(f"{relative!r} is not a path below a working directory", "use a relative path without '..'")
    path = root
    for part in parts:
        path = path / part
        if _is_link(path):
            raise BadInput(f"{relative!r} leads through a symbolic link", "name the file where it really lies")
    return path


def _is_link(path: Path) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return False
        raise BadInput(f"{path.name!r} cannot be used as a path: {error.strerror}") from error
