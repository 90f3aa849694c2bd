"""The record of blobs that each attempt sent, so that its report can name no others.

A pilot may know a blob's hash without having its contents.  If its report could name any blob of the bag's owner as a
checkpoint, the server would send that blob with the next attempt.  So a report may name only blobs that the attempt
sent completely or may read.

    sent    a line `ATTEMPT SHA256` per blob, on the disk before the server confirms the upload

The server drops the lines of ended attempts when it reads the file at its start, and when there are many.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

MANY = 100_000  # lines
_NOTHING: frozenset[str] = frozenset()


class SentBlobs:
    def __init__(self, path: Path, in_play: Callable[[int], bool]) -> None:
        """`in_play` tells whether an attempt has not ended; only the loop's thread calls it."""
        self._path = path
        self._in_play = in_play
        self._blobs: dict[int, set[str]] = {}
        self._lines = 0
        self._mutex = threading.Lock()
        self._load()

    def by(self, attempt: int) -> Iterable[str]:
        return self._blobs.get(attempt, _NOTHING)

    def add(self, attempt: int, sha: str) -> None:
        """Record that an attempt sent a blob; return once the record is on the disk."""
        with self._mutex:
            known = self._blobs.setdefault(attempt, set())
            if sha in known:
                return
            _write(self._path, [f"{attempt} {sha}\n"], os.O_APPEND)
            known.add(sha)
            self._lines += 1

    def of_attempts_in_play(self) -> set[str]:
        """Return the blobs that reports may still name; only the loop's thread calls this."""
        return {sha for attempt, known in list(self._blobs.items()) if self._in_play(attempt) for sha in list(known)}

    def ended(self) -> list[int] | None:
        """Return the ended attempts to forget once there are MANY lines; None before."""
        if self._lines < MANY:
            return None
        return [attempt for attempt in list(self._blobs) if not self._in_play(attempt)]

    def forget(self, attempts: Iterable[int]) -> None:
        gone = set(attempts)
        with self._mutex:
            self._blobs = {attempt: blobs for attempt, blobs in self._blobs.items() if attempt not in gone}
            self._rewrite()

    def _load(self) -> None:
        try:
            lines = self._path.read_text("ascii", "replace").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            attempt, _, sha = line.partition(" ")
            if len(sha) == 64 and attempt.isdigit() and self._in_play(int(attempt)):
                self._blobs.setdefault(int(attempt), set()).add(sha)
        self._rewrite()

    def _rewrite(self) -> None:
        lines = [f"{attempt} {sha}\n" for attempt, blobs in self._blobs.items() for sha in sorted(blobs)]
        fresh = self._path.with_suffix(".new")
        _write(fresh, lines, os.O_TRUNC)
        os.replace(fresh, self._path)
        self._lines = len(lines)


def _write(path: Path, lines: list[str], how: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600), "w") as file:
        file.writelines(lines)
        file.flush()
        os.fdatasync(file.fileno())
