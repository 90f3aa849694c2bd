"""The columns of a bag's results: its parameters and captured values, between the fields that every row has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windfall.model.spec import Bag

FIELDS = (
    *("state", "exit", "signal", "why", "attempt", "site", "host"),
    *("granted", "started", "ended", "wall", "cpu", "rss", "out_size", "err_size", "note"),
)
MOMENTS = ("granted", "started", "ended")
TAKEN = frozenset(("task", "target", "memory", *FIELDS))


def parameters(bag: Bag) -> list[str]:
    """Return the names of all targets' parameters, in order.

    Parameters of an application's data are left out, as they are empty, and so is the mere number of a task.
    """
    from windfall.model.spec import INSTANCE, Sweep
    from windfall.model.templates.render import axis_names

    names: dict[str, None] = {}
    for target in bag.targets:
        if isinstance(target.source, Sweep):
            for axis in target.source.axes:
                names.update(dict.fromkeys(name for name in axis_names(axis) if name != INSTANCE))
            names.update(dict.fromkeys(derived.name for derived in target.source.derived if derived.template))
    return list(names)


def captured(bag: Bag) -> list[str]:
    """Return the names of all targets' captured values."""
    return list(dict.fromkeys(capture.name for target in bag.targets for capture in target.capture))


class Names:
    """Parameters and captured values, each with the title of its column."""

    def __init__(self, parameters: list[str], captured: list[str]):
        self.parameters = _titles(parameters, "param", TAKEN | {f"value_{name}" for name in captured})
        self.captured = _titles(captured, "value", TAKEN | set(self.parameters.values()))

    def columns(self) -> list[str]:
        """Return the titles of all columns."""
        return ["task", "target", *self.parameters.values(), *self.captured.values(), *FIELDS]

    def cells(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Any]]:
        """Yield each row's cells, in the order of `columns`."""
        for row in rows:
            params, values = row.get("params") or {}, row.get("values") or {}
            yield [row["task"], row.get("target", "main"), *map(params.get, self.parameters),
                   *map(values.get, self.captured), *map(row.get, FIELDS)]


def _titles(names: list[str], prefix: str, taken: frozenset[str] | set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        title = name
        while title in taken or title in found.values() or (title != name and title in names):
            title = f"{prefix}_{title}"
        found[name] = title
    return found
