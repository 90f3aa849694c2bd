"""A disk of a few megabytes, to be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(where: Path, megabytes: int) -> Iterator[Path]:
    where.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small tmpfs")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", where], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount a tmpfs here")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", where], check=True)


def fill(directory: Path, leave: int = 0) -> Path:
    """Take all room but `leave` bytes."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        file.truncate(max(0, file.tell() - leave))
    return ballast
