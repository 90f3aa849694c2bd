"""Revision of a bag: its specification with the files as they are now, and the tasks that the difference concerns.

Rules
  * Tasks keep their numbers and their points.  Only a table with as many rows as before is taken over whole: its
    changed rows are the tasks of the same numbers.  Other new points are counted, and come with `run --extend`.
  * A difference concerns the tasks that can see it: all of a target for its command, its environment or an input that
    all share; for a file of a family (`data-{x}.dat`) the tasks that read it.  Limits, retries and order concern none.
  * Name, policy and effects of a bag stay, and targets with what they wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from windfall.errors import BadInput, TooLarge
from windfall.model.extend import new_points
from windfall.model.spec import Bag, Family, Input, Source, Sweep, Table, Target
from windfall.model.templates import template as tpl
from windfall.model.templates.columns import fill
from windfall.model.templates.render import Files, Space, all_files, axis_names, source_count
from windfall.model.templates.table import lines

CHUNK = 4_096  # tasks whose files are named at a time
ANEW = "submit it as a bag of its own: windfall run"
FIXED = ("name", "kind", "after", "takes")
UNSEEN = ("resources", "time", "expect", "grace", "cost", "retries", "memory_retries", "time_retries", "scratch",
          "priority", "at_once", "crowd")
"""Fields that change when and where tasks run, and how often, but nothing that they see."""

APART = (*FIXED, *UNSEEN, "source", "inputs", "families")
NAMES = {"packed": "python", "placed": "inputs that lie at the sites", "whole": "whole-node", "crowd": "at-once"}


class Appended(NamedTuple):
    """Tasks that a target got after the bag was submitted."""

    target: int
    source: Source
    files: list[Files]  # of each family, those that are new; or none


class Difference(NamedTuple):
    target: str
    what: str
    concerns: bool  # does any task see it?


class TargetRevision(NamedTuple):
    target: Target
    tasks: list[int] | None  # that the changes concern, as numbers within the target; None: all
    changes: list[Difference]
    new: int = 0  # points of the file that the bag lacks
    gone: int = 0  # tasks whose points the file has no more


class Revision(NamedTuple):
    bag: Bag
    targets: list[TargetRevision]
    kept: list[str]  # parts of the bag in which the file differs, and which stay


def revise(old: Bag, appended: Sequence[Appended], new: Bag) -> Revision:
    """Compare a bag with what its file says now."""
    names, now = [target.name for target in old.targets], [target.name for target in new.targets]
    if names != now:
        raise BadInput(f"bag '{old.name}' has the targets {', '.join(names[:10])}; now there are {', '.join(now[:10])}",
                       ANEW)
    found = [_revised(before, after, [each for each in appended if each.target == place])
             for place, (before, after) in enumerate(zip(old.targets, new.targets, strict=True))]
    bag = replace(old, targets=[each.target for each in found], origin=new.origin or old.origin)
    return Revision(bag, found, [name for name in ("policy", "effects") if getattr(old, name) != getattr(new, name)])


def _revised(old: Target, new: Target, appended: list[Appended]) -> TargetRevision:
    for field in FIXED:
        if getattr(old, field) != getattr(new, field):
            raise BadInput(f"target '{old.name}': '{field}' has changed", ANEW)
    source, rows, derived = _source(old, new, appended)
    families, files = _families(old, new, appended)
    shared = _shared(old, new, derived, files is None)
    merged = replace(new, source=source, families=families)
    tasks = None if shared else sorted({*rows, *_readers(merged, appended, files or [])})
    own = [*(f"row {row + 1} of the table" for row in rows), *_inputs_named(files or [])]
    changes = [Difference(old.name, text, True) for text in [*shared, *own]]
    changes += [Difference(old.name, text, False) for text in _unseen(old, new)]
    return TargetRevision(merged, tasks, changes, *_points(source, new, appended))


def _shared(old: Target, new: Target, derived: list[str], other_families: bool) -> list[str]:
    """Name the differences that all tasks of a target see."""
    found = [_called(field) for field in Target.__struct_fields__
             if field not in APART and getattr(old, field) != getattr(new, field)]
    found += _input_changes(old.inputs, new.inputs)
    found += [f"parameter {name}" for name in derived]
    return found + ["inputs with parameters in their names"] * other_families


def _inputs_named(changed: list[set[str]]) -> list[str]:
    return sorted(f"input {name}" for names in changed for name in names)


def _called(field: str) -> str:
    return NAMES.get(field, field.replace("_", "-"))


def _unseen(old: Target, new: Target) -> Iterator[str]:
    for field in UNSEEN:
        before, now = getattr(old, field), getattr(new, field)
        if field == "resources":
            fields = before.__struct_fields__
            yield from (_called(each) for each in fields if getattr(before, each) != getattr(now, each))
        elif before != now:
            yield _called(field)


def _input_changes(old: list[Input], new: list[Input]) -> Iterator[str]:
    """Yield what differs in the inputs that all tasks share."""
    before, now = ({each.path: each for each in inputs} for inputs in (old, new))
    for path in sorted({*before, *now}):
        if path not in now:
            yield f"input {path}, not named any more"
        elif before.get(path) != now[path]:
            yield f"input {path}" if path in before else f"new input {path}"


# --- points -----------------------------------------------------------------------------------------------------


def _source(old: Target, new: Target, appended: list[Appended]) -> tuple[Source, list[int], list[str]]:
    """Return the source of the tasks from now on, its changed rows, and the derived parameters that have changed."""
    before, now = old.source, new.source
    if not (isinstance(before, Sweep) and isinstance(now, Sweep)):
        if before != now:
            raise BadInput(f"the tasks of '{old.name}' have changed", ANEW)
        return before, [], []
    derived = _differing(before, now)
    if derived and appended:
        raise BadInput(f"target '{old.name}': the parameter '{derived[0]}' has changed, and the bag was extended", ANEW)
    tables = _tables(before, now)
    if tables is not None and not appended:
        return now, _changed_rows(*tables), derived
    _same_parameters(old.name, _parameters(before), _parameters(now))
    return replace(before, derived=now.derived), [], derived


def _same_parameters(target: str, before: list[str], now: list[str]) -> None:
    if before != now:
        raise BadInput(f"target '{target}' has the parameters {', '.join(before) or 'of no sweep'}; now there are "
                       f"{', '.join(now) or 'none'}", ANEW)


def _differing(before: Sweep, now: Sweep) -> list[str]:
    one, other = ({each.name: each.template for each in sweep.derived} for sweep in (before, now))
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def _parameters(sweep: Sweep) -> list[str]:
    return sorted(name for axis in sweep.axes for name in axis_names(axis))


def _tables(before: Sweep, now: Sweep) -> tuple[Table, Table] | None:
    """Return the tables of two sweeps that are tables with equally many rows."""
    if len(before.axes) != 1 or len(now.axes) != 1:
        return None
    one, other = before.axes[0], now.axes[0]
    if isinstance(one, Table) and isinstance(other, Table) and one.count == other.count:
        return one, other
    return None


def _changed_rows(old: Table, new: Table) -> list[int]:
    if old == new:
        return []
    if old.columns != new.columns:
        return list(range(new.count))
    return [row for row, pair in enumerate(zip(lines(old), lines(new), strict=True)) if pair[0] != pair[1]]


def _points(source: Source, new: Target, appended: list[Appended]) -> tuple[int, int]:
    """Count the points of the file that the bag lacks, and the bag's tasks whose points the file has no more."""
    if source == new.source and not appended:
        return 0, 0
    left = new.source if isinstance(new.source, Sweep) else None
    total, had = source_count(new.source), source_count(source) + sum(source_count(each.source) for each in appended)
    try:
        for each in [source, *(more.source for more in appended)]:
            if left is not None and isinstance(each, Sweep):
                left = new_points(each, left)
    except TooLarge:
        return 0, 0  # too many to tell
    more = source_count(left) if left is not None else 0
    return more, max(had - (total - more), 0)


# --- files whose names have parameters --------------------------------------------------------------------------


def _families(old: Target, new: Target, appended: list[Appended]) -> tuple[list[Family], list[set[str]] | None]:
    """Return the families with all files that tasks of the bag need, and of each the names of the changed ones.

    None instead of the names: the families themselves have changed."""
    had: list[Files] = [each.files for each in old.families]
    for more in appended:
        had = all_files(had, more.files)
    if [(each.path, each.source) for each in old.families] != [(each.path, each.source) for each in new.families]:
        return new.families, None
    merged, changed = [], []
    for files, family in zip(had, new.families, strict=True):
        merged.append(replace(family, files={**files, **family.files}))
        changed.append({name for name, file in family.files.items() if name in files and files[name] != file})
    return merged, changed


def _readers(target: Target, appended: list[Appended], changed: list[set[str]]) -> Iterator[int]:
    """Yield the tasks, counted within the target, that read one of the changed files of its families."""
    first = 0
    for source in [target.source, *(more.source for more in appended)]:
        space = Space(source) if isinstance(source, Sweep) else None
        for family, names in zip(target.families, changed, strict=True):
            if space is not None and names:
                yield from (first + task for task in _naming(space, family, names))
        first += source_count(source)


def _naming(space: Space, family: Family, names: set[str]) -> Iterator[int]:
    pieces = tpl.pieces(family.source)
    for start in range(0, space.count, CHUNK):
        tasks = range(start, min(start + CHUNK, space.count))
        texts = fill(pieces, space.columns, tasks, shell=False)
        yield from (task for task, text in zip(tasks, texts, strict=True) if text in names)
