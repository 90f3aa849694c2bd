"""Large arguments of a Python call: a blob, which lies as a file beside the call when it runs.

A call is text (`client/functions/payload.py`); in place of its arguments it may say `@SHA256:SIZE`.  No other part of a
call contains an `@`, being base64.
"""

from __future__ import annotations

import re

ARGUMENTS = ".windfall-arguments"  # where the runner looks for them
_BLOB = re.compile(r" @([0-9a-f]{64}):([0-9]{1,15})\Z")
_BLOBS = re.compile(rb" @([0-9a-f]{64}):[0-9]")


def reference(sha: str, size: int) -> str:
    return f"@{sha}:{size}"


def argument_file(call: str) -> tuple[str, str, int, int] | None:
    """(path, blob, size, mode) of a call's arguments, where they are a blob."""
    found = _BLOB.search(call) if "@" in call else None
    return (ARGUMENTS, found[1], int(found[2]), 0o400) if found else None


def blobs_in(packed: bytes) -> set[str]:
    """Blobs that calls refer to, in whatever encoding their texts lie one after another."""
    return {sha.decode() for sha in _BLOBS.findall(packed)}
