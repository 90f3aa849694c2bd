"""Bringing output files home.

Where a file lands is decided by `places`.  It appears under its name only when it is complete and its hash fits; a path
that would leave the directory is refused, whoever sent it.

Only files that the bag itself names as outputs are written, and of those an older one of the same name is replaced;
nothing else in the directory is touched.  One that cannot be brought does not keep the others out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.client.files.places import below, placing
from windfall.data.files import hash_file
from windfall.errors import BadInput, NotFound, Unwritable, WindfallError

if TYPE_CHECKING:
    from windfall.client.client import Client
    from windfall.client.http import Http
    from windfall.model.spec import Bag


OnProblem = Callable[[int, str, WindfallError], None]  # task, path, why


class Damaged(WindfallError):
    """What arrived is not what was sent."""


def fetch(
    client: Client, http: Http, bag: int, directory: Path, on_file: Callable[[Path], None] | None, files: str,
    on_problem: OnProblem | None = None,
) -> int:
    """How many files are there.  What cannot be brought is told, or raised when all else is there."""
    return _fetch(http, bag, directory, on_file, on_problem,
                  lambda problem: wanted(client, bag, directory, files, problem))


def fetch_some(
    client: Client, http: Http, bag: int, chosen: Mapping[tuple[int, str], str], directory: Path,
    on_file: Callable[[Path], None] | None, on_problem: OnProblem | None = None,
) -> int:
    return _fetch(http, bag, directory, on_file, on_problem, lambda problem: _chosen(client, bag, chosen, directory))


def _chosen(
    client: Client, bag: int, chosen: Mapping[tuple[int, str], str], directory: Path
) -> Iterator[tuple[int, str, Path, str, int, int]]:
    """Few are asked for one by one."""
    for task in sorted({task for task, _ in chosen}):
        row = next((row for row in client.results(bag, "succeeded", task - 1, 1)), None)
        for path, sha, size, mode in row["files"] if row and row["task"] == task else ():
            if (task, path) in chosen:
                yield task, path, below(directory, chosen[task, path]), sha, size, mode


def _fetch(
    http: Http, bag: int, directory: Path, on_file: Callable[[Path], None] | None, on_problem: OnProblem | None,
    find: Callable[[OnProblem], Iterator[tuple[int, str, Path, str, int, int]]],
) -> int:
    first: list[WindfallError] = []
    problem = on_problem or (lambda task, path, error: first.append(error))
    count = 0
    for task, path, target, sha, size, mode in find(problem):
        try:
            _bring(http, target, sha, size, mode)
        except (NotFound, Damaged) as error:
            problem(task, path, error)
            continue
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            problem(task, path, BadInput(f"there is something else where {target} belongs", _elsewhere(bag)))
            continue
        except OSError as error:
            raise Unwritable(f"cannot write to {directory}: {error.strerror or error}", _elsewhere(bag)) from None
        count += 1
        if on_file:
            on_file(target)
    if first:
        raise first[0]
    return count


def _elsewhere(bag: int) -> str:
    return f"windfall results {bag} -o ELSEWHERE"


def wanted(
    client: Client, bag: int, directory: Path, files: str, problem: OnProblem
) -> Iterator[tuple[int, str, Path, str, int, int]]:
    """Task, path, where it lands, blob, size and mode of every output file, as the bag itself names them."""
    spec = client.spec(bag)
    if not any(target.outputs for target in spec.targets):
        return
    place, named = placing(client, bag, spec, files), _Names(spec)
    for row in client.results(bag, state="succeeded"):
        task = row["task"]
        for path, sha, size, mode in row.get("files") or ():
            try:
                target = below(directory, place(row, path))
                if not named.has(row, path):
                    raise BadInput(f"task {task} was not asked for a file {path!r}")
            except BadInput as error:
                problem(task, path, error)
            else:
                yield task, path, target, sha, size, mode


class _Names:
    """What the tasks of a bag call their outputs; tasks that came later than the bag are taken at their word."""

    def __init__(self, bag: Bag):
        from windfall.model.templates.render import Renderer

        self._places, first = [], 0
        for target in [] if bag.open else bag.targets:
            renderer = Renderer(target)
            self._places.append((first, renderer))
            first += renderer.count
        self._count = first

    def has(self, row: Mapping[str, Any], path: str) -> bool:
        task = row["task"]
        if not 0 <= task < self._count:
            return True
        first, renderer = max((place for place in self._places if place[0] <= task), key=lambda place: place[0])
        if row.get("target", renderer.target.name) != renderer.target.name:
            return True
        return path in renderer.outputs(task - first)


def _bring(http: Http, target: Path, sha: str, size: int, mode: int) -> None:
    if _is_there(target, sha, size):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / f".windfall-{sha[:16]}-{os.getpid()}.part"
    try:
        with open(part, "w+b") as stream:
            http.download(sha, stream, size)
            _verify(stream, sha, size, target)
            os.chmod(part, allowed(os.fstat(stream.fileno()).st_mode, mode))
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def allowed(made: int, mode: int) -> int:
    """The mode of a new file, executable or private where the task's was; nobody else may ever write to it."""
    mode = mode & 0o777 or 0o644
    return (made | (made & 0o444) >> 2) & (mode | 0o600) & 0o755


def _is_there(target: Path, sha: str, size: int) -> bool:
    try:
        return target.stat().st_size == size and hash_file(target) == (sha, size)
    except OSError:
        return False


def _verify(stream: Any, sha: str, size: int, target: Path) -> None:
    stream.flush()
    stream.seek(0)
    if hashlib.file_digest(stream, "sha256").hexdigest() != sha or stream.tell() != size:
        raise Damaged(f"what arrived for {target.name} is not what the task made", "fetch it again")
