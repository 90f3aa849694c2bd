"""Wait for the end of a bag, over restarts of the server, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from windfall.errors import NoServer

if TYPE_CHECKING:
    from windfall.client import types
    from windfall.client.api import Api

FINAL = ("succeeded", "failed", "cancelled")
"""States in which a bag stays unless somebody acts on it."""


def wait(api: Api, bag: int, on_update: Callable[[dict[str, int]], None] | None = None) -> types.BagInfo:
    """Wait until a bag has ended; return it.  `on_update` is told the counts."""
    while True:
        now = api.bag(bag)
        if on_update:
            on_update(now["counts"])
        if now["state"] in FINAL:
            return now
        update: types.Update = {}
        try:
            for update in api.watch(bag, int(now.get("position", 0))):
                if on_update and update.get("counts"):
                    on_update(update["counts"])
                if update.get("done"):
                    break
        except NoServer:
            pass  # `api.bag` asks next, with patience, and raises if no server answers
        time.sleep(0 if update.get("done") else 0.05)
