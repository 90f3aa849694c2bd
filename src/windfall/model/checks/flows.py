"""Checks of flows, the files that tasks pass to tasks: every number is in range, and every file is an output."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from windfall.errors import BadInput
from windfall.model.spec import Bag, Flows, Target
from windfall.model.templates import template as tpl
from windfall.model.templates.render import Renderer, source_count
from windfall.wire.patterns import is_pattern

Locate = Callable[[int], tuple[int, int]]  # a task → its target, and its number within that
Relative = Callable[[str, str], str]  # refuses paths that leave the working directory

MAX_FLOWS = 20_000_000
MAX_NAMES = 5_000_000
MAX_RENDERED = 1_000_000  # outputs rendered because their names have parameters


def check_flows(flows: Flows, bag: Bag, total: int, relative: Relative) -> None:
    """Check the flows of a whole bag; the caller checks their blobs."""
    _check_columns(flows, range(total), relative)
    _check_files(flows, bag.targets, TaskLocator(bag), whole=True)


def check_later(flows: Flows, targets: list[Target], where: Locate, tasks: range, relative: Relative) -> None:
    """Check the flows of appended tasks, whose files come from any task up to the last of them."""
    _check_columns(flows, tasks, relative)
    _check_files(flows, targets, where, whole=False)


def _check_columns(flows: Flows, tasks: range, relative: Relative) -> None:
    columns = (flows.before, flows.name, flows.after, flows.place)
    if len({len(column) for column in columns}) != 1:
        raise BadInput("flows: before, name, after and place must be equally long")
    for count, most, what in ((len(flows.before), MAX_FLOWS, "flows"), (len(flows.names), MAX_NAMES, "names")):
        if count > most:
            raise BadInput(f"flows: {count:,} {what}; at most {most:,}")
    for name in flows.names:
        relative(name, "flows")
    if not flows.before:
        return
    _within(flows.before, -len(flows.blobs), tasks.stop, "before")
    _within(flows.after, tasks.start, tasks.stop, "after")
    _within(flows.name, 0, len(flows.names), "name")
    _within(flows.place, 0, len(flows.names), "place")


def _check_files(flows: Flows, targets: list[Target], where: Locate, whole: bool) -> None:
    if flows.before:
        _places(flows, targets, where)
        _makers(flows, targets, where, whole)


def _within(column: list[int], least: int, end: int, what: str) -> None:
    if min(column) < least or max(column) >= end:
        raise BadInput(f"flows: '{what}' has numbers from {min(column)} to {max(column)}; allowed are {least} "
                       f"to {end - 1}")


def _places(flows: Flows, targets: list[Target], where: Locate) -> None:
    """Refuse two files at one path of a task."""
    taken = set(zip(flows.after, flows.place, strict=True))
    if len(taken) < len(flows.after):
        raise BadInput("flows: a task gets two files at the same path", "give them different places")
    numbers = {name: number for number, name in enumerate(flows.names)}
    for number, target in enumerate(targets):
        shared = {numbers[each.path] for each in target.inputs if each.path in numbers}
        if shared and any(place in shared and where(task)[0] == number for task, place in taken):
            raise BadInput(f"flows: a task of '{target.name}' gets a file at the path of an input")


def _makers(flows: Flows, targets: list[Target], where: Locate, whole: bool) -> None:
    """Refuse a file that is not an output of the task it comes from."""
    numbers = {name: number for number, name in enumerate(flows.names)}
    plain = [_plain(target, numbers) for target in targets]
    patterned = {number for name, number in numbers.items() if is_pattern(name)}
    renderers: dict[int, Renderer] = {}
    rendered = 0
    for before, name in zip(flows.before, flows.name, strict=True):
        if before < 0:
            continue
        target, index = where(before)
        if name in patterned:
            raise BadInput(f"flows: '{tpl.excerpt(flows.names[name])}' is a pattern",
                           "a file that goes from task to task needs a name: name it in the outputs, too")
        if name in plain[target]:
            continue
        if not whole:
            raise BadInput(f"flows: '{tpl.excerpt(flows.names[name])}' is not an output of '{targets[target].name}' "
                           "that has no parameters in its name", "submit a bag with such outputs as a whole")
        rendered += 1
        if rendered > MAX_RENDERED:
            raise BadInput(f"flows: more than {MAX_RENDERED:,} files with parameters in their names")
        renderer = renderers.setdefault(target, Renderer(targets[target]))
        if flows.names[name] not in renderer.outputs(index):
            raise BadInput(f"flows: task {before} has no output '{tpl.excerpt(flows.names[name])}'",
                           f"name it in the outputs of '{targets[target].name}'")


def _plain(target: Target, numbers: dict[str, int]) -> set[int]:
    """Return the outputs without parameters, as indices of the flows' names."""
    whole = ("".join(map(str, pieces)) for text in target.outputs if not tpl.names(pieces := tpl.pieces(text)))
    return {numbers[path] for path in whole if path in numbers}


class TaskLocator:
    """Finds a task's target, and its number within that."""

    def __init__(self, bag: Bag) -> None:
        self._starts = [0]
        for target in bag.targets:
            self._starts.append(self._starts[-1] + source_count(target.source))

    def __call__(self, task: int) -> tuple[int, int]:
        target = bisect_right(self._starts, task) - 1
        return target, task - self._starts[target]
