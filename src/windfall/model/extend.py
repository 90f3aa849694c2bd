"""Extension of a sweep: the points of a new sweep that the old one does not have.

A point is its parameters, by name and text; the way the sweep was written, and derived parameters, do not matter.
Axes that share parameters in either sweep are compared together, the others separately: with parts A × B before and
A' × B' now, the new points are (A' - A) × B' and (A' ∩ A) × (B' - B).  So a sweep of ten million points grows by
arithmetic on its axes, and points are listed only where arithmetic cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from windfall.errors import BadInput, TooLarge
from windfall.model.spec import Axis, Range, Sweep, Value, Values, Zip
from windfall.model.templates import template as tpl
from windfall.model.templates.columns import text_of
from windfall.model.templates.render import Files, Space, axis_names, range_size, same_parameters, source_count

MAX_LISTED = 2_000_000  # points of axes that are compared one by one, or put together

Points = dict[tuple[str, ...], tuple[Value, ...]]  # texts → values


class AxisComparison(NamedTuple):
    """The comparison of old and new axes that share parameters."""

    only: list[Axis]  # points that are new, in disjoint pieces
    both: Axis | None  # points that were there
    all: Axis


def new_points(old: Sweep, new: Sweep) -> Sweep | None:
    """Return the points of `new` that `old` does not have, each once, as one sweep; None if there are none."""
    found = boxes(old, new)
    if len(found) < 2:
        return found[0] if found else None
    return Sweep(axes=[_joined(found)], derived=new.derived)


def same_files(had: Sequence[Files], now: Sequence[Files]) -> None:
    """Refuse a file whose content differs from the one that earlier points of the bag ran with."""
    for before, files in zip(had, now, strict=True):
        for name, file in files.items():
            if before.get(name, file) != file:
                raise BadInput(
                    f"the input '{tpl.excerpt(name)}' has changed since the bag was submitted or last extended",
                    "put the former file back, give the new one another name, or make it a bag of its own",
                    text=tpl.excerpt(name),
                )


def boxes(old: Sweep, new: Sweep) -> list[Sweep]:
    """Return the new points as disjoint sweeps, none of them longer than its axes."""
    same_parameters(_names(old), _names(new))
    parts = [_compared(before, now) for before, now in _groups(old, new)]
    found, shared = [], list[Axis]()
    for at, part in enumerate(parts):
        rest = [later.all for later in parts[at + 1 :]]
        found += [Sweep(axes=[*shared, axis, *rest], derived=new.derived) for axis in part.only]
        if part.both is None:
            break
        shared.append(part.both)
    return found


def _names(sweep: Sweep) -> list[str]:
    return [name for axis in sweep.axes for name in axis_names(axis)]


def _groups(old: Sweep, new: Sweep) -> list[tuple[list[Axis], list[Axis]]]:
    """Return groups of (old axes, new axes) that share parameters."""
    groups: list[tuple[set[str], list[Axis], list[Axis]]] = []
    for axis, is_old in chain(((axis, True) for axis in old.axes), ((axis, False) for axis in new.axes)):
        names, before, now = set(axis_names(axis)), list[Axis](), list[Axis]()
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, before, now = names | group[0], before + group[1], now + group[2]
        (before if is_old else now).append(axis)
        groups.append((names, before, now))
    return [(before, now) for _, before, now in groups]


def _compared(before: list[Axis], now: list[Axis]) -> AxisComparison:
    if len(before) == len(now) == 1:
        part = _ranges(before[0], now[0])
        if part:
            return part
    old, new = _listed(before), _listed(now)
    order = sorted(_names(Sweep(axes=now)))
    fresh = {texts: values for texts, values in new.items() if texts not in old}
    known = {texts: values for texts, values in new.items() if texts in old}
    return AxisComparison(
        [_axis(order, fresh)] if fresh else [], _axis(order, known) if known else None, _axis(order, new)
    )


def _ranges(old: Axis, new: Axis) -> AxisComparison | None:
    """Compare two ranges of whole numbers with the same step by arithmetic; return None for other axes."""
    if not (isinstance(old, Range) and isinstance(new, Range)):
        return None
    first, step, there = new.first, new.step, old.first
    numbers = (first, new.last, step, there, old.last, old.step)
    if not all(isinstance(number, int) for number in numbers) or step != old.step or (there - first) % step:
        return None
    size = range_size(new)
    start = min(max(int(there - first) // int(step), 0), size)  # where the old ones begin among the new
    end = max(min(int(there - first) // int(step) + range_size(old), size), start)
    if start == end:
        return AxisComparison([new], None, new)
    only = [_cut(new, *piece) for piece in ((0, start), (end, size)) if piece[0] < piece[1]]
    return AxisComparison(list(only), _cut(new, start, end), new)


def _cut(axis: Range, start: int, end: int) -> Range:
    return Range(
        name=axis.name, first=axis.first + start * axis.step, last=axis.first + (end - 1) * axis.step, step=axis.step
    )


def _listed(axes: list[Axis]) -> Points:
    """Return every point of some axes, columns in the order of their names."""
    sweep = Sweep(axes=axes)
    count = source_count(sweep)
    if count > MAX_LISTED:
        raise TooLarge(
            f"{count:,} points would have to be compared one by one; at most {MAX_LISTED:,}", "make it a bag of its own"
        )
    columns = Space(sweep).columns
    rows = zip(*(columns[name].values(range(count)) for name in sorted(columns)), strict=True)
    return {tuple(map(text_of, row)): row for row in rows}


def _axis(names: list[str], points: Points) -> Axis:
    columns = zip(*points.values(), strict=True)
    found = [Values(name=name, values=list(values)) for name, values in zip(names, columns, strict=True)]
    return found[0] if len(found) == 1 else Zip(columns=found)


def _joined(sweeps: list[Sweep]) -> Axis:
    total = sum(map(source_count, sweeps))
    if total > MAX_LISTED:
        raise TooLarge(
            f"{total:,} new points would have to be listed; at most {MAX_LISTED:,}",
            "extend one parameter at a time, or make it a bag of its own",
        )
    points: Points = {}
    for sweep in sweeps:
        points.update(_listed(sweep.axes))
    return _axis(sorted(_names(sweeps[0])), points)
