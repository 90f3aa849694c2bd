"""Files that hold a secret."""

from __future__ import annotations

import os

from windfall.errors import BadInput


def write_private(path: str, text: str) -> None:
    """Write a new file that only its owner can read."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
