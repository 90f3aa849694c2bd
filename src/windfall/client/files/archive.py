"""Outputs into one archive, and a failed task's kept directory out of one.

Streams: one file at a time lies here, in memory while it is small.  Names are those that `fetch` would use, so no two
are the same; an archive that comes from a pilot is unpacked by `wire.archive`, which trusts nothing in it.
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

from windfall.client.files.fetch import Damaged, OnProblem, allowed, wanted
from windfall.errors import BadInput, NotFound, Unwritable, WindfallError

if TYPE_CHECKING:
    from windfall.client.client import Client

SMALL = 8 << 20  # bytes of a file that is held in memory
MAX_BYTES, MAX_FILES = 1 << 30, 100_000  # of a kept directory: what an honest pilot keeps
TAR = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz"}

Add = Callable[[str, int, int, IO[bytes]], None]


def save(client: Client, bag: int, file: Path, files: str, problem: OnProblem) -> int:
    """All output files of a bag in one archive; how many.  It appears when it is complete; `files` as for `fetch`."""
    kind = next((ending for ending in (*TAR, ".zip") if file.name.endswith(ending)), None)
    if kind is None:
        raise BadInput(f"what kind of archive is {file.name}?", f"name it {', '.join(TAR)} or .zip")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as stream:
            each = partial(_each, client, bag, files, problem)
            count = _zip(stream, each) if kind == ".zip" else _tar(stream, TAR[kind], each)
        os.replace(part, file)
    except OSError as error:
        raise Unwritable(f"cannot write {file}: {error.strerror}", "choose another place") from None
    finally:
        with suppress(OSError):
            part.unlink()
    return count


def _tar(stream: IO[bytes], mode: Any, each: Callable[[Add], int]) -> int:
    with tarfile.open(fileobj=stream, mode=mode) as archive:

        def add(name: str, size: int, mode: int, data: IO[bytes]) -> None:
            info = tarfile.TarInfo(name)
            info.size, info.mode = size, mode
            archive.addfile(info, data)

        return each(add)


def _zip(stream: IO[bytes], each: Callable[[Add], int]) -> int:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, size: int, mode: int, data: IO[bytes]) -> None:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=size > 1 << 30) as inside:
                shutil.copyfileobj(data, inside)

        return each(add)


def _each(client: Client, bag: int, files: str, problem: OnProblem, add: Add) -> int:
    count = 0
    for task, path, place, sha, size, mode in wanted(client, bag, Path("."), files, problem):
        with SpooledTemporaryFile(SMALL) as data:
            try:
                download(client, data, sha, size)
            except (NotFound, Damaged) as error:
                problem(task, path, error)
                continue
            add(place.as_posix(), size, allowed(0o644, mode), data)
            count += 1
    return count


def download(client: Client, stream: Any, sha: str, size: int) -> None:
    """A blob into a file, checked; the file is left at its beginning."""
    client._http.download(sha, stream, size)
    stream.seek(0)
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    if digest.hexdigest() != sha:
        raise Damaged("what arrived is not what the task made", "fetch it again")
    stream.seek(0)


def unpack(client: Client, sha: str, size: int, directory: Path) -> tuple[int, int]:
    """The kept directory of a failed task, into a new or empty directory; how many files, and links left out."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise BadInput(f"{directory} is not empty", "choose another directory")
        with TemporaryFile() as stream:
            download(client, stream, sha, size)
            return extract(stream, directory)
    except OSError as error:
        why = error.strerror or error
        raise Unwritable(f"cannot unpack to {directory}: {why}", "choose another directory") from None


def extract(stream: IO[bytes], directory: Path) -> tuple[int, int]:
    from windfall.wire import archive

    try:
        made = archive.unpack(stream, str(directory), MAX_BYTES, MAX_FILES)
    except BadInput as error:
        raise WindfallError(f"what the pilot kept cannot be unpacked: {error.message}") from None
    return made.files, len(made.links) + len(made.others)
