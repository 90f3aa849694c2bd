"""Hints for a word that is not known: the nearest known one, or the one that means what other tools call so."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 200  # characters compared
MOST = 1_000  # known words compared
ELSEWHERE = {  # words of batch systems and workflow tools, and ours
    "cpus": "cores", "cpus-per-task": "cores", "ncpus": "cores", "threads": "cores", "jobs": "cores",
    "walltime": "time", "runtime": "time", "timeout": "time", "time-limit": "time",
    "mem": "memory", "mem-mb": "memory", "gres": "gpus", "env": "environment", "cmd": "command", "script": "command",
}  # fmt: skip


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint: the known word nearest to `name`, or else the first twenty known words."""
    known = list(known)
    near = meant(name, known)
    return f"did you mean '{near}'?" if near else f"known: {', '.join(known[:20])}" if known else ""


def meant(name: str, known: list[str]) -> str:
    """Return the known word that was probably meant; "" if none is near."""
    from difflib import get_close_matches

    ours = ELSEWHERE.get(name.lstrip("-").lower().replace("_", "-"), "")
    for word in (ours, f"--{ours}"):
        if ours and word in known:
            return word
    return next(iter(get_close_matches(name[:LONGEST], known[:MOST], 1)), "")
