"""The session of the judge of hosts: volatile state, kept from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from windfall.core.state.world import TaskClass


class Failure(NamedTuple):
    cls: TaskClass
    grant: int
    wall: int  # ms


@dataclass(slots=True)
class Strikes:
    """Grants of which a task failed on a host, since its last success."""

    count: int = 0
    weight: float = 0.0
    last: tuple[int, int] = (0, 0)  # pilot and grant of the last strike
    at: int = 0  # when it was counted


@dataclass(slots=True)
class HostSession:
    failures_in_report: list[Failure] = field(default_factory=list)
    strikes: dict[tuple[str, str], dict[str, Strikes]] = field(default_factory=dict)  # (site, host) → by guest
    to_empty: list[int] = field(default_factory=list)  # rows of hosts that this step has quarantined or doubted
