"""Bring output files home.

`places` decides where a file lands.  A file appears under its name only when it is complete and its hash fits.  A path
that would leave the directory is refused, whoever sent it.

Only files that the bag itself names as outputs are written, and each replaces an older file of the same name; nothing
else in the directory changes.  A file that cannot be brought does not keep the others out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windfall.client.files.places import below, placing
from windfall.data.files import hash_file
from windfall.errors import BadInput, NotFound, Unwritable, WindfallError
from windfall.wire.patterns import Pattern

if TYPE_CHECKING:
    from windfall.client.api import Api
    from windfall.client.http import Http
    from windfall.model.spec import Bag


OnProblem = Callable[[int, str, WindfallError], None]  # task, path, why


class Damaged(WindfallError):
    """The bytes that arrived do not fit the hash of the file."""


class Destination(NamedTuple):
    """A directory for output files, and the functions that hear of each file."""

    directory: Path
    on_file: Callable[[Path], None] | None = None
    on_problem: OnProblem | None = None  # None: the first problem is raised when all other files are there


class OutputFile(NamedTuple):
    task: int
    path: str  # as the task names it
    target: Path  # where it lands
    sha: str
    size: int
    mode: int


def fetch(api: Api, bag: int, destination: Destination, template: str = "") -> int:
    """Bring all output files of a bag; return how many are there."""
    return _fetch(api, bag, destination,
                  lambda problem: output_files(api, bag, destination.directory, template, problem))


def fetch_some(api: Api, bag: int, destination: Destination, chosen: Mapping[tuple[int, str], str]) -> int:
    """Bring the files of `chosen`: (task, output) → where in the directory the file lands."""
    return _fetch(api, bag, destination, lambda _: _chosen_files(api, bag, chosen, destination.directory))


def _chosen_files(
    api: Api, bag: int, chosen: Mapping[tuple[int, str], str], directory: Path
) -> Iterator[OutputFile]:
    """Yield the chosen files; one request per task, since they are few."""
    for task in sorted({task for task, _ in chosen}):
        row = next((row for row in api.results(bag, "succeeded", task - 1, 1)), None)
        for path, sha, size, mode in row["files"] if row and row["task"] == task else ():
            if (task, path) in chosen:
                target = below(directory, chosen[task, path])
                yield OutputFile(task, path, target, sha=sha, size=size, mode=mode)


def _fetch(
    api: Api, bag: int, destination: Destination, find: Callable[[OnProblem], Iterator[OutputFile]],
) -> int:
    problems: list[WindfallError] = []
    on_problem = destination.on_problem or (lambda task, path, error: problems.append(error))
    count = 0
    for file in find(on_problem):
        try:
            _bring(api._http, file)
        except (NotFound, Damaged) as error:
            on_problem(file.task, file.path, error)
            continue
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            taken = BadInput(f"{file.target} is taken by something that is not a file", _elsewhere(bag))
            on_problem(file.task, file.path, taken)
            continue
        except OSError as error:
            message = f"cannot write to {destination.directory}: {error.strerror or error}"
            raise Unwritable(message, _elsewhere(bag)) from None
        count += 1
        if destination.on_file:
            destination.on_file(file.target)
    if problems:
        raise problems[0]
    return count


def _elsewhere(bag: int) -> str:
    return f"windfall results {bag} -o ELSEWHERE"


def output_files(api: Api, bag: int, directory: Path, template: str, on_problem: OnProblem) -> Iterator[OutputFile]:
    """Yield every output file that the bag itself names; tell `on_problem` of files that the bag does not name."""
    spec = api.spec(bag)
    if not any(target.outputs for target in spec.targets):
        return
    place, names = placing(api, bag, spec, template), _OutputNames(spec)
    for row in api.results(bag, state="succeeded"):
        task = row["task"]
        for path, sha, size, mode in row.get("files") or ():
            try:
                target = below(directory, place(row, path))
                if not names.has(row, path):
                    raise BadInput(f"task {task} was not asked for a file {path!r}")
            except BadInput as error:
                on_problem(task, path, error)
            else:
                yield OutputFile(task, path, target, sha=sha, size=size, mode=mode)


class _OutputNames:
    """The output names of a bag's tasks.  Tasks that were appended later may name any file."""

    def __init__(self, bag: Bag):
        from windfall.model.templates.render import Renderer

        self._targets, first = [], 0
        for target in [] if bag.open else bag.targets:
            renderer = Renderer(target)
            self._targets.append((first, renderer))
            first += renderer.count
        self._count = first

    def has(self, row: Mapping[str, Any], path: str) -> bool:
        task = row["task"]
        if not 0 <= task < self._count:
            return True
        first, renderer = max((each for each in self._targets if each[0] <= task), key=lambda each: each[0])
        if row.get("target", renderer.target.name) != renderer.target.name:
            return True
        outputs = renderer.outputs(task - first)
        return path in outputs or any(Pattern(output).matches(path) for output in outputs)


def _bring(http: Http, file: OutputFile) -> None:
    target = file.target
    if _is_there(file):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / f".windfall-{file.sha[:16]}-{os.getpid()}.part"
    try:
        part.unlink(missing_ok=True)
        with open(part, "x+b") as stream:  # new: the name of an old file, or of a link, could be foreseen
            http.download(file.sha, stream, file.size)
            _verify(stream, file)
            os.chmod(part, allowed_mode(os.fstat(stream.fileno()).st_mode, file.mode))
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def allowed_mode(created: int, mode: int) -> int:
    """Return the mode of a brought file: executable or private as the task's was, writable by its owner only."""
    mode = mode & 0o777 or 0o644
    return (created | (created & 0o444) >> 2) & (mode | 0o600) & 0o755


def _is_there(file: OutputFile) -> bool:
    try:
        return file.target.stat().st_size == file.size and hash_file(file.target) == (file.sha, file.size)
    except OSError:
        return False


def _verify(stream: Any, file: OutputFile) -> None:
    stream.flush()
    stream.seek(0)
    if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha or stream.tell() != file.size:
        raise Damaged(f"the bytes that arrived for {file.target.name} do not fit its hash", "fetch it again")
