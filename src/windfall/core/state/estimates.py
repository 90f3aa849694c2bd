"""Reliability: which hosts are known to lose or fail much of what they are given.

It decides who is asked first in a tail, and how soon a task is taken for late; whom nothing is given at all is for
`hosts.py` to say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windfall.core.state.columns import Hosts
from windfall.core.state.world import BagState, TaskClass

ENOUGH = 5  # attempts after which a host is known
UNRELIABLE = 10  # percent of them that were lost or failed


def usual_time(bag: BagState, cls: TaskClass) -> float:
    """Ms that a task of the class takes: the mean of those that succeeded, else what its user expects; 0: unknown."""
    return cls.mean or float(bag.targets[cls.target].shape.expect)


def bad_hosts(table: Hosts, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these lose or fail much?"""
    tried = table.np_attempts[rows].astype(np.int64)
    bad = table.np_failures[rows].astype(np.int64) + table.np_losses[rows]
    found: NDArray[np.bool_] = (tried >= ENOUGH) & (100 * bad > UNRELIABLE * tried)
    return found


def is_bad(table: Hosts, row: int) -> bool:
    tried = table.attempts[row]
    return bool(tried >= ENOUGH and 100 * (table.failures[row] + table.losses[row]) > UNRELIABLE * tried)
