"""How many values a JSON text has, at most, without decoding it.

Decoding holds the interpreter's lock, so the loop waits.  The time goes into values and escapes; long texts without
escapes cost little.  A pilot's report may have forty megabytes of text, but no honest message has millions of values.
"""

from __future__ import annotations

STEP = 64 << 10


def is_dense(body: bytes | bytearray, most: int) -> bool:
    """Has the body more than `most` commas and backslashes?  The scan stops as soon as that is certain."""
    found = 0
    for at in range(0, len(body), STEP):
        found += body.count(b",", at, at + STEP) + body.count(b"\\", at, at + STEP)
        if found > most:
            return True
    return False
