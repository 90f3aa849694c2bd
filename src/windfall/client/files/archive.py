"""Write output files into one archive; unpack the kept directory of a failed task.

Files stream: one at a time lies here, in memory while it is small.  Names are those that `fetch` would use, so that no
two are the same.  `wire.archive` unpacks archives of pilots, and trusts nothing in them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from windfall.client.files.fetch import Damaged, OnProblem, allowed_mode, output_files
from windfall.errors import BadInput, NotFound, Unwritable, WindfallError

if TYPE_CHECKING:
    from windfall.client.api import Api

MAX_IN_MEMORY = 8 << 20  # bytes of a file that is not written to a temporary file
MAX_BYTES, MAX_FILES = 1 << 30, 100_000  # of a kept directory; honest pilots keep no more
TAR = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz"}

AddFile = Callable[[str, int, int, IO[bytes]], None]  # name, size, mode, content


def save(api: Api, bag: int, file: Path, template: str, on_problem: OnProblem) -> int:
    """Write all output files of a bag into one archive, which appears when it is complete; return how many."""
    kind = next((ending for ending in (*TAR, ".zip") if file.name.endswith(ending)), None)
    if kind is None:
        raise BadInput(f"the name {file.name} does not tell the kind of archive",
                       f"end it with {', '.join(TAR)} or .zip")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as stream:
            add_all = partial(_add_all, api, bag, template, on_problem)
            count = _zip(stream, add_all) if kind == ".zip" else _tar(stream, TAR[kind], add_all)
        os.replace(part, file)
    except OSError as error:
        raise Unwritable(f"cannot write {file}: {error.strerror}", "choose another place") from None
    finally:
        with suppress(OSError):
            part.unlink()
    return count


def _tar(stream: IO[bytes], mode: Any, add_all: Callable[[AddFile], int]) -> int:
    with tarfile.open(fileobj=stream, mode=mode) as archive:

        def add(name: str, size: int, mode: int, data: IO[bytes]) -> None:
            info = tarfile.TarInfo(name)
            info.size, info.mode = size, mode
            archive.addfile(info, data)

        return add_all(add)


def _zip(stream: IO[bytes], add_all: Callable[[AddFile], int]) -> int:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, size: int, mode: int, data: IO[bytes]) -> None:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=size > 1 << 30) as inside:
                shutil.copyfileobj(data, inside)

        return add_all(add)


def _add_all(api: Api, bag: int, template: str, on_problem: OnProblem, add: AddFile) -> int:
    count = 0
    for file in output_files(api, bag, Path("."), template, on_problem):
        with SpooledTemporaryFile(MAX_IN_MEMORY) as data:
            try:
                download(api, data, file.sha, file.size)
            except (NotFound, Damaged) as error:
                on_problem(file.task, file.path, error)
                continue
            add(file.target.as_posix(), file.size, allowed_mode(0o644, file.mode), data)
            count += 1
    return count


def download(api: Api, stream: Any, sha: str, size: int) -> None:
    """Write a blob to a file, check its hash, and seek back to the file's beginning."""
    api._http.download(sha, stream, size)
    stream.seek(0)
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    if digest.hexdigest() != sha:
        raise Damaged("the bytes that arrived do not fit the hash of the file", "fetch it again")
    stream.seek(0)


def unpack(api: Api, sha: str, size: int, directory: Path) -> tuple[int, int]:
    """Unpack the kept directory of a failed task into a new or empty one; return how many files, and links left out."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise BadInput(f"{directory} is not empty", "choose another directory")
        with TemporaryFile() as stream:
            download(api, stream, sha, size)
            return extract(stream, directory)
    except OSError as error:
        why = error.strerror or error
        raise Unwritable(f"cannot unpack to {directory}: {why}", "choose another directory") from None


def extract(stream: IO[bytes], directory: Path) -> tuple[int, int]:
    from windfall.wire import archive

    try:
        unpacked = archive.unpack(stream, str(directory), MAX_BYTES, MAX_FILES)
    except BadInput as error:
        raise WindfallError(f"the directory that the pilot kept cannot be unpacked: {error.message}") from None
    return unpacked.files, len(unpacked.links) + len(unpacked.others)
