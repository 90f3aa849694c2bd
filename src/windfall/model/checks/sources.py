"""Validation of the sources of tasks: sweeps, lines and items.  The checks count and never expand."""

from __future__ import annotations

import math

from windfall.errors import BadInput, TooLarge
from windfall.model.checks.bounds import at_most, check_clean, check_text, distinct, within
from windfall.model.spec import (
    MAX_NAME,
    MAX_TASKS,
    MAX_TEXT,
    Axis,
    Items,
    Latin,
    Law,
    Lines,
    Range,
    Sample,
    Source,
    Sweep,
    Table,
    Value,
    Values,
    Zip,
)  # fmt: skip
from windfall.model.templates import template as tpl
from windfall.model.templates.columns import text_of
from windfall.model.templates.render import axis_names, axis_size
from windfall.model.templates.sample import check_law
from windfall.model.templates.table import check_table, longest

MAX_AXES = 64
MAX_DERIVED = 256


def check_source(source: Source) -> None:
    if isinstance(source, Lines):
        _lines(source)
    elif isinstance(source, Items):
        _items(source)
    else:
        _sweep(source)


def _lines(source: Lines) -> None:
    text = source.text
    found = text.count("\n") + 1 if text else 0
    if found != source.count:
        raise BadInput(f"the bag says {source.count} lines, but has {found}")
    if not text:
        return
    check_clean(text, "a command")
    if text.startswith("\n") or text.endswith("\n") or "\n\n" in text:
        raise BadInput("there is an empty line among the commands")
    if len(text) > MAX_TEXT and max(map(len, text.split("\n"))) > MAX_TEXT:
        raise TooLarge(f"a command is longer than {MAX_TEXT:,} characters")


def _items(source: Items) -> None:
    for item in source.items:
        if not item:
            raise BadInput("there is an empty item among the commands")
        if len(item) > MAX_TEXT:
            raise TooLarge(
                f"an item of {len(item):,} characters; at most {MAX_TEXT:,}", "give large data as an input file"
            )
        check_clean(item, "a command")


def _sweep(sweep: Sweep) -> None:
    at_most(len(sweep.axes), MAX_AXES, "axes of a sweep")
    at_most(len(sweep.derived), MAX_DERIVED, "derived parameters")
    for axis in sweep.axes:
        check_axis(axis)
    found = parameters(sweep)
    for name in found:
        parameter_name(name)
    distinct(found, "the parameter '{}' is given twice")
    for derived in sweep.derived:
        check_text(derived.template, f"the parameter '{derived.name}'")


def parameters(sweep: Sweep) -> list[str]:
    return [name for axis in sweep.axes for name in axis_names(axis)] + [derived.name for derived in sweep.derived]


def parameter_name(name: str) -> None:
    if not tpl.NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise BadInput(f"'{tpl.excerpt(name)}' cannot be the name of a parameter", "use letters, digits, - and _")


def check_axis(axis: Axis) -> None:
    if isinstance(axis, Range):
        _range(axis)
    elif isinstance(axis, Values):
        _values(axis)
    elif isinstance(axis, Sample):
        _drawn(axis, [axis.law])
    elif isinstance(axis, Latin):
        _latin(axis)
    elif isinstance(axis, Table):
        check_clean(axis.text, "a table")
        check_table(axis)
    else:
        _zip(axis)
    if axis_size(axis) == 0 and not isinstance(axis, Table):  # a table may be filled later, if the bag is open
        hint = "a range goes from its first to its last value; give a negative step to count down"
        raise BadInput(
            f"'{', '.join(axis_names(axis))}' has no values, so the sweep is empty",
            hint if isinstance(axis, Range) else "give it at least one",
        )


def _range(axis: Range) -> None:
    for number in (axis.first, axis.last, axis.step):
        check_value(number, axis.name)
    if axis.step == 0:
        raise BadInput(f"the range of '{axis.name}' has step 0")


def _latin(axis: Latin) -> None:
    at_most(len(axis.columns), MAX_AXES, "columns of a Latin hypercube")
    if not axis.columns:
        raise BadInput("the Latin hypercube has no parameters", 'as in x = "uniform(0, 1)"')
    _drawn(axis, axis.columns)


def _zip(axis: Zip) -> None:
    at_most(len(axis.columns), MAX_AXES, "columns of a zip")
    for column in axis.columns:
        _values(column)
    lengths = {column.name: len(column.values) for column in axis.columns}
    if len(set(lengths.values())) != 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise BadInput(f"the lists of a zip must be equally long: {found or 'there is none'}")


def _drawn(axis: Sample | Latin, laws: list[Law]) -> None:
    within(axis.n, 1, MAX_TASKS, "n")
    within(axis.seed, -(1 << 63), (1 << 63) - 1, "seed")
    for law in laws:
        check_law(law)


def _values(axis: Values) -> None:
    for value in axis.values:
        check_value(value, axis.name)


def check_value(value: Value, name: str) -> None:
    if isinstance(value, str):
        check_text(value, f"a value of '{name}'")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BadInput(f"a value of '{name}' is not finite")
    elif not -(1 << 63) <= value < 1 << 63:
        raise BadInput(f"a value of '{name}' does not fit 64 bits")


def longest_values(sweep: Sweep) -> dict[str, int]:
    """Return {parameter: the most characters that one of its values can have}."""
    found: dict[str, int] = {}
    for axis in sweep.axes:
        found.update(_longest_of(axis))
    templates = {derived.name: tpl.pieces(derived.template) for derived in sweep.derived}
    while len(found) < len(parameters(sweep)):
        for name, template in templates.items():
            if name not in found and all(part in found for part in tpl.names(template)):
                found[name] = swollen(template, found)
                at_most(found[name], MAX_TEXT, f"characters in '{name}'")
    return found


def _longest_of(axis: Axis) -> dict[str, int]:
    if isinstance(axis, (Range, Sample, Latin)):
        return dict.fromkeys(axis_names(axis), 25)
    if isinstance(axis, Table):
        return longest(axis)
    columns = [axis] if isinstance(axis, Values) else axis.columns
    return {column.name: max(map(len, map(text_of, column.values))) for column in columns}


def swollen(template: list[tpl.Piece], most: dict[str, int]) -> int:
    """Return the most characters that a template can give, without the output files of other targets."""
    return sum(most.get(piece.name, 0) if isinstance(piece, tpl.Slot) else len(piece) for piece in template)
