"""Paths of output files below their directory.

A template such as `{target}/{task}/{path}`, or one with parameters of the sweep, decides.  Without a template, files
land directly in the directory if all tasks of the bag, those of its extensions too, name different files; else each
task has a directory, named by its number.  Two files never share a place, and none lies outside the directory; both
are checked before the first file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from windfall.data.files import safe_join
from windfall.errors import BadInput
from windfall.wire.patterns import fixed_part

if TYPE_CHECKING:
    from windfall.client.api import Api
    from windfall.client.extend import Extension
    from windfall.model.spec import Bag
    from windfall.model.templates.render import Renderer
    from windfall.model.templates.template import Piece

MAX_COMPARED = 1_000_000  # file names; with more, every task gets its directory
FILE_NAMES = ("task", "target", "path")  # that a template may use beside the parameters of the task

_SPELT = {code: f"\\x{code:02x}" for code in (*range(1, 32), *range(127, 160))}
ResultRow = Mapping[str, Any]
Placing = Callable[[ResultRow, str], str]  # the relative path at which a task's file lands


def placing(api: Api, bag: int, spec: Bag, template: str = "") -> Placing:
    """Return the function that places files; compare all files unless the template keeps tasks apart by itself."""
    if not template:
        return _flat if is_flat(spec, api.appended(bag)) else _by_task
    filled = _Template(check_template(template, spec))
    if not filled.keeps_tasks_apart:
        _refuse_clashes(filled, api.results(bag, state="succeeded"))
    return filled


def _flat(row: ResultRow, path: str) -> str:
    return path.removeprefix("./")


def _by_task(row: ResultRow, path: str) -> str:
    return f"{row['task']:d}/{path.removeprefix('./')}"


def below(directory: Path, relative: str) -> Path:
    """Return a path below `directory`; BadInput if it lies outside.  Control characters are spelt out, so that no file
    name steers a terminal.
    """
    return safe_join(directory, relative.translate(_SPELT))


# --- without a template --------------------------------------------------------------------------------------


def is_flat(bag: Bag, appended: Iterable[Extension] = ()) -> bool:
    """Do all tasks name different files, those of the `appended` extensions, too?"""
    from windfall.model.templates.render import Renderer

    extensions, names = list(appended), _FileNames()
    if not extensions and _has_one_task(bag):
        return True
    for target in bag.targets:
        renderer = Renderer(target)
        for each in extensions:
            if each.target == target.name:
                renderer.extend(each.source, each.files)
        if renderer.count * len(target.outputs) + len(names.files) > MAX_COMPARED or bag.open:
            return False
        if not all(map(names.add, _fixed_parts(renderer))):
            return False
    return True


def _has_one_task(bag: Bag) -> bool:
    from windfall.model.templates.render import source_count

    return not bag.open and sum(source_count(target.source) for target in bag.targets) == 1


def _fixed_parts(renderer: Renderer) -> Iterator[str]:
    """Yield the names of the tasks' files, or, of a pattern, the directory in which its files lie."""
    for index in range(renderer.count):
        yield from map(fixed_part, renderer.outputs(index))


class _FileNames:
    """The file names seen so far, and their directories."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, path: str) -> bool:
        """Add a name; False if it is empty or taken, or is a file where another name needs a directory."""
        above = [str(each) for each in PurePosixPath(path).parents]
        if not path or path in self.files or path in self._folders or not self.files.isdisjoint(above):
            return False
        self.files.add(path)
        self._folders.update(above)
        return True


# --- with a template ------------------------------------------------------------------------------------------------


def check_template(template: str, bag: Bag) -> list[Piece]:
    """Cut a template into pieces; BadInput if a target with output files lacks one of its names."""
    from windfall.model.templates.render import Renderer
    from windfall.model.templates.template import names, pieces

    found = pieces(template)
    for target in bag.targets:
        known = [*FILE_NAMES, *(Renderer(target).parameters if target.outputs else names(found))]
        for name in names(found):
            if name not in known:
                raise BadInput(
                    f"--files: the target '{target.name}' has no parameter '{name}'",
                    f"it has {', '.join(known)}",
                    text=template,
                )
    return found


class _Template:
    def __init__(self, template: list[Piece]) -> None:
        self._template = template

    @property
    def keeps_tasks_apart(self) -> bool:
        """Does the template begin with a directory for the task's number, and end with the file's path?"""
        shown = "".join(piece if isinstance(piece, str) else f"\0{piece.name}\0" for piece in self._template)
        before, task, after = shown.partition("\0task\0/")
        whole = before.endswith("/") or not before
        return bool(task) and whole and "\0" not in before.replace("\0target\0/", "") and after == "\0path\0"

    def __call__(self, row: ResultRow, path: str) -> str:
        from windfall.model.templates.columns import text_of

        own = {"task": row["task"], "target": row.get("target", "main"), "path": path.removeprefix("./")}
        values = {**(row.get("params") or {}), **own}
        return "".join(piece if isinstance(piece, str) else text_of(values[piece.name]) for piece in self._template)


def _refuse_clashes(place: Placing, rows: Iterable[ResultRow]) -> None:
    names = _FileNames()
    for row in rows:
        for path, *_ in row.get("files") or ():
            where = place(row, path)
            below(Path("."), where)
            if not names.add(where):
                raise BadInput(f"--files: task {row['task']} and an earlier task would both write {where}",
                               "put {task} or more parameters into the template, and {path}")  # fmt: skip
            if len(names.files) > MAX_COMPARED:
                raise BadInput(f"--files: more than {MAX_COMPARED:,} files cannot be compared",
                               "use '{task}/{path}', which keeps the files of all tasks apart")  # fmt: skip
