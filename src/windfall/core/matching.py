"""Demand against room: how many slots of which class at which site."""

from __future__ import annotations


def spread(left: list[int], rooms: list[int], weights: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """`left`: slots wanted per class, `rooms`: pilots per site, `weights`: slots per pilot at (site, class)."""
    found: dict[tuple[int, int], int] = {}
    left, rooms = list(left), list(rooms)
    for (site, cls), slots in weights.items():
        n = min(left[cls], max(rooms[site], 0) * slots)
        if n > 0:
            found[site, cls] = n
            left[cls] -= n
            rooms[site] -= -(-n // slots)
    return found
