"""Provisioning's memory from one step to the next; volatile."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ProvisionSession:
    to_answer: dict[str, int] = field(default_factory=dict)  # sites that asked in this step → key of the request
    last_run: int = -1 << 60  # when sites were provisioned last
    changed: bool = False  # something has happened since
    pairs_matched: int = 0  # pairs of classes and sites that were matched then
    intents_left: int = 0  # intents that may still be made by this run
    timer: int = 0  # when the next run is due at the latest; 0: no run is planned
    watching: bool = False  # a timer of the watch over sites runs
    last_active: int = 0  # when some pilot was active, or nothing was wanted, last
    month_timer: int = 0  # when the next month begins, where that matters
