"""Hints for a word that is not known: the nearest known one."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 200  # characters compared
MOST = 1_000  # known words compared


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint: the known word nearest to `name`, or else the first twenty known words."""
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(name[:LONGEST], known[:MOST], 1)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known[:20])}" if known else ""
