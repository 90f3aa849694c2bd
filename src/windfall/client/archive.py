"""Outputs into one archive, and a failed task's kept directory out of one.

Streams: one file at a time lies here, in memory while it is small.  Names are those that `fetch` would use, so no two
are the same; an archive that comes from a pilot is unpacked with Python's `data` filter and within the disk's room.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from ..errors import BadInput, WindfallError
from .places import Place, below, placing

if TYPE_CHECKING:
    from .client import Client

SMALL = 8 << 20  # bytes of a file that is held in memory
MAX_MEMBERS = 1_000_000
TAR = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.xz": "w:xz"}

Add = Callable[[str, int, int, IO[bytes]], None]


def save(client: Client, bag: int, file: Path, files: str = "") -> int:
    """All output files of a bag in one archive; how many.  It appears when it is complete; `files` as for `fetch`."""
    kind = next((ending for ending in (*TAR, ".zip") if file.name.endswith(ending)), None)
    if kind is None:
        raise BadInput(f"what kind of archive is {file.name}?", f"name it {', '.join(TAR)} or .zip")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as stream:
            each = partial(_each, client, bag, placing(client, bag, client.spec(bag), files))
            count = _zip(stream, each) if kind == ".zip" else _tar(stream, TAR[kind], each)
        os.replace(part, file)
    except OSError as error:
        raise BadInput(f"cannot write {file}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
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


def _each(client: Client, bag: int, place: Place, add: Add) -> int:
    root, count = Path("."), 0
    for row in client.results(bag, state="succeeded"):
        for path, sha, size, mode in row.get("files") or ():
            with SpooledTemporaryFile(SMALL) as data:
                download(client, data, sha, size)
                add(below(root, place(row, path)).as_posix(), size, mode & 0o777 or 0o644, data)
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
        raise WindfallError("what arrived is not what the task made", "fetch it again")
    stream.seek(0)


def unpack(client: Client, sha: str, size: int, directory: Path) -> int:
    """The kept directory of a failed task; how many files."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile() as stream:
            download(client, stream, sha, size)
            with tarfile.open(fileobj=stream, mode="r:gz") as archive:
                return _extract(archive, directory)
    except (tarfile.TarError, EOFError) as error:
        raise WindfallError(f"what the pilot kept cannot be unpacked: {error}") from None
    except OSError as error:
        raise BadInput(f"cannot unpack to {directory}: {error.strerror or error}") from None


def _extract(archive: tarfile.TarFile, directory: Path) -> int:
    room, members, files = shutil.disk_usage(directory).free, 0, 0
    for member in archive:
        members, room = members + 1, room - member.size
        if room < 0 or members > MAX_MEMBERS:
            raise WindfallError("what the pilot kept is larger than the room here", "choose another directory")
        archive.extract(member, directory, filter="data")
        files += member.isfile()
    return files
