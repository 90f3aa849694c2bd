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
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, repeat
from typing import Any

from msgspec.structs import replace

from ..errors import BadInput
from . import template as tpl
from .sample import Draw, draw_latin, draw_sample
from .shell import QUOTING, in_context
from .spec import Axis, Items, Latin, Lines, Range, Sample, Source, Sweep, Table, Target, Value, Values
from .table import Rows

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
    if isinstance(axis, (Sample, Latin)):
        return max(0, axis.n)
    if isinstance(axis, Table):
        return max(0, axis.count)
    return len(axis.columns[0].values) if axis.columns else 0


def axis_names(axis: Axis) -> list[str]:
    if isinstance(axis, (Range, Values)):
        return [axis.name]
    if isinstance(axis, Sample):
        return [axis.law.name]
    if isinstance(axis, Table):
        return axis.columns
    return [column.name for column in axis.columns]


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


class _DrawnColumn(_Column):
    def __init__(self, draw: Draw, digit: _Digit):
        self.draw, self.digit = draw, digit

    def values(self, indices: Sequence[int]) -> list[Any]:
        return list(map(self.draw, self.digit.of(indices)))


class _TableColumn(_Column):
    def __init__(self, rows: Rows, at: int, digit: _Digit):
        self.rows, self.at, self.digit = rows, at, digit

    def values(self, indices: Sequence[int]) -> list[Any]:
        at = self.at
        return [row[at] for row in self.rows.rows(list(self.digit.of(indices)))]

    texts = values


class _JoinedColumn(_Column):
    """A parameter of a sweep that was extended: each part of the numbers has its own column."""

    def __init__(self, first: _Column):
        self.starts = [0]
        self.columns = [first]

    def add(self, start: int, column: _Column) -> None:
        """In this order: whoever reads meanwhile finds a column for every start."""
        self.columns.append(column)
        self.starts.append(start)

    def values(self, indices: Sequence[int]) -> list[Any]:
        return self._each(indices, lambda column, numbers: column.values(numbers))

    def texts(self, indices: Sequence[int]) -> list[str]:
        return self._each(indices, lambda column, numbers: column.texts(numbers))

    def quoted(self, indices: Sequence[int], quote: Callable[[str], str]) -> list[str]:
        return self._each(indices, lambda column, numbers: column.quoted(numbers, quote))

    def _each(self, indices: Sequence[int], ask: Callable[[_Column, list[int]], list[Any]]) -> list[Any]:
        """In the order asked for, neighbours of one part together."""
        found: list[Any] = []
        for part, run in groupby(indices, lambda index: bisect_right(self.starts, index) - 1):
            start = self.starts[part]
            found += ask(self.columns[part], [index - start for index in run])
        return found


class _DerivedColumn(_Column):
    def __init__(self, template: Template, columns: dict[str, _Column]):
        self.template, self.columns = template, columns

    def values(self, indices: Sequence[int]) -> list[Any]:
        return fill(self.template, self.columns, indices, shell=False)

    texts = values


def fill(template: Template, columns: dict[str, _Column], indices: Sequence[int], shell: bool) -> list[str]:
    """One text per index."""
    slots = [piece for piece in template if isinstance(piece, tpl.Slot)]
    if not slots:
        return ["".join(map(str, template))] * len(indices)
    if shell:
        filled = [columns[slot.name].quoted(indices, QUOTING[slot.context]) for slot in slots]
    else:
        filled = [columns[slot.name].texts(indices) for slot in slots]
    if len(template) == 1:
        return filled[0]
    pattern = "".join("%s" if isinstance(piece, tpl.Slot) else piece.replace("%", "%%") for piece in template)
    return [pattern % texts for texts in (zip(*filled, strict=True) if len(filled) > 1 else filled[0])]


# --- the parameter space ---------------------------------------------------------------------------------------


class Space:
    """A sweep ready to be asked: its parameters by name, those made of others included."""

    def __init__(self, sweep: Sweep, shared: bytes = b""):
        self.count = source_count(sweep)
        self._shared = shared
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
        elif isinstance(axis, Sample):
            self._put(axis.law.name, _DrawnColumn(draw_sample(axis), digit))
        elif isinstance(axis, Latin):
            for law in axis.columns:
                self._put(law.name, _DrawnColumn(draw_latin(axis, law), digit))
        elif isinstance(axis, Table):
            rows = Rows(axis, self._shared)
            for at, name in enumerate(axis.columns):
                self._put(name, _TableColumn(rows, at, digit))
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
            if tpl.taken_target(name) and name not in also:
                raise BadInput(
                    f"{what} uses {{{name}}}: output files of another target stand only in a command",
                    "name them there, as a word of its own",
                    text=f"{{{name}}}",
                )
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


Taken = Mapping[str, Sequence[str]]  # target → where its output files lie for the task


class _Vector:
    """Words, each templated, never split.  A word `{main.outputs}` becomes as many words as there are files."""

    def __init__(self, words: list[Template], columns: dict[str, _Column]):
        self.columns = columns
        self.words = words
        self.fixed = not any(tpl.names(word) for word in words)
        self.literal = ["".join(map(str, word)) for word in words] if self.fixed else []
        self.taking = {at: target for at, word in enumerate(words) if (target := _taken(word))}

    def render(self, indices: Sequence[int], taken: Taken) -> list[Command]:
        if self.fixed:
            return [self.literal] * len(indices)
        rows = map(list, zip(*(self._word(at, indices) for at in range(len(self.words))), strict=False))
        return [self._spread(row, taken) for row in rows] if self.taking else list(rows)

    def _word(self, at: int, indices: Sequence[int]) -> Iterable[str]:
        """Of every task; fixed words repeat without end."""
        word = self.words[at]
        if at in self.taking:
            return [""] * len(indices)
        return fill(word, self.columns, indices, shell=False) if tpl.names(word) else repeat("".join(map(str, word)))

    def _spread(self, row: list[str], taken: Taken) -> Command:
        spread: list[str] = []
        for at, word in enumerate(row):
            spread += taken.get(self.taking[at], ()) if at in self.taking else [word]
        return spread


def _taken(word: Template) -> str:
    """The target whose files the word stands for, or nothing."""
    found = [tpl.taken_target(name) for name in tpl.names(word)]
    if any(found) and len(word) > 1:
        raise BadInput(
            f"{{{next(filter(None, found))}.outputs}} is many files and must be a word of its own",
            "put a space before and after it",
            text="".join(piece if isinstance(piece, str) else f"{{{piece.name}}}" for piece in word)[:100],
        )
    return found[0] if found else ""


class _Shell:
    """One text for `/bin/sh -c`."""

    def __init__(self, template: Template, columns: dict[str, _Column]):
        self.template, self.columns = in_context(template), columns
        self.taking = [name for name in tpl.names(template) if tpl.taken_target(name)]
        for piece in self.template:
            if isinstance(piece, tpl.Slot) and piece.context and tpl.taken_target(piece.name):
                raise BadInput(
                    f"{{{piece.name}}} is many files and must not stand inside quotes",
                    "leave the quotes out: the names are quoted as they need it",
                    text=f"{{{piece.name}}}",
                )

    def render(self, indices: Sequence[int], taken: Taken) -> list[Command]:
        if not self.taking:
            return list(fill(self.template, self.columns, indices, shell=True))
        template = [self._filled(piece, taken) for piece in self.template]
        return list(fill(template, self.columns, indices, shell=True))

    def _filled(self, piece: tpl.Piece, taken: Taken) -> tpl.Piece:
        if isinstance(piece, str) or piece.name not in self.taking:
            return piece
        return " ".join(map(tpl.quote_bare, taken.get(tpl.taken_target(piece.name), ())))


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

    def render(self, indices: Sequence[int], taken: Taken) -> list[Command]:
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

    def render(self, indices: Sequence[int], taken: Taken) -> list[Command]:
        items = self.items
        return [items[i] for i in indices] if self.call else [tpl.split(items[i]) for i in indices]


File = tuple[str, str, int, int]  # path, blob, size, mode
Files = Mapping[str, tuple[str, int, int]]  # of a family: name → blob, size, mode
NOTHING: Taken = {}


class _FamilyFiles:
    """Those a family came with, and those of each extension: a task has what was there when it came."""

    def __init__(self, files: Files):
        self._first = files
        self._later: dict[str, list[tuple[int, tuple[str, int, int]]]] = {}  # name → from which task on, what it is

    def add(self, start: int, files: Files) -> None:
        for name, file in files.items():
            self._later.setdefault(name, []).append((start, file))

    def of(self, index: int, name: str) -> tuple[str, int, int]:
        later = self._later.get(name, [])
        at = bisect_right(later, index, key=lambda each: each[0])
        found = later[at - 1][1] if at else self._first.get(name)
        if found is None:
            raise BadInput(f"the input '{tpl.excerpt(name)}' did not come with the bag", "submit it again")
        return found


class Renderer:
    """Everything that differs from task to task in one target."""

    def __init__(self, target: Target, shared: bytes = b""):
        source = target.source
        self.target = target
        self._listed: _LineCommands | _ItemCommands | None = None
        self._space = Space(source if isinstance(source, Sweep) else Sweep(), shared)
        self._columns = dict(self._space.columns)
        self._count = self._space.count
        if isinstance(source, Lines):
            self._listed = _LineCommands(source, shared)
        elif isinstance(source, Items):
            self._listed = _ItemCommands(source, target.kind == "call")
        self._command = self._listed or self._compile(target.command, "the command", target.takes)
        self._compile_files(target)
        check = target.check.command
        self._check_command = self._compile(check, "check: command") if check else None
        self._environment = self._templates("the environment", target.environment.values())
        self._cost = self._space.check(cost_template(target.cost), "the cost")
        self.varies = self._has_parameters()
        """Does anything but the command differ from task to task?  If not, say it once per grant."""

    def _compile_files(self, target: Target) -> None:
        self._outputs = self._templates("an output", target.outputs)
        self._checkpoint = self._templates("a checkpoint file", target.checkpoint)
        self._check_file = self._templates("[check] file", target.check.file)
        self._capture = self._templates("capture", [each.file for each in target.capture])
        self._sources = self._templates("an input", [each.source for each in target.families])
        self._paths = self._templates("an input", [each.path for each in target.families])
        self._there = self._templates("an input", [each.there for each in target.placed])
        self._links = self._templates("an input", [each.path for each in target.placed])
        self._files = [_FamilyFiles(each.files) for each in target.families]

    def _has_parameters(self) -> bool:
        filled = (
            *self._outputs, *self._checkpoint, *self._check_file, *self._environment, *self._capture, *self._sources,
            *self._paths, *self._there, *self._links,
        )  # fmt: skip
        check = self.target.check.command
        words = check if isinstance(check, list) else [check]
        return any(map(tpl.names, filled)) or any(tpl.names(tpl.pieces(word)) for word in words)

    def _templates(self, what: str, texts: Iterable[str], takes: Iterable[str] = ()) -> list[Template]:
        also = [f"{target}.outputs" for target in takes]
        return [self._space.check(tpl.pieces(text), what, also) for text in texts]

    def _compile(self, command: Command, what: str, takes: Iterable[str] = ()) -> _Vector | _Shell:
        if isinstance(command, list):
            return _Vector(self._templates(what, command, takes), self._columns)
        (template,) = self._templates(what, [command], takes)
        words = tpl.as_vector(template)
        return _Shell(template, self._columns) if words is None else _Vector(words, self._columns)

    @property
    def parameters(self) -> list[str]:
        return list(self._columns)

    @property
    def count(self) -> int:
        return self._listed.count if self._listed else self._count

    def extend(self, source: Source, files: Sequence[Files] = (), shared: bytes = b"") -> None:
        """Append tasks.  To a sweep, points of the same parameters; `files`: what its families have beyond theirs.

        Tasks that were there before keep the files they had, whatever comes under the same name.
        """
        if self._listed is not None:
            self._listed.extend(source)
            return
        if not isinstance(source, Sweep):
            raise BadInput("these tasks are a sweep; only a sweep can be added to them")
        added = Space(source, shared)
        same_parameters(list(self._columns), list(added.columns))
        for family, more in list(zip(self._files, files, strict=True)) if files else ():
            family.add(self._count, more)
        for name, column in self._columns.items():
            joined = self._columns[name] = column if isinstance(column, _JoinedColumn) else _JoinedColumn(column)
            joined.add(self._count, added.columns[name])
        self._count += added.count

    def params(self, index: int) -> dict[str, Value]:
        self._within(index)
        at = (index,)
        return {name: column.values(at)[0] for name, column in self._columns.items()}

    def command(self, index: int, outputs: Taken = NOTHING) -> Command:
        self._within(index)
        return self._command.render((index,), outputs)[0]

    def commands(self, indices: Sequence[int], outputs: Taken = NOTHING) -> list[Command]:
        """In bulk: what the server calls for every grant.  The numbers are trusted to be tasks of this target.

        `outputs` says, for every target of `takes`, where its files lie for the task.
        """
        return self._command.render(indices, outputs)

    def inputs(self, index: int) -> list[File]:
        """Of the families; inputs that all tasks share are in `target.inputs`."""
        named = zip(self._one(self._paths, index), self._one(self._sources, index), self._files, strict=True)
        return [(path, *files.of(index, source)) for path, source, files in named if source]

    def placed(self, index: int) -> list[tuple[str, str]]:
        """Path (empty: only looked for) and absolute path on the host."""
        return list(zip(self._one(self._links, index), self._one(self._there, index), strict=True))

    def outputs(self, index: int) -> list[str]:
        return list(filter(None, self._one(self._outputs, index)))

    def checkpoint(self, index: int) -> list[str]:
        return self._one(self._checkpoint, index)

    def check_file(self, index: int) -> list[str]:
        return self._one(self._check_file, index)

    def check_command(self, index: int) -> Command:
        """Empty where there is none."""
        return self._check_command.render((index,), NOTHING)[0] if self._check_command else ""

    def capture(self, index: int) -> list[tuple[str, str, str]]:
        """Name, pattern, file (empty: standard output)."""
        files = self._one(self._capture, index)
        return [(each.name, each.pattern, file) for each, file in zip(self.target.capture, files, strict=True)]

    def environment(self, index: int) -> dict[str, str]:
        return dict(zip(self.target.environment, self._one(self._environment, index), strict=True))

    def _one(self, templates: list[Template], index: int) -> list[str]:
        return [fill(template, self._columns, (index,), shell=False)[0] for template in templates]

    def cost(self, index: int) -> float:
        return self.costs((index,))[0]

    def costs(self, indices: Sequence[int]) -> list[float]:
        """Relative costs; 1 where none was given or it is no number."""
        if not self._cost:
            return [1.0] * len(indices)
        return list(map(_cost_of, fill(self._cost, self._columns, indices, shell=False)))

    def _within(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise IndexError(f"task {index} of {self.count}")


def same_parameters(old: list[str], new: list[str]) -> None:
    """A sweep can be extended only by one that has the same parameters."""
    for name in old:
        if name not in new:
            raise BadInput(f"the sweep has a parameter '{name}', the one that extends it has not", text=name)
    for name in new:
        if name not in old:
            raise BadInput(f"'{name}' is not a parameter of the sweep that is extended", text=name)


def all_files(had: Sequence[Files], more: Sequence[Files]) -> list[Files]:
    """Of each family, what it had and what came along; `more` may be empty."""
    return [{**before, **files} for before, files in zip(had, more, strict=True)] if more else list(had)


def lean(source: Source) -> Source:
    """The same number of tasks without the texts that a renderer has already."""
    if isinstance(source, Lines):
        return Lines(text="", count=source.count)
    if isinstance(source, Sweep) and any(isinstance(axis, Table) for axis in source.axes):
        return lean_sweep(source)
    return source


def lean_sweep(sweep: Sweep) -> Sweep:
    axes: list[Axis] = [replace(axis, text="") if isinstance(axis, Table) else axis for axis in sweep.axes]
    return Sweep(axes=axes, derived=sweep.derived)


def cost_template(cost: str) -> Template:
    """`"{x}"` or, shorter, `"x"`; or a number."""
    return [tpl.Slot(cost)] if tpl.NAME.fullmatch(cost) else tpl.pieces(cost)


def _cost_of(text: str) -> float:
    try:
        cost = float(text)
    except ValueError:
        return 1.0
    return cost if 0 <= cost < float("inf") else 1.0
