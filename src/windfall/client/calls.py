"""One Python call, there and back.

Calls go to an open bag that this client keeps for them: appending a task is one request, its result comes on a
watch that is already open.  A call travels as base64 of `pickle((function, args, kwargs))`, by cloudpickle
where it is installed and the function cannot be found by name; a result as base64 of `pickle(("ok", value))` or
`pickle(("error", exception or None, traceback))`.  We unpickle only what our own pilots sent for our own calls.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, NoServer, WindfallError
from ..model.spec import MAX_TEXT, Bag, Items, Target

if TYPE_CHECKING:
    from .client import Client


class CallFailed(WindfallError):
    """The call did not come to an end: its process died, ran out of time or memory, or never started."""

    code = "call-failed"


class Calls:
    def __init__(self, client: Client):
        self._client = client
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
        if self._updates is None:
            self._updates = self._client.watch(self._bag, self._position, rows=True)
        added = self._client.append(self._bag, Items(items=[packed(function, args, kwargs)]))
        return unpacked(self._row(added["first"]))

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


def packed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    text = base64.b64encode(_dumps((function, args, kwargs))).decode()
    if len(text) > MAX_TEXT:
        raise BadInput(f"the call and its arguments take {len(text):,} bytes", "put large data in a file")
    return text


def _dumps(call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> bytes:
    function = call[0]
    if getattr(function, "__module__", None) != "__main__":
        try:
            return pickle.dumps(call, protocol=4)
        except (pickle.PicklingError, AttributeError, TypeError):
            pass
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise BadInput(
            f"{getattr(function, '__qualname__', function)!r} cannot be found by name on another machine",
            "put it in a module that is installed there, or install cloudpickle",
        ) from None
    data: bytes = cloudpickle.dumps(call, protocol=4)
    return data


def unpacked(row: dict[str, Any]) -> Any:
    value = row.get("value")
    if not value:
        why = row.get("note") or row.get("why") or row.get("outcome") or "no reason was given"
        raise CallFailed(f"the call did not come to an end: {why}")
    kind, result, *rest = pickle.loads(base64.b64decode(value))
    if kind == "ok":
        return result
    text = str(rest[0]) if rest else ""
    if not isinstance(result, BaseException):
        raise CallFailed(f"the call failed, and what it raised cannot be brought here:\n{text}")
    result.add_note(f"raised on a pilot:\n{text}")
    raise result
