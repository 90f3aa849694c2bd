"""Renderer: the parameters, command, outputs and environment of a task, from its number.

A sweep is never expanded.  A task number is a mixed-radix number, one digit per axis, the last axis fastest; a range's
value is arithmetic, so a sweep of ten million tasks costs as much as its axes.  Rendering works by columns: for the
numbers given, it makes a list of texts per parameter, a list per templated word, and transposes.  So the work per task
is a few list operations, all of them C loops.

The lists returned may share rows and words among tasks: callers must not change them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from windfall.errors import BadInput
from windfall.model.spec import Axis, Items, Latin, Lines, Range, Sample, Source, Sweep, Table, Target, Value, Values
from windfall.model.templates import template as tpl
from windfall.model.templates.columns import (
    Column,
    DerivedColumn,
    Digit,
    DrawnColumn,
    JoinedColumn,
    ListColumn,
    RangeColumn,
    TableColumn,
    Template,
    fill,
)  # fmt: skip
from windfall.model.templates.commands import Command, ItemCommands, LineCommands, Shell, Taken, Vector
from windfall.model.templates.sample import draw_latin, draw_sample
from windfall.model.templates.table import TableRows

# --- axes ------------------------------------------------------------------------------------------------------


def range_size(axis: Range) -> int:
    """Return the number of values; 0 if the range is empty or has step 0."""
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
    """Return the number of tasks, by arithmetic."""
    if isinstance(source, Lines):
        return source.count
    if isinstance(source, Items):
        return len(source.items)
    count = 1
    for axis in source.axes:
        count *= axis_size(axis)
    return count


# --- the parameter space ---------------------------------------------------------------------------------------


class Space:
    """The parameters of a sweep as columns by name, derived ones included."""

    def __init__(self, sweep: Sweep, shared: bytes = b""):
        self.count = source_count(sweep)
        self._shared = shared
        self.columns: dict[str, Column] = {}
        stride = self.count
        for axis in sweep.axes:
            size = axis_size(axis)
            stride = stride // size if size else 0
            self._add_axis(axis, Digit(stride, size, whole=size == self.count))
        self._add_derived(sweep)

    def _add_axis(self, axis: Axis, digit: Digit) -> None:
        if isinstance(axis, Range):
            self._put(axis.name, RangeColumn(axis, digit))
        elif isinstance(axis, Sample):
            self._put(axis.law.name, DrawnColumn(draw_sample(axis), digit))
        elif isinstance(axis, Latin):
            for law in axis.columns:
                self._put(law.name, DrawnColumn(draw_latin(axis, law), digit))
        elif isinstance(axis, Table):
            rows = TableRows(axis, self._shared)
            for at, name in enumerate(axis.columns):
                self._put(name, TableColumn(rows, at, digit))
        else:
            for column in [axis] if isinstance(axis, Values) else axis.columns:
                self._put(column.name, ListColumn(column.values, digit))

    def _put(self, name: str, column: Column) -> None:
        if name in self.columns:
            raise BadInput(f"the parameter '{name}' is given twice")
        self.columns[name] = column

    def _add_derived(self, sweep: Sweep) -> None:
        """Add the derived parameters, each after those that it is made of."""
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
                    f"the parameters {', '.join(sorted(waiting)[:5])} refer to one another in a circle",
                    text=min(waiting),
                )
            for name in ready:
                self._put(name, DerivedColumn(waiting.pop(name), self.columns))

    def check(self, template: Template, what: str, also: Iterable[str] = ()) -> Template:
        """Refuse unknown parameters; `also` names further known ones."""
        for name in tpl.names(template):
            if tpl.taken_target(name) and name not in also:
                raise BadInput(
                    f"{what} uses {{{name}}}, but only a command can use output files of another target",
                    "name them in the command, as a word of its own",
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
        hint = f"the bag has no [sweep]; write {{{{{name}}}}} for the braces themselves"
    return BadInput(f"{what} uses {{{name}}}, which is not a parameter", hint, text=f"{{{name}}}")


File = tuple[str, str, int, int]  # path, blob, size, mode
Files = Mapping[str, tuple[str, int, int]]  # files of a family: name → blob, size, mode
NOTHING: Taken = {}


class _FamilyFiles:
    """The files of a family and of its extensions; a task has those that were there when it was added."""

    def __init__(self, files: Files):
        self._first = files
        self._later: dict[str, list[tuple[int, tuple[str, int, int]]]] = {}  # name → (first task, file) of extensions

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
    """Renders everything that differs from task to task in a target."""

    def __init__(self, target: Target, shared: bytes = b""):
        source = target.source
        self.target = target
        self._listed: LineCommands | ItemCommands | None = None
        self._space = Space(source if isinstance(source, Sweep) else Sweep(), shared)
        self._columns = dict(self._space.columns)
        self._count = self._space.count
        if isinstance(source, Lines):
            self._listed = LineCommands(source, shared)
        elif isinstance(source, Items):
            self._listed = ItemCommands(source, target.kind == "call")
        self._command = self._listed or self._compile(target.command, "the command", target.takes)
        self._compile_files(target)
        check = target.check.command
        self._check_command = self._compile(check, "check: command") if check else None
        self._environment = self._templates("the environment", target.environment.values())
        self._cost = self._space.check(cost_template(target.cost), "the cost")
        self.varies = self._has_parameters()
        """Does anything but the command differ from task to task?  If not, a grant sends it once."""

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

    def _compile(self, command: Command, what: str, takes: Iterable[str] = ()) -> Vector | Shell:
        if isinstance(command, list):
            return Vector(self._templates(what, command, takes), self._columns)
        (template,) = self._templates(what, [command], takes)
        words = tpl.as_vector(template)
        return Shell(template, self._columns) if words is None else Vector(words, self._columns)

    @property
    def parameters(self) -> list[str]:
        return list(self._columns)

    @property
    def count(self) -> int:
        return self._listed.count if self._listed else self._count

    def extend(self, source: Source, files: Sequence[Files] = (), shared: bytes = b"") -> None:
        """Append tasks; to a sweep, points of the same parameters, with the `files` of each family that are new.

        Earlier tasks keep their files, even if a new file has the same name.
        """
        if self._listed is not None:
            self._listed.extend(source)
            return
        if not isinstance(source, Sweep):
            raise BadInput("only a sweep can be appended to tasks that are a sweep")
        added = Space(source, shared)
        same_parameters(list(self._columns), list(added.columns))
        for family, more in list(zip(self._files, files, strict=True)) if files else ():
            family.add(self._count, more)
        for name, column in self._columns.items():
            joined = self._columns[name] = column if isinstance(column, JoinedColumn) else JoinedColumn(column)
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
        """Return the commands of many tasks, as the server needs them for a grant; it does not check the numbers.

        `outputs` has, for every target of `takes`, the paths of its files for the task.
        """
        return self._command.render(indices, outputs)

    def inputs(self, index: int) -> list[File]:
        """Return a task's inputs from families; `target.inputs` has those that all tasks share."""
        named = zip(self._one(self._paths, index), self._one(self._sources, index), self._files, strict=True)
        return [(path, *files.of(index, source)) for path, source, files in named if source]

    def placed(self, index: int) -> list[tuple[str, str]]:
        """Return (path for the task, or "" for no link; path on the host) of the files in place."""
        return list(zip(self._one(self._links, index), self._one(self._there, index), strict=True))

    def outputs(self, index: int) -> list[str]:
        return list(filter(None, self._one(self._outputs, index)))

    def checkpoint(self, index: int) -> list[str]:
        return self._one(self._checkpoint, index)

    def check_file(self, index: int) -> list[str]:
        return self._one(self._check_file, index)

    def check_command(self, index: int) -> Command:
        """Return the command of a task's check, or ""."""
        return self._check_command.render((index,), NOTHING)[0] if self._check_command else ""

    def capture(self, index: int) -> list[tuple[str, str, str]]:
        """Return (name, pattern, file or "" for standard output) of the captured values."""
        files = self._one(self._capture, index)
        return [(each.name, each.pattern, file) for each, file in zip(self.target.capture, files, strict=True)]

    def environment(self, index: int) -> dict[str, str]:
        return dict(zip(self.target.environment, self._one(self._environment, index), strict=True))

    def _one(self, templates: list[Template], index: int) -> list[str]:
        return [fill(template, self._columns, (index,), shell=False)[0] for template in templates]

    def cost(self, index: int) -> float:
        return self.costs((index,))[0]

    def costs(self, indices: Sequence[int]) -> list[float]:
        """Return relative costs; 1 for a task without one, or with one that is not a number."""
        if not self._cost:
            return [1.0] * len(indices)
        return list(map(_cost_of, fill(self._cost, self._columns, indices, shell=False)))

    def _within(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise IndexError(f"task {index} of {self.count}")


def same_parameters(old: list[str], new: list[str]) -> None:
    """Refuse to extend a sweep by one with other parameters."""
    for name in old:
        if name not in new:
            raise BadInput(f"the extension lacks the sweep's parameter '{name}'", text=name)
    for name in new:
        if name not in old:
            raise BadInput(f"the extension has a parameter '{name}', and the sweep has none of that name", text=name)


def all_files(had: Sequence[Files], more: Sequence[Files]) -> list[Files]:
    """Return the files of each family, with the new ones of an extension; `more` may be empty."""
    return [{**before, **files} for before, files in zip(had, more, strict=True)] if more else list(had)


def lean(source: Source) -> Source:
    """Return a source with the same number of tasks, without the texts that a renderer has already."""
    if isinstance(source, Lines):
        return Lines(text="", count=source.count)
    if isinstance(source, Sweep) and any(isinstance(axis, Table) for axis in source.axes):
        return lean_sweep(source)
    return source


def lean_sweep(sweep: Sweep) -> Sweep:
    axes: list[Axis] = [replace(axis, text="") if isinstance(axis, Table) else axis for axis in sweep.axes]
    return Sweep(axes=axes, derived=sweep.derived)


def cost_template(cost: str) -> Template:
    """Return the template of a cost: `"{x}"` or, shorter, `"x"`; or a number."""
    return [tpl.Slot(cost)] if tpl.NAME.fullmatch(cost) else tpl.pieces(cost)


def _cost_of(text: str) -> float:
    try:
        cost = float(text)
    except ValueError:
        return 1.0
    return cost if 0 <= cost < float("inf") else 1.0
