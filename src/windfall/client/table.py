"""`BagTable`: a bag in a notebook, its counts and its first results as a table.

Parameters, hosts and notes are text from elsewhere: all of it is escaped, and long text is cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from windfall.client.types import BagInfo, Row

if TYPE_CHECKING:
    from windfall.client.api import Api, BagRef

PAGE = 1000
MAX_CELL = 80  # characters of a cell


class BagTable(NamedTuple):
    bag: BagInfo
    rows: list[Row]

    def __repr__(self) -> str:
        return f"<bag {self.bag['bag']} {printable(self.bag['name'])}, {self.bag['state']}: {_counts(self.bag)}>"

    def _repr_html_(self) -> str:
        bag, names = self.bag, self._names()
        head = ["task", *names, "state", "wall (s)", "host", "note"]
        body = [_line("td", _cells(row, names)) for row in self.rows]
        more = sum(bag["counts"].values()) - len(self.rows)
        rest = f"<p>and {more:,} more tasks</p>" if more > 0 else ""
        return (f"<b>bag {bag['bag']} {_cell(bag['name'])}: {_cell(bag['state'])}</b><p>{_cell(_counts(bag))}</p>"
                f"<table>{_line('th', head)}{''.join(body)}</table>{rest}")

    def _names(self) -> list[str]:
        """Return the names of parameters and captured values, in the order in which the rows bring them."""
        return list(dict.fromkeys(name for row in self.rows for name in (*row["params"], *(row.get("values") or ()))))


def printable(text: str) -> str:
    """Return a line for a terminal: without control characters, which could move its cursor or hide lines."""
    return "".join(char if char.isprintable() else "?" for char in text)


def table_of(api: Api, bag: BagRef, most: int) -> BagTable:
    """Return a bag and its first results."""
    found = api.bag(bag)
    rows = api.results(found["bag"], page=min(most, PAGE)) if most > 0 else iter(())
    return BagTable(found, list(islice(rows, max(0, most))))


def _counts(bag: BagInfo) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in bag["counts"].items() if count) or "no tasks"


def _cells(row: Row, names: list[str]) -> list[object]:
    known = {**row["params"], **(row.get("values") or {})}
    why = row.get("note") or row.get("why") or ""
    return [row["task"], *(known.get(name, "") for name in names), row["state"], f"{(row['wall'] or 0) / 1000:.1f}",
            row.get("host") or "", why if row["state"] != "succeeded" else ""]


def _line(tag: str, cells: Iterable[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_cell(cell)}</{tag}>" for cell in cells) + "</tr>"


def _cell(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…")
