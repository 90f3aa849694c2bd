"""`client.call`: one Python call on a pilot, without threads.

Calls are tasks of one open bag: appending a task is one request, and its result comes on a watch that is already open.
For many calls at once there is `Executor`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windfall.client.functions.payload import Packer, checked, outcome, stored_result, unpacked
from windfall.errors import Conflict, NoServer
from windfall.model.calls import reference
from windfall.model.spec import Bag, Items, Target

if TYPE_CHECKING:
    from windfall.client.api import Api


ABSENCE = 600_000  # ms for which the process may be away before its bag is closed


class CallBag:
    """The open bag of a client's calls."""

    def __init__(self, api: Api):
        self._api = api
        self._packer = Packer(self._upload)
        self._open()

    def _open(self) -> None:
        target = Target(kind="call", source=Items(items=[]), retries=0)
        self._bag = self._api.submitted(Bag(name="calls", targets=[target], open=True, absence=ABSENCE))["bag"]
        self._position = 0
        self._rows: dict[int, dict[str, Any]] = {}
        self._updates: Any = None  # a stream of updates

    def close(self) -> None:
        if self._updates is not None:
            self._updates.close()
        self._api.close_bag(self._bag)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text = checked(self._packer.call(self._packer.function(function), args, kwargs))
        if self._updates is None:
            self._updates = self._api.watch(self._bag, self._position, rows=True)
        try:
            added = self._api.append(self._bag, Items(items=[text]))
        except Conflict:  # somebody has closed the bag, or the server has, since this client was away
            self._updates.close()
            self._open()
            added = self._api.append(self._bag, Items(items=[text]))
        return value_of(self._wait_for_row(added["first"]), self._api.download)

    def _upload(self, data: bytes) -> str:
        sha = hashlib.sha256(data).hexdigest()
        self._api.upload(sha, data)
        return reference(sha, len(data))

    def _wait_for_row(self, task: int) -> dict[str, Any]:
        while task not in self._rows:
            try:
                update = next(self._updates) if self._updates else None
            except (NoServer, StopIteration):
                update = None
            if update is None:
                self._updates = self._api.watch(self._bag, self._position, rows=True)
                continue
            self._position = max(self._position, update.get("position", 0))
            for row in update.get("rows") or ():
                self._rows[row["task"]] = row
        return self._rows.pop(task)


def value_of(row: dict[str, Any], download: Callable[[str, int], bytes]) -> Any:
    """Return the value of a call's row, or raise what the call raised."""
    reason = row.get("note") or row.get("why") or row.get("outcome") or row.get("state") or ""
    stored = stored_result(row.get("value") or "", row.get("files") or ())
    value, error = unpacked(download(*stored)) if stored else outcome(row.get("value") or "", reason)
    if error is not None:
        raise error
    return value
