"""Lineage: may a pilot report on an attempt that was granted under another pilot number?

A pilot that enrols again gets a new number, but is the same process: the same nonce at the same site, for the same
owner.  A request may cross the re-enrolment, in both directions.
"""

from __future__ import annotations

from windfall.core.state.world import State

MAX_ATTEMPT = (1 << 63) - 1


def same_lineage(state: State, one: int, other: int) -> bool:
    if one == other:
        return True
    a, b = state.pilots.get(one), state.pilots.get(other)
    if a is None or b is None:
        return False
    return bool((a.site, a.nonce, a.owner) == (b.site, b.nonce, b.owner))


def attempt_number(text: str) -> int | None:
    """Parse an attempt's number from a path or a header; return None if the text is not one."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > MAX_ATTEMPT:
        return None
    return int(text)
