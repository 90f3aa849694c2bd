"""Blobs of a Python call: its large parts, which its runner finds as files in its directory, and its large result.

A call is text (`client/functions/payload.py`).  In place of its function or its arguments it may have `@SHA256:SIZE`;
after them come the results of other calls that it takes, as `@SHA256:SIZE`, too.  The other parts of a call are base64,
which has no `@`.  The value of a call whose result is large is STORED, and its file RESULT is a blob.
"""

from __future__ import annotations

import re

PART = ".windfall-part-"  # with a blob's hash, the file in which the runner finds it
RESULT, STORED = ".windfall-result", "@"
_PARTS = re.compile(r" @([0-9a-f]{64}):([0-9]{1,15})(?![^ ])")
_BLOBS = re.compile(rb" @([0-9a-f]{64}):[0-9]")


def reference(sha: str, size: int) -> str:
    return f"@{sha}:{size}"


def part_files(call: str) -> list[tuple[str, str, int, int]]:
    """Return (path, blob, size, mode) of each part of a call that is a blob."""
    if "@" not in call:
        return []
    return [(PART + sha, sha, size, 0o400) for sha, size in _sizes(call).items()]


def _sizes(call: str) -> dict[str, int]:
    return {found[1]: int(found[2]) for found in _PARTS.finditer(call)}


def blobs_in(packed: bytes) -> set[str]:
    """Return the blobs that calls refer to; `packed` has the calls' texts in any encoding that keeps ASCII."""
    return {sha.decode() for sha in _BLOBS.findall(packed)}
