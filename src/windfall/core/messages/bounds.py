"""Bounds of numbers that come from outside, so that every sum in the books fits 63 bits.

The largest installation has 2²⁴ cores.  In ten years it uses fewer than 2⁶³ core-ms.  So the core bounds the cores of a
pilot and the wall time that a pilot says it has left.  An attempt's wall time is bounded by the server's own clock.
Many lying pilots together still claim more than there is; therefore each sum also stops at `MOST_CORE_MS`.
"""

from __future__ import annotations

TEN_YEARS = 3_660 * 86_400_000  # ms
MOST_CORES = 1 << 24
MOST_CORE_MS = MOST_CORES * TEN_YEARS  # below 2⁶³
MOST_GRANTS = (1 << 31) - 1  # to one pilot: the column of attempts has 32 bits
MOST_PILOTS = (1 << 31) - 1


def add_core_ms(total: int, more: int) -> int:
    """Return the sum of two amounts of core-ms, or `MOST_CORE_MS` if that is less."""
    both = total + more
    return both if both < MOST_CORE_MS else MOST_CORE_MS


def bounded_nodes(cores: int, nodes: int) -> int:
    """Return the nodes of a pilot that says how many it has, each with so many cores."""
    return max(min(nodes, MOST_CORES // cores), 1)
