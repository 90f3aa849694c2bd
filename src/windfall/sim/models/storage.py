"""What really lies where: the disks of sites and hosts.

The core believes what it was told; whether a copy is there when somebody comes for it is decided here.  What comes from
home is always there, what was staged at a site lies there until the site's disk is lost.
"""

from __future__ import annotations

from collections.abc import Hashable

HOME = "home"


class Storage:
    def __init__(self) -> None:
        self._disks: dict[str, dict[Hashable, int]] = {}  # place → what → bytes
        self._lost: set[str] = set()

    def put(self, place: str, what: Hashable, size: int) -> None:
        self._disks.setdefault(place, {})[what] = size

    def has(self, place: str, what: Hashable) -> bool:
        """Files from outside have no number of a task: they are at home, and where they were staged."""
        outside = isinstance(what, tuple) and what[-1] < 0
        return place == HOME or (outside and place not in self._lost) or what in self._disks.get(place, {})

    def used(self, place: str) -> int:
        return sum(self._disks.get(place, {}).values())

    def lose(self, place: str) -> None:
        """The disk is gone with all it had."""
        self._disks.pop(place, None)
        self._lost.add(place)
