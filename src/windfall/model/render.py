"""From a task's number to its parameters, command, outputs and environment.

A sweep is never expanded.  Task numbers are read as mixed-radix numbers, one digit per axis, the last axis
fastest; a range's value is arithmetic, so a sweep of ten million tasks costs what its axes cost.  Rendering
works by columns: for the numbers asked for, one list of texts per parameter, one per templated word, then a
transposition.  That keeps the work per task at a few list operations, all of them C loops.

Lists that come back may share rows and words among tasks: read them, do not change them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from ..errors import BadInput
from . import template as tpl
from .spec import Axis, Items, Lines, Range, Source, Sweep, Target, Value, Values

Command = str | list[str]
Template = list[tpl.Piece]


def text_of(value: Value) -> str:
    """A value as it appears in commands: 3, 0.5, true, text as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


# --- axes ------------------------------------------------------------------------------------------------------


def range_size(axis: Range) -> int:
    """Number of values; 0 where the range is empty or cannot be walked."""
    first, last, step = axis.first, axis.last, axis.step
    if step == 0:
        return 0
    if isinstance(first, int) and isinstance(last, int) and isinstance(step, int):
        return max(0, (last - first) // step + 1)
    steps = (last - first) / step
    return max(0, int(steps + 1e-9) + 1) if -1e-9 <= steps < 1e15 else (0 if steps < 0 else 1 << 62)


def axis_size(axis: Axis) -> int:
    if isinstance(axis, Range):
        return range_size(axis)
    if isinstance(axis, Values):
        return len(axis.values)
    return len(axis.columns[0].values) if axis.columns else 0


def axis_names(axis: Axis) -> list[str]:
    return [axis.name] if isinstance(axis, (Range, Values)) else [column.name for column in axis.columns]


def source_count(source: Source) -> int:
    """Number of tasks, by arithmetic."""
    if isinstance(source, Lines):
        return source.count
    if isinstance(source, Items):
        return len(source.items)
    count = 1
    for axis in source.axes:
        count *= axis_size(axis)
    return count


def _decimals(value: int | float) -> int:
    """Digits after the point in the shortest text of a number: 0.1 has one, 2.5e-7 has eight."""
    mantissa, _, exponent = repr(value).partition("e")
    return max(0, len(mantissa.partition(".")[2]) - int(exponent or 0))


class _Digit:
    """Where an axis stands in the task number."""

    def __init__(self, stride: int, size: int, whole: bool):
        self.stride, self.size, self.whole = stride, size, whole

    def of(self, indices: Iterable[int]) -> Iterable[int]:
        stride, size = self.stride, self.size
        if self.whole:
            return indices
        if stride == 1:
            return [i % size for i in indices]
        return [i // stride % size for i in indices]


class _Column:
    """One parameter: its values and their texts at given task numbers."""

    def values(self, indices: Sequence[int]) -> list[Any]:
        raise NotImplementedError

    def texts(self, indices: Sequence[int]) -> list[str]:
        return list(map(text_of, self.values(indices)))

    def quoted(self, indices: Sequence[int], quote: Callable[[str], str]) -> list[str]:
        return list(map(quote, self.texts(indices)))


class _RangeColumn(_Column):
    def __init__(self, axis: Range, digit: _Digit):
        self.first, self.step, self.digit = axis.first, axis.step, digit
        self.exact = all(isinstance(n, int) for n in (axis.first, axis.last, axis.step))
        self.decimals = max(_decimals(axis.first), _decimals(axis.step))

    def values(self, indices: Sequence[int]) -> list[Any]:
        first, step = self.first, self.step
        if self.exact:
            return [first + d * step for d in self.digit.of(indices)]
        values = [float(first + d * step) for d in self.digit.of(indices)]
        # 0..1:0.1 means 0.3 where adding gives 0.30000000000000004
        return [round(v, self.decimals) for v in values] if self.decimals <= 15 else values

    def texts(self, indices: Sequence[int]) -> list[str]:
        return list(map(repr, self.values(indices)))

    def quoted(self, indices: Sequence[int], quote: Callable[[str], str]) -> list[str]:
        return self.texts(indices)  # numbers need none


class _ListColumn(_Column):
    def __init__(self, values: list[Value], digit: _Digit):
        self.all, self.digit = values, digit
        self._texts: dict[object, list[str]] = {}  # whole list as texts, by quoting; made when first needed

    def values(self, indices: Sequence[int]) -> list[Any]:
        every = self.all
        return [every[d] for d in self.digit.of(indices)]

    def texts(self, indices: Sequence[int]) -> list[str]:
        return self._pick(indices, None)

    def quoted(self, indices: Sequence[int], quote: Callable[[str], str]) -> list[str]:
        return self._pick(indices, quote)

    def _pick(self, indices: Sequence[int], quote: Callable[[str], str] | None) -> list[str]:
        every = self._texts.get(quote)
        if every is None:
            texts = map(text_of, self.all)
            every = self._texts[quote] = list(texts if quote is None else map(quote, texts))
        return [every[d] for d in self.digit.of(indices)]


class _DerivedColumn(_Column):
    def __init__(self, template: Template, columns: dict[str, _Column]):
        self.template, self.columns = template, columns

    def values(self, indices: Sequence[int]) -> list[Any]:
        return _fill(self.template, self.columns, indices, shell=False)

    texts = values


def _fill(template: Template, columns: dict[str, _Column], indices: Sequence[int], shell: bool) -> list[str]:
    """One text per index."""
    slots = [piece for piece in template if isinstance(piece, tpl.Slot)]
    if not slots:
        return ["".join(map(str, template))] * len(indices)
    if shell:
        filled = [columns[slot.name].quoted(indices, tpl.QUOTING[slot.context]) for slot in slots]
    else:
        filled = [columns[slot.name].texts(indices) for slot in slots]
    if len(template) == 1:
        return filled[0]
    pattern = "".join("%s" if isinstance(piece, tpl.Slot) else piece.replace("%", "%%") for piece in template)
    return [pattern % texts for texts in (zip(*filled, strict=True) if len(filled) > 1 else filled[0])]


# --- the parameter space ---------------------------------------------------------------------------------------


class Space:
    """A sweep ready to be asked: its parameters by name, those made of others included."""

    def __init__(self, sweep: Sweep):
        self.count = source_count(sweep)
        self.columns: dict[str, _Column] = {}
        stride = self.count
        for axis in sweep.axes:
            size = axis_size(axis)
            stride = stride // size if size else 0
            self._add_axis(axis, _Digit(stride, size, whole=size == self.count))
        self._add_derived(sweep)

    def _add_axis(self, axis: Axis, digit: _Digit) -> None:
        if isinstance(axis, Range):
            self._put(axis.name, _RangeColumn(axis, digit))
        else:
            for column in [axis] if isinstance(axis, Values) else axis.columns:
                self._put(column.name, _ListColumn(column.values, digit))

    def _put(self, name: str, column: _Column) -> None:
        if name in self.columns:
            raise BadInput(f"the parameter '{name}' is given twice")
        self.columns[name] = column

    def _add_derived(self, sweep: Sweep) -> None:
        """In an order in which each finds what it is made of."""
        waiting = {}
        for derived in sweep.derived:
            if derived.name in waiting:
                raise BadInput(f"the parameter '{derived.name}' is given twice")
            waiting[derived.name] = tpl.pieces(derived.template)
        for name, template in waiting.items():
            self.check(template, f"the parameter '{name}'", also=waiting)
        while waiting:
            ready = [name for name, template in waiting.items() if not any(n in waiting for n in tpl.names(template))]
            if not ready:
                raise BadInput(
                    f"the parameters {', '.join(sorted(waiting)[:5])} are made of one another in a circle",
                    text=min(waiting),
                )
            for name in ready:
                self._put(name, _DerivedColumn(waiting.pop(name), self.columns))

    def check(self, template: Template, what: str, also: Iterable[str] = ()) -> Template:
        """Refuse parameters that are not there."""
        for name in tpl.names(template):
            if name not in self.columns and name not in also:
                raise unknown_parameter(name, what, [*self.columns, *also])
        return template


def unknown_parameter(name: str, what: str, known: list[str]) -> BadInput:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    if near:
        hint = f"did you mean {{{near[0]}}}?"
    elif known:
        hint = f"known here: {', '.join(known[:10])}; write {{{{{name}}}}} for the braces themselves"
    else:
        hint = f"there is no sweep to take it from; write {{{{{name}}}}} for the braces themselves"
    return BadInput(f"{what} uses {{{name}}}, which is not a parameter", hint, text=f"{{{name}}}")


# --- commands --------------------------------------------------------------------------------------------------


class _Vector:
    """Words, each templated, never split."""

    def __init__(self, words: list[Template], columns: dict[str, _Column]):
        self.columns = columns
        self.words = words
        self.fixed = not any(tpl.names(word) for word in words)
        self.literal = ["".join(map(str, word)) for word in words] if self.fixed else []

    def render(self, indices: Sequence[int]) -> list[Command]:
        if self.fixed:
            return [self.literal] * len(indices)
        columns: list[Iterable[str]] = [
            _fill(word, self.columns, indices, shell=False) if tpl.names(word) else repeat("".join(map(str, word)))
            for word in self.words
        ]
        return list(map(list, zip(*columns, strict=False)))  # fixed words repeat without end


class _Shell:
    """One text for `/bin/sh -c`."""

    def __init__(self, template: Template, columns: dict[str, _Column]):
        self.template, self.columns = tpl.in_context(template), columns

    def render(self, indices: Sequence[int]) -> list[Command]:
        return list(_fill(self.template, self.columns, indices, shell=True))


class _LineCommands:
    """Commands one after the other, and where each of them ends: 8 bytes a task beside the text.

    Where the text is part of `shared`, bytes that are kept anyway, it is looked at there instead of kept twice.
    """

    def __init__(self, source: Lines, shared: bytes = b""):
        self.text: bytearray | memoryview = bytearray()
        self.more = bytearray()  # what was appended later
        self.ends = array("Q")
        self.own = 0  # tasks whose text is in `text`
        if source.count:
            data = source.text.encode()
            at = shared.find(data) if shared else -1
            self.text = memoryview(shared)[at : at + len(data)] if at >= 0 else bytearray(data)
            self._index(data, 0)
            self.own = len(self.ends)

    def _index(self, data: bytes, base: int) -> None:
        self.ends.extend(base + match.start() for match in re.finditer(b"\n", data))
        self.ends.append(base + len(data))

    def extend(self, source: Source) -> None:
        if not isinstance(source, Lines):
            raise BadInput("these tasks are lines; only lines can be added to them")
        if not source.count:
            return
        data = source.text.encode()
        self._index(data, len(self.more))
        self.more += data + b"\n"

    @property
    def count(self) -> int:
        return len(self.ends)

    def lines(self, indices: Sequence[int]) -> list[str]:
        ends, own = self.ends, self.own
        return [
            str((self.text if i < own else self.more)[ends[i - 1] + 1 if i not in (0, own) else 0 : ends[i]], "utf-8")
            for i in indices
        ]

    def render(self, indices: Sequence[int]) -> list[Command]:
        return list(map(tpl.split, self.lines(indices)))


class _ItemCommands:
    def __init__(self, source: Items, call: bool):
        self.items, self.call = list(source.items), call

    def extend(self, source: Source) -> None:
        if isinstance(source, Sweep):
            raise BadInput("a sweep cannot be added to items")
        if isinstance(source, Items):
            self.items.extend(source.items)
        elif source.count:
            self.items.extend(source.text.split("\n"))

    @property
    def count(self) -> int:
        return len(self.items)

    def render(self, indices: Sequence[int]) -> list[Command]:
        items = self.items
        return [items[i] for i in indices] if self.call else [tpl.split(items[i]) for i in indices]


class Renderer:
    """Everything that differs from task to task in one target."""

    def __init__(self, target: Target, shared: bytes = b""):
        source = target.source
        self.target = target
        self._listed: _LineCommands | _ItemCommands | None = None
        self._space = Space(source if isinstance(source, Sweep) else Sweep())
        if isinstance(source, Lines):
            self._listed = _LineCommands(source, shared)
        elif isinstance(source, Items):
            self._listed = _ItemCommands(source, target.kind == "call")
        self._command = self._listed or self._compile(target.command)
        self._outputs = self._templates("an output", target.outputs)
        self._checkpoint = self._templates("a checkpoint file", target.checkpoint)
        self._check_file = self._templates("[check] file", target.check.file)
        self._environment = self._templates("the environment", target.environment.values())
        self._cost = self._space.check(cost_template(target.cost), "the cost")
        filled = (*self._outputs, *self._checkpoint, *self._check_file, *self._environment)
        self.varies = any(map(tpl.names, filled))
        """Do files or environment differ from task to task?  If not, say them once per grant."""

    def _templates(self, what: str, texts: Iterable[str]) -> list[Template]:
        return [self._space.check(tpl.pieces(text), what) for text in texts]

    def _compile(self, command: Command) -> _Vector | _Shell:
        if isinstance(command, list):
            return _Vector(self._templates("the command", command), self._space.columns)
        template = self._space.check(tpl.pieces(command), "the command")
        words = tpl.as_vector(template)
        return _Shell(template, self._space.columns) if words is None else _Vector(words, self._space.columns)

    @property
    def count(self) -> int:
        return self._listed.count if self._listed else self._space.count

    def extend(self, source: Source) -> None:
        """Append tasks to lines or items."""
        if self._listed is None:
            raise BadInput("a sweep cannot be appended to", "make a bag of lines or items, open")
        self._listed.extend(source)

    def params(self, index: int) -> dict[str, Value]:
        self._within(index)
        return {name: column.values((index,))[0] for name, column in self._space.columns.items()}

    def command(self, index: int) -> Command:
        self._within(index)
        return self._command.render((index,))[0]

    def commands(self, indices: Sequence[int]) -> list[Command]:
        """In bulk: what the server calls for every grant.  The numbers are trusted to be tasks of this target."""
        return self._command.render(indices)

    def outputs(self, index: int) -> list[str]:
        return self._one(self._outputs, index)

    def checkpoint(self, index: int) -> list[str]:
        return self._one(self._checkpoint, index)

    def check_file(self, index: int) -> list[str]:
        return self._one(self._check_file, index)

    def environment(self, index: int) -> dict[str, str]:
        return dict(zip(self.target.environment, self._one(self._environment, index), strict=True))

    def _one(self, templates: list[Template], index: int) -> list[str]:
        return [_fill(template, self._space.columns, (index,), shell=False)[0] for template in templates]

    def cost(self, index: int) -> float:
        return self.costs((index,))[0]

    def costs(self, indices: Sequence[int]) -> list[float]:
        """Relative costs; 1 where none was given or it is no number."""
        if not self._cost:
            return [1.0] * len(indices)
        return list(map(_cost_of, _fill(self._cost, self._space.columns, indices, shell=False)))

    def _within(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise IndexError(f"task {index} of {self.count}")


def cost_template(cost: str) -> Template:
    """`"{x}"` or, shorter, `"x"`; or a number."""
    return [tpl.Slot(cost)] if tpl.NAME.fullmatch(cost) else tpl.pieces(cost)


def _cost_of(text: str) -> float:
    try:
        cost = float(text)
    except ValueError:
        return 1.0
    return cost if 0 <= cost < float("inf") else 1.0
