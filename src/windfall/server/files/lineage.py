"""Which pilot may speak of which attempt.

A pilot that enrols again is the same process under a new number: the same nonce at the same site, for the same owner.
What it asks for may cross its own re-enrolment, in both directions.
"""

from __future__ import annotations

from typing import Any

MAX_ATTEMPT = (1 << 63) - 1


def same_lineage(state: Any, one: int, other: int) -> bool:
    if one == other:
        return True
    a, b = state.pilots.get(one), state.pilots.get(other)
    if a is None or b is None:
        return False
    return bool((a.site, a.nonce, a.owner) == (b.site, b.nonce, b.owner))


def attempt_number(text: str) -> int | None:
    """As it stands in a path or a header; None: it is none."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > MAX_ATTEMPT:
        return None
    return int(text)
