"""What the judge of hosts keeps from one step to the next; volatile."""

from __future__ import annotations

from dataclasses import dataclass, field

from windfall.core.state.world import TaskClass

Blamed = tuple[TaskClass, int, int]  # class, grant and ms of a failure


@dataclass(slots=True)
class Strikes:
    count: int = 0
    weight: float = 0.0
    last: tuple[int, int] = (0, 0)  # pilot and grant
    at: int = 0


@dataclass(slots=True)
class HostSession:
    failures_in_report: list[Blamed] = field(default_factory=list)
    strikes: dict[tuple[str, str], dict[str, Strikes]] = field(default_factory=dict)  # host of a site → by guest
    to_empty: list[int] = field(default_factory=list)  # rows of hosts that this step has barred
