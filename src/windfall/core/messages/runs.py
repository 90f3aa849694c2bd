"""Runs: sorted task numbers, written as the first number and the length of each stretch without a gap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages.facts import Runs


def runs_where(mask: NDArray[np.bool_]) -> Runs:
    """Return the positions where the mask holds."""
    if mask.all():
        return [(0, len(mask))] if len(mask) else []
    edges = np.flatnonzero(mask[1:] != mask[:-1]) + 1
    bounds = [0] * bool(mask[0]) + edges.tolist() + [len(mask)] * bool(mask[-1])
    return [(first, stop - first) for first, stop in zip(bounds[::2], bounds[1::2], strict=True)]


def runs_of(tasks: NDArray[np.int64]) -> Runs:
    """Return sorted task numbers as runs."""
    if not len(tasks):
        return []
    breaks = np.flatnonzero(np.diff(tasks) != 1) + 1
    return [(int(part[0]), len(part)) for part in np.split(tasks, breaks)]
