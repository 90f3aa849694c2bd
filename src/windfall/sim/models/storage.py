"""The disks of sites and hosts: the files that really lie there.

The core believes the reports that it has; whether a copy is there when a pilot comes for it is decided here.  Files at
home are always there; files that were staged at a site lie there until the site's disk is lost.
"""

from __future__ import annotations

from collections.abc import Hashable

HOME = "home"


class Storage:
    def __init__(self) -> None:
        self._disks: dict[str, dict[Hashable, int]] = {}  # place → file set → bytes
        self._lost: set[str] = set()

    def put(self, place: str, what: Hashable, size: int) -> None:
        self._disks.setdefault(place, {})[what] = size

    def has(self, place: str, what: Hashable) -> bool:
        """Does a file set lie at a place?  Files from outside carry a negative task number: they lie at home, and
        wherever they were staged."""
        outside = isinstance(what, tuple) and what[-1] < 0
        return place == HOME or (outside and place not in self._lost) or what in self._disks.get(place, {})

    def used(self, place: str) -> int:
        return sum(self._disks.get(place, {}).values())

    def lose(self, place: str) -> None:
        """Destroy a disk with its files."""
        self._disks.pop(place, None)
        self._lost.add(place)
