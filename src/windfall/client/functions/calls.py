"""One Python call, there and back, without threads.

Calls go to an open bag that this client keeps for them: appending a task is one request, its result comes on a
watch that is already open.  For many calls at once there is `Executor`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from windfall.client.functions.payload import Packer, checked, outcome
from windfall.errors import NoServer
from windfall.model.calls import reference
from windfall.model.spec import Bag, Items, Target

if TYPE_CHECKING:
    from windfall.client.client import Client


class Calls:
    def __init__(self, client: Client):
        self._client = client
        self._packer = Packer(self._keep)
        target = Target(kind="call", source=Items(items=[]), retries=0)
        self._bag = client.submit(Bag(name="calls", targets=[target], open=True))
        self._position = 0
        self._rows: dict[int, dict[str, Any]] = {}
        self._updates: Iterator[Any] | None = None

    def close(self) -> None:
        if self._updates is not None:
            self._updates.close()  # type: ignore[attr-defined]
        self._client.close_bag(self._bag)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text = checked(self._packer.call(function, args, kwargs))
        if self._updates is None:
            self._updates = self._client.watch(self._bag, self._position, rows=True)
        added = self._client.append(self._bag, Items(items=[text]))
        return unpacked(self._row(added["first"]))

    def _keep(self, data: bytes) -> str:
        sha = hashlib.sha256(data).hexdigest()
        self._client.upload(sha, data)
        return reference(sha, len(data))

    def _row(self, task: int) -> dict[str, Any]:
        while task not in self._rows:
            try:
                update = next(self._updates) if self._updates else None
            except NoServer:
                update = None
            except StopIteration:
                update = None
            if update is None:
                self._updates = self._client.watch(self._bag, self._position, rows=True)
                continue
            self._position = max(self._position, update.get("position", 0))
            for row in update.get("rows") or ():
                self._rows[row["task"]] = row
        return self._rows.pop(task)


def unpacked(row: dict[str, Any]) -> Any:
    why = row.get("note") or row.get("why") or row.get("outcome") or row.get("state") or ""
    result, error = outcome(row.get("value") or "", why)
    if error is not None:
        raise error
    return result
