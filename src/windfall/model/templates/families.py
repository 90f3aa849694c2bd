"""The files of an input whose name has parameters.

Only the axes that the name uses are walked: `"genome-{chromosome}.fa"` in a sweep of ten million points gives 24 files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from windfall.errors import TooLarge
from windfall.model.spec import Sweep
from windfall.model.templates import template as tpl
from windfall.model.templates.columns import fill
from windfall.model.templates.render import Space, axis_names, axis_size

MAX_POINTS = 1_000_000  # of the axes that a name uses
CHUNK = 4_096


class Rendering(NamedTuple):
    """The texts of some templates, and the first task that has them."""

    task: int
    texts: tuple[str, ...]


def renderings(sweep: Sweep, *templates: str) -> Iterator[Rendering]:
    """Yield the texts of the templates for each point of the axes that they use."""
    pieces = [tpl.pieces(template) for template in templates]
    used = _used(sweep, [name for piece in pieces for name in tpl.names(piece)])
    part = Sweep(
        axes=[axis for axis in sweep.axes if used & set(axis_names(axis))],
        derived=[derived for derived in sweep.derived if derived.name in used],
    )
    space = Space(part)
    if space.count > MAX_POINTS:
        raise TooLarge(
            f"inputs: '{tpl.excerpt(templates[0])}' stands for {space.count:,} files; at most {MAX_POINTS:,}",
            "use fewer parameters in its name",
            text=tpl.excerpt(templates[0]),
        )
    strides = _strides(sweep, part)
    for start in range(0, space.count, CHUNK):
        numbers = range(start, min(start + CHUNK, space.count))
        columns = [fill(piece, space.columns, numbers, shell=False) for piece in pieces]
        for number, texts in zip(numbers, zip(*columns, strict=True), strict=True):
            yield Rendering(_task(number, strides), texts)


def _used(sweep: Sweep, names: list[str]) -> set[str]:
    """Return these parameters and all others from which they are derived."""
    made = {derived.name: tpl.names(tpl.pieces(derived.template)) for derived in sweep.derived}
    used: set[str] = set()
    while names:
        name = names.pop()
        if name not in used:
            used.add(name)
            names += made.get(name, [])
    return used


def _strides(sweep: Sweep, part: Sweep) -> list[tuple[int, int]]:
    """Return (size, distance of its points in the whole sweep) of each axis of the part, the last one first."""
    found, stride = [], 1
    for axis in reversed(sweep.axes):
        if axis in part.axes:
            found.append((axis_size(axis), stride))
        stride *= axis_size(axis)
    return found


def _task(number: int, strides: list[tuple[int, int]]) -> int:
    task = 0
    for size, stride in strides:
        number, digit = divmod(number, size)
        task += digit * stride
    return task
