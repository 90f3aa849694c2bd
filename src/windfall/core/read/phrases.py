"""Phrases that several explanations share: lengths of time, core-hours, how often a task has failed."""

from __future__ import annotations

from typing import Any

from windfall.core.state.world import BagState
from windfall.model.units import format_core_time, plural

ClauseReport = dict[str, Any]  # clause, holds, says


def clause(name: str, holds: bool, says: str) -> ClauseReport:
    return {"clause": name, "holds": holds, "says": says}


def spell(ms: int) -> str:
    """Return a length of time as people say it."""
    seconds = max(ms, 0) // 1000
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def core_hours(ms: int) -> str:
    """Return core-hours without their unit."""
    return format_core_time(ms).removesuffix(" core-hours")


def used_up(what: str, budget: int, used: int, reserved: int) -> str:
    """Say that an account is used up; the caller adds who reserves the rest."""
    return (f"{what} is used up: {core_hours(used)} of {format_core_time(budget)} used, "
            f"{core_hours(reserved)} reserved by ")


def keeps_failing(bag: BagState, task: int) -> str:
    """Say how often a task has failed, with "it" as the subject."""
    failures, deaths = bag.tasks.failures[task], bag.tasks.deaths[task]
    reasons = [f"has failed {plural(failures, 'time')}"] * (failures > 0)
    reasons += [f"was at {pilot_deaths(bag, task)}"] * (deaths > 0)
    return "it " + " and ".join(reasons or ["keeps failing"])


def pilot_deaths(bag: BagState, task: int) -> str:
    n = bag.tasks.deaths[task]
    return f"{plural(n, 'death')} of {'a pilot' if n == 1 else 'pilots'}"
