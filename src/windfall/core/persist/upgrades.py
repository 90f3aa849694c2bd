"""Snapshots of earlier formats, made into today's.

    7   the first format that a release may read: rows say which fields they have

An upgrade takes the rows and chunks of a snapshot of one version and returns those of the next.  It may not use the
classes of today's state, which go on changing.  Added fields and columns need no upgrade.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.errors import StoreCorrupt, StoreTooNew

Upgrade = Callable[[dict[str, Any], dict[str, bytes]], tuple[dict[str, Any], dict[str, bytes]]]

FIRST = 7
UPGRADES: tuple[Upgrade, ...] = ()  # from FIRST, from FIRST + 1, …
VERSION = FIRST + len(UPGRADES)


def upgrade(
    meta: dict[str, Any], chunks: dict[str, bytes], upgrades: tuple[Upgrade, ...] = UPGRADES
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the snapshot's rows and chunks in the format after the last of `upgrades`."""
    version, newest = meta["version"], FIRST + len(upgrades)
    if version > newest:
        raise StoreTooNew(f"the snapshot is of version {version}; this Windfall reads those up to {newest}",
                          "start the newer Windfall that wrote it; nothing was changed")
    if version < FIRST:
        raise StoreCorrupt(f"the snapshot is of version {version}; this Windfall reads those from {FIRST} on",
                           "a Windfall from before the first release wrote it: start that one, or an empty server")
    for step in upgrades[version - FIRST :]:
        meta, chunks = step(meta, chunks)
    return meta, chunks
