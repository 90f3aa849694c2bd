"""Large arguments of a Python call: a blob, which the call's runner finds as a file in its directory.

A call is text (`client/functions/payload.py`); in place of its arguments it may have `@SHA256:SIZE`.  The other parts
of a call are base64, which has no `@`.
"""

from __future__ import annotations

import re

ARGUMENTS = ".windfall-arguments"  # the file in which the runner finds them
_BLOB = re.compile(r" @([0-9a-f]{64}):([0-9]{1,15})\Z")
_BLOBS = re.compile(rb" @([0-9a-f]{64}):[0-9]")


def reference(sha: str, size: int) -> str:
    return f"@{sha}:{size}"


def argument_file(call: str) -> tuple[str, str, int, int] | None:
    """Return (path, blob, size, mode) of a call's arguments if they are a blob, else None."""
    found = _BLOB.search(call) if "@" in call else None
    return (ARGUMENTS, found[1], int(found[2]), 0o400) if found else None


def blobs_in(packed: bytes) -> set[str]:
    """Return the blobs that calls refer to; `packed` has the calls' texts in any encoding that keeps ASCII."""
    return {sha.decode() for sha in _BLOBS.findall(packed)}
