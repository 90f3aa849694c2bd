"""Where output files land below the directory they are brought to.

By a template such as `{target}/{task}/{path}`, or by parameters of the sweep.  Without one: directly in the directory
where all tasks of the bag, those of its extensions too, name different files; else in a directory per task, named by
its number.  Two files never get one place, and none lies outside: that is found out before the first is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from windfall.data.files import safe_join
from windfall.errors import BadInput

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.client.extend import Extension
    from windfall.model.spec import Bag
    from windfall.model.templates.template import Piece

MAX_COMPARED = 1_000_000  # file names; with more, every task gets its directory
OWN = ("task", "target", "path")  # of a file, beside the parameters of its task

_SPELT = {code: f"\\x{code:02x}" for code in (*range(1, 32), *range(127, 160))}
Row = Mapping[str, Any]
Place = Callable[[Row, str], str]  # of a task's file, relative


def placing(client: Client, bag: int, spec: Bag, template: str = "") -> Place:
    """Looks at all files there are if the template does not tell them apart by itself."""
    if not template:
        return _flat if is_flat(spec, client.appended(bag)) else _by_task
    filled = _Template(check_template(template, spec))
    if not filled.tells_tasks_apart:
        _compare(filled, client.results(bag, state="succeeded"))
    return filled


def _flat(row: Row, path: str) -> str:
    return path.removeprefix("./")


def _by_task(row: Row, path: str) -> str:
    return f"{row['task']:d}/{path.removeprefix('./')}"


def below(directory: Path, relative: str) -> Path:
    """BadInput if that would be outside.  Control characters are spelt out: a name must not steer a terminal."""
    return safe_join(directory, relative.translate(_SPELT))


# --- without a template --------------------------------------------------------------------------------------


def is_flat(bag: Bag, appended: Iterable[Extension] = ()) -> bool:
    """Do all tasks name different files?  `appended`: what came later, by target."""
    from windfall.model.templates.render import Renderer

    later, names = list(appended), _Names()
    for target in bag.targets:
        renderer = Renderer(target)
        for each in later:
            if each.target == target.name:
                renderer.extend(each.source, each.files)
        if renderer.count * len(target.outputs) + len(names.files) > MAX_COMPARED or bag.open:
            return False
        paths = (path for index in range(renderer.count) for path in renderer.outputs(index))
        if not all(map(names.add, paths)):
            return False
    return True


class _Names:
    """File names seen so far, and the directories they are in."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, path: str) -> bool:
        """False if it is one of them already, or a file where a directory is needed."""
        above = [str(each) for each in PurePosixPath(path).parents]
        if path in self.files or path in self._folders or not self.files.isdisjoint(above):
            return False
        self.files.add(path)
        self._folders.update(above)
        return True


# --- with one ------------------------------------------------------------------------------------------------


def check_template(template: str, bag: Bag) -> list[Piece]:
    """Cut at its names, which every target that makes files must have."""
    from windfall.model.templates.render import Renderer
    from windfall.model.templates.template import names, pieces

    found = pieces(template)
    for target in bag.targets:
        known = [*OWN, *(Renderer(target).parameters if target.outputs else names(found))]
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
    def tells_tasks_apart(self) -> bool:
        """Is the task's number a directory, before anything that a task decides, and the file's path what ends it?"""
        shown = "".join(piece if isinstance(piece, str) else f"\0{piece.name}\0" for piece in self._template)
        before, task, after = shown.partition("\0task\0/")
        whole = before.endswith("/") or not before
        return bool(task) and whole and "\0" not in before.replace("\0target\0/", "") and after == "\0path\0"

    def __call__(self, row: Row, path: str) -> str:
        from windfall.model.templates.columns import text_of

        own = {"task": row["task"], "target": row.get("target", "main"), "path": path.removeprefix("./")}
        values = {**(row.get("params") or {}), **own}
        return "".join(piece if isinstance(piece, str) else text_of(values[piece.name]) for piece in self._template)


def _compare(place: Place, rows: Iterable[Row]) -> None:
    names = _Names()
    for row in rows:
        for path, *_ in row.get("files") or ():
            where = place(row, path)
            below(Path("."), where)
            if not names.add(where):
                raise BadInput(f"--files: task {row['task']} would write to {where}, as a task before it does",
                               "put {task} or more parameters into the template, and {path}")  # fmt: skip
            if len(names.files) > MAX_COMPARED:
                raise BadInput(f"--files: more than {MAX_COMPARED:,} files cannot be compared",
                               "write it as '{task}/{path}', which tells all of them apart")  # fmt: skip
