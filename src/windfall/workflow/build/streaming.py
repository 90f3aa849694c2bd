"""Send a large graph part by part: its first tasks run while the last are still on their way.

Rules
  * The client checks the whole bag before it sends anything, so a user sees every mistake while nothing runs.
  * Parts are cut along an order, level by level, in which every task comes after the tasks it waits for.  The first
    part makes the bag, which stays open; the other parts continue its numbers; then the bag is closed.
  * So tasks have other numbers on the server: `CutBag.numbers`.  `whole` is the way back, from a server's record of
    such a bag.
  * Only a bag with more than one part of tasks, whose tasks are rows with outputs of fixed names, is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Protocol

import msgspec
import numpy as np

from windfall.model.spec import Bag, Flows, Part, Piece, Range, Source, Sweep, Table, Target
from windfall.model.templates import template as tpl
from windfall.model.templates.render import source_count
from windfall.model.templates.table import lines
from windfall.workflow.graphs.dag import Dag, shape

PART = 10_000  # tasks


@dataclass(frozen=True)
class CutBag:
    bag: Bag  # open, with the tasks of the first part
    numbers: np.ndarray  # task of the whole bag → its number in the bag that is sent
    parts: Iterator[Part]  # the other parts, made one by one


def cut(bag: Bag, size: int = 0) -> CutBag | None:
    """Cut a bag into parts of `size` tasks, or of `PART`; None if the bag is small or cannot be cut."""
    size = size or PART
    total = sum(source_count(target.source) for target in bag.targets)
    return _Cutter(bag, total, size).cut() if total > size and _can_be_cut(bag) else None


def _can_be_cut(bag: Bag) -> bool:
    plain = not bag.open and bag.policy.select == "fcfs" and bag.policy.batch <= 1
    return plain and all(map(_has_rows, bag.targets))


def _has_rows(target: Target) -> bool:
    named = any(tpl.names(tpl.pieces(text)) for text in target.outputs)
    source = target.source
    if not isinstance(source, Sweep) or len(source.axes) != 1 or target.after or target.takes or named:
        return False
    axis = source.axes[0]
    return isinstance(axis, Table) or (isinstance(axis, Range) and isinstance(axis.first, int) and axis.step == 1)


class _Cutter:
    def __init__(self, bag: Bag, total: int, size: int) -> None:
        self.bag, self.total, self.size = bag, total, size
        self.starts = list(accumulate((source_count(target.source) for target in bag.targets), initial=0))
        self.flows = _FlowArrays(bag.flows) if bag.flows is not None else None
        self.edges = np.array(bag.edges, np.int32).reshape(-1, 2)
        self.part = self._parts()  # task → its part
        self.tasks = np.argsort(self.part, kind="stable")  # by part, then by number
        self.numbers = np.empty(total, np.int32)
        self.numbers[self.tasks] = np.arange(total, dtype=np.int32)
        self.rows = [_rows(target.source) for target in bag.targets]

    def _parts(self) -> np.ndarray:
        pairs = [self.edges] if self.flows is None else [self.edges, self.flows.pairs()]
        src, dst = np.concatenate(pairs).T
        part = np.empty(self.total, np.int32)
        part[_order(self.total, src, dst)] = np.arange(self.total, dtype=np.int64) // self.size
        return part

    def cut(self) -> CutBag:
        edges = _RowsByPart(self.part[self.edges[:, 1]])
        flows = _RowsByPart(self.part[self.flows.after]) if self.flows is not None else None
        made = (self._made(at, edges, flows) for at in range(-(-self.total // self.size)))
        first = next(made)
        sources = {piece.target: piece.source for piece in first.pieces}
        targets = [msgspec.structs.replace(target, source=sources.get(target.name, self._source(place, ())))
                   for place, target in enumerate(self.bag.targets)]
        bag = msgspec.structs.replace(self.bag, targets=targets, open=True, edges=first.edges, flows=first.flows)
        return CutBag(bag, self.numbers, made)

    def _made(self, at: int, edges: _RowsByPart, flows: _RowsByPart | None) -> Part:
        first = at * self.size
        tasks = self.tasks[first : first + self.size]
        bounds = np.searchsorted(tasks, self.starts).tolist()
        pieces = [Piece(target=target.name, source=self._source(place, (tasks[lo:hi] - self.starts[place]).tolist()))
                  for place, (target, lo, hi) in enumerate(zip(self.bag.targets, bounds, bounds[1:], strict=False))
                  if hi > lo]
        pairs = self.numbers[self.edges[edges.of(at)]]
        files = None
        if self.flows is not None and flows is not None:
            files = self.flows.some(flows.of(at), self.numbers, every=at == 0)
        return Part(first=first, pieces=pieces, edges=list(map(tuple, pairs.tolist())), flows=files)

    def _source(self, place: int, chosen: Sequence[int]) -> Sweep:
        source = self.bag.targets[place].source
        assert isinstance(source, Sweep)
        columns, rows = self.rows[place]
        table = Table(columns=columns, text="\n".join([rows[each] for each in chosen]), count=len(chosen))
        return Sweep(axes=[table], derived=source.derived)


def _order(total: int, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    if bool((src < dst).all()):
        return np.arange(total)
    return shape(Dag(total, src, dst, np.ones(total, bool))).order


def _rows(source: Source) -> tuple[list[str], list[str]]:
    """Return a source's columns, and each task's row as a table writes it."""
    assert isinstance(source, Sweep)
    axis = source.axes[0]
    if isinstance(axis, Range):
        return [axis.name], [str(axis.first + number * axis.step) for number in range(source_count(source))]
    assert isinstance(axis, Table)
    return axis.columns, axis.text.split("\n") if '"' not in axis.text else list(lines(axis))


class _RowsByPart:
    """Rows of edges or flows, grouped by the part that their later task is in."""

    def __init__(self, parts: np.ndarray) -> None:
        self._order = np.argsort(parts, kind="stable")
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(parts))])

    def of(self, part: int) -> np.ndarray:
        if part + 1 >= len(self._bounds):
            return self._order[:0]
        return self._order[self._bounds[part] : self._bounds[part + 1]]


class _FlowArrays:
    """Flows as arrays."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        columns = (flows.before, flows.name, flows.after, flows.place)
        self.before, self.name, self.after, self.place = (np.array(column, np.int32) for column in columns)

    def pairs(self) -> np.ndarray:
        pairs = np.stack([self.before, self.after], 1)
        return pairs[pairs[:, 0] >= 0]

    def some(self, chosen: np.ndarray, numbers: np.ndarray, every: bool) -> Flows:
        """Return the chosen flows with the names and blobs they need.

        `every` keeps all blobs, so that the server misses an absent one at once."""
        before = self.before[chosen]
        blobs, place = np.unique(before[before < 0], return_inverse=True)
        if every:
            blobs, place = np.arange(-1, -1 - len(self._flows.blobs), -1), -1 - before[before < 0]
        renumbered = numbers[np.maximum(before, 0)]
        renumbered[before < 0] = -1 - place
        names, used = np.unique(np.concatenate([self.name[chosen], self.place[chosen]]), return_inverse=True)
        return Flows(
            names=[self._flows.names[each] for each in names.tolist()], before=renumbered.tolist(),
            name=used[: len(chosen)].tolist(), after=numbers[self.after[chosen]].tolist(),
            place=used[len(chosen) :].tolist(), blobs=[self._flows.blobs[-1 - each] for each in blobs.tolist()])


# --- back ------------------------------------------------------------------------------------------------------------


class AppendedTasks(Protocol):
    """A server's record of tasks appended later (`client/extend.py`)."""

    @property
    def target(self) -> str: ...
    @property
    def source(self) -> Source: ...
    @property
    def edges(self) -> Sequence[tuple[int, int]]: ...
    @property
    def flows(self) -> Flows | None: ...


def whole(bag: Bag, appended: Iterable[AppendedTasks]) -> tuple[Bag, list[int]]:
    """Join a bag sent in parts into the whole bag; return it with each task's number on the server.

    A bag that was not cut here, such as an extended sweep, is returned as it was submitted."""
    later = list(appended)
    sources = [(each.name, each.source) for each in bag.targets] + [(each.target, each.source) for each in later]
    if not later or not _are_tables(sources):
        return bag, list(range(sum(source_count(target.source) for target in bag.targets)))
    found = _by_target(sources)
    targets = [msgspec.structs.replace(target, source=_joined(target.source, found[target.name][0]))
               for target in bag.targets]
    server_numbers = list(chain.from_iterable(tasks for _, tasks in found.values()))
    numbers = np.empty(len(server_numbers), np.int32)
    numbers[server_numbers] = np.arange(len(server_numbers), dtype=np.int32)
    edges = np.array([*bag.edges, *(pair for each in later for pair in each.edges)], np.int32).reshape(-1, 2)
    flows = _together(list(filter(None, [bag.flows, *(each.flows for each in later)])), numbers)
    return msgspec.structs.replace(bag, targets=targets, open=False, flows=flows,
                                   edges=list(map(tuple, numbers[edges].tolist()))), server_numbers


def _are_tables(sources: list[tuple[str, Source]]) -> bool:
    return all(isinstance(source, Sweep) and len(source.axes) == 1 and isinstance(source.axes[0], Table)
               for _, source in sources)


def _by_target(sources: list[tuple[str, Source]]) -> dict[str, tuple[list[Table], list[int]]]:
    """Return the tables of each target, and the numbers that the server has given their tasks."""
    found: dict[str, tuple[list[Table], list[int]]] = {}
    first = 0
    for name, source in sources:
        tables, tasks = found.setdefault(name, ([], []))
        tables.append(source.axes[0])  # type: ignore[union-attr, arg-type]
        tasks += range(first, first + source_count(source))
        first += source_count(source)
    return found


def _joined(source: Source, tables: list[Table]) -> Sweep:
    assert isinstance(source, Sweep)
    text = "\n".join(table.text for table in tables if table.count)
    table = Table(columns=tables[0].columns, text=text, count=sum(table.count for table in tables))
    return Sweep(axes=[table], derived=source.derived)


def _together(parts: list[Flows], numbers: np.ndarray) -> Flows | None:
    names: dict[str, int] = {}
    blobs: dict[tuple[str, int, int], int] = {}
    before: list[int] = []
    name: list[int] = []
    after: list[int] = []
    place: list[int] = []
    for flows in parts:
        called = [names.setdefault(each, len(names)) for each in flows.names]
        brought = [-1 - blobs.setdefault(each, len(blobs)) for each in flows.blobs]
        before += [int(numbers[each]) if each >= 0 else brought[-1 - each] for each in flows.before]
        name += [called[each] for each in flows.name]
        after += numbers[flows.after].tolist()
        place += [called[each] for each in flows.place]
    if not before:
        return None
    return Flows(names=list(names), before=before, name=name, after=after, place=place, blobs=list(blobs))
