"""The exchange's memory from one step to the next; volatile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ExchangeSession:
    pilots_alive: int = 0  # pilots that are not gone
