"""Caps of replicas, which override a preset's own: attempts of a task in play at a time, replicas of a bag as a share
of its tasks, and the cost of attempts that another attempt made useless."""

from __future__ import annotations

import re
from functools import lru_cache

from windfall.errors import BadInput
from windfall.model.units import parse_core_time

PER_TASK, SHARE, COST = "replicas-per-task", "replicas-share", "replicas-cost"
CAPS = {
    PER_TASK: "attempts of one task that may be in play at a time, the first included",
    SHARE: "replicas that the bag may have, such as 15% of its tasks",
    COST: "what attempts that another one made needless may use, such as 10 core-hours",
}
MOST = {PER_TASK: 32, SHARE: 1_000}
LONGEST = 64  # characters
_HINTS = {PER_TASK: "a number from 1 to 32; 1: no replicas", SHARE: "a whole number of percent up to 1000%, as in 15%"}
_FORMS = {PER_TASK: re.compile(r"[0-9]{1,9}"), SHARE: re.compile(r"([0-9]{1,9})\s*%")}


def normal(value: object, key: str) -> str:
    """Check a cap from a bag file or command, and return its text as it is stored and shown."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise BadInput(f"{key}: {str(text)[:60]} is not a valid value", _HINTS.get(key, "as in 10 core-hours"))
    text = " ".join(text.split())
    read(text, key)
    return text


def check(text: str, key: str) -> None:
    """Check a stored cap, which must be valid without changes."""
    if len(text) > LONGEST:
        raise BadInput(f"{key}: {text[:40]!r}… has {len(text):,} characters", f"at most {LONGEST}")
    read(text, key)


@lru_cache(maxsize=1_024)
def read(text: str, key: str) -> int:
    """Return a cap's number: attempts, percent, or ms of cores."""
    if key == COST:
        return parse_core_time(text, key)
    form = _FORMS[key].fullmatch(text)
    number = int(form[form.re.groups]) if form else -1
    if not (key == PER_TASK) <= number <= MOST[key]:
        raise BadInput(f"{key}: {text[:60]!r} is not a valid value", _HINTS[key])
    return number
