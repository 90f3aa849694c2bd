"""Files sent along with tasks: each is read once and named by the hash of its content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from windfall.errors import BadInput

Blob = tuple[str, int, int]  # sha256, size, mode


class BlobCollector:
    def __init__(self) -> None:
        self.uploads: dict[str, Path] = {}
        self._known: dict[Path, Blob] = {}

    def blob(self, path: Path) -> Blob:
        if path not in self._known:
            found = self._known[path] = _hash(path)
            self.uploads[found[0]] = path
        return self._known[path]


def _hash(path: Path) -> Blob:
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as stream:
            while data := stream.read(1 << 20):
                digest.update(data)
                size += len(data)
            mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    return digest.hexdigest(), size, mode
