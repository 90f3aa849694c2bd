"""Presets of replication: which running tasks get one more attempt, and how many replicas a bag may have."""

from __future__ import annotations

from typing import NamedTuple


class Preset(NamedTuple):
    times_usual: float  # times what such a task takes on average
    per_task: int  # attempts of one task at a time
    share: int  # percent of the bag's tasks that may have a replica
    after_last_start: bool  # not before every task has started


NONE, DEADLINE = "none", "deadline"
PRESETS = {
    NONE: Preset(0, 1, 0, True),
    DEADLINE: Preset(0, 1, 0, True),  # no speculation: only overdue tasks get another attempt
    "tail-safe": Preset(1.5, 3, 15, True),
    "tail-fast": Preset(0, 3, 100, False),
}
BY_EXPRESSION = Preset(0, 6, 300, False)  # the bounds of a bag whose `replicate` is an expression
