"""The exchange's memory from one step to the next; volatile."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ExchangeSession:
    pilots_alive: int = 0  # pilots that are not gone
    # (site, owner, host, its name) → silent pilots of that host that hold attempts
    in_doubt: dict[tuple[str, str, str, str], dict[int, None]] = field(default_factory=dict)
