"""A state as plain values: two states are the same if these are equal.

For tests and for doubt: what was recovered from snapshot and journal must equal what was lost with the process.  The
fields that are compared follow from the declarations of the records (`state/fields.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import is_dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from windfall.core.state.columns import Attempts, Hosts, Table
from windfall.core.state.fields import compared
from windfall.core.state.graph import Graph
from windfall.core.state.world import State

_SCALARS = (int, float, str, bytes, type(None))


def fingerprint(state: State) -> dict[str, Any]:
    made = {name: _plain(getattr(state, name)) for name in compared(State)}
    del made["now"]  # the clock has gone on
    made["host_reasons"] = {row: says for row, says in state.host_reasons.items() if state.hosts.standing[row]}
    made["hosts"] = _hosts(state.hosts, state.host_names)
    made["attempt_numbers"] = state.attempts.np_number[state.attempts.np_number > 0].tolist()  # none is given out twice
    for number, pilot in state.pilots.items():  # classes are numbered as they come up
        cls = state.pilot_classes[pilot.cls]
        made["pilots"][number]["class"] = [list(cls.owners), cls.memory]
    return made


def differences(before: Any, after: Any, path: str = "") -> list[str]:
    """Return a line for every part in which two fingerprints differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = list(dict.fromkeys([*before, *after]))
        return [line for key in keys for line in differences(before.get(key), after.get(key), f"{path}/{key}")]
    return [] if before == after else [f"{path}: {before} → {after}"]


def _plain(value: Any) -> Any:
    """Raise TypeError for a kind of value that has no plain form here: its field needs a mark, or this another line."""
    if isinstance(value, _SCALARS):
        return value
    if is_dataclass(value):
        kind: Any = type(value)
        return {name: _plain(getattr(value, name)) for name in compared(kind)}
    if isinstance(value, dict):
        return {_key(key): _plain(each) for key, each in value.items() if not _is_zero(each)}
    if isinstance(value, list | tuple | deque):
        return [_plain(each) for each in value]
    if isinstance(value, msgspec.Struct):
        return [_plain(each) for each in msgspec.structs.astuple(value)]
    if isinstance(value, Graph):
        return {"edges": value.edges.pairs().tobytes(), "pending": value.np_pending.tolist()}
    if isinstance(value, Attempts):
        return _columns(value, np.flatnonzero(value.np_state[: value.rows]))
    if isinstance(value, Table):
        return _columns(value, np.arange(value.rows))
    raise TypeError(f"a fingerprint cannot say {type(value).__name__}")


def _is_zero(value: Any) -> bool:
    """A count of nothing may be kept or dropped."""
    return type(value) is int and value == 0


def _key(key: Any) -> Any:
    return msgspec.structs.astuple(key) if isinstance(key, msgspec.Struct) else key


def _columns(table: Table, rows: NDArray[np.intp]) -> dict[str, list[int]]:
    return {name: getattr(table, "np_" + name)[rows].tolist() for name, _ in table.LAYOUT}


def _hosts(hosts: Hosts, names: list[tuple[str, str, str]]) -> dict[str, dict[str, int]]:
    return {" ".join(name[:2]): {column: getattr(hosts, column)[row] for column, _ in hosts.LAYOUT}
            for row, name in enumerate(names)}
