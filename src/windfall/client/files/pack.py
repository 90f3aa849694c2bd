"""`python = ".venv"`: the packages of a virtual environment as one file that can be unpacked anywhere.

The file holds site-packages alone, since scripts and the interpreter hold paths of this machine.  The same packages
give the same bytes, whenever they were installed, so that nothing is sent twice.  The packages of a list of
requirements are installed once, with pip, into a directory of their own.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from windfall.errors import BadInput, TooLarge
from windfall.model.spec import Packed

MAX_PACKED = 4 << 30  # bytes before compression

_LEFT_OUT = re.compile(r"(.*/)?(__pycache__|pip|pip-[\d.]+\.dist-info|.*\.pyc|_virtualenv\.py|.*\.pth)(/.*)?")
_HARMLESS = ("distutils-precedence.pth", "_virtualenv.pth")


def pack(source: Path, cache: Path) -> tuple[Packed, Path]:
    """Pack an environment, or a list of requirements, into `cache`; return the record for the bag and the file."""
    packages, version = _environment(source) if source.is_dir() else _installed(source, cache)
    _refuse_links_home(packages, source)
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = cache / f"{os.getpid()}.part"
    try:
        _write(packages, part)
        with open(part, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        made = cache / f"{digest}.tar.gz"
        os.replace(part, made)
    finally:
        part.unlink(missing_ok=True)
    return Packed(blob=digest, size=made.stat().st_size, python=version), made


def _environment(source: Path) -> tuple[Path, str]:
    """Return the packages of a virtual environment and the version of its interpreter."""
    found = sorted(source.glob("lib/python3.*/site-packages"))
    if not (source / "pyvenv.cfg").is_file() or len(found) != 1:
        raise BadInput(
            f"python: '{source}' is not a virtual environment", "name a directory made by python -m venv, or a file"
        )
    return found[0], found[0].parent.name.removeprefix("python")


def _installed(requirements: Path, cache: Path) -> tuple[Path, str]:
    """Install a list of requirements for this interpreter, unless that was done before; return as `_environment`."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    text = requirements.read_bytes()
    folder = cache / f"installed-{hashlib.sha256(version.encode() + text).hexdigest()[:16]}"
    if folder.is_dir():
        return folder, version
    part = folder.with_name(f"{folder.name}.{os.getpid()}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--target", os.path.abspath(part), "-r", requirements.name]
    done = subprocess.run(command, cwd=requirements.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        hint = f"try pip install -r {requirements}"
        raise BadInput(f"python: pip could not install '{requirements}': {reason[:300]}", hint)
    os.replace(part, folder)
    return folder, version


def _refuse_links_home(packages: Path, source: Path) -> None:
    """Refuse editable installations, which are paths of this machine."""
    for file in sorted(packages.glob("*.pth")):
        if file.name not in _HARMLESS:
            raise BadInput(
                f"python: '{source}' has packages that are installed as links ({file.name})",
                "install them without -e, so that they can be packed",
            )


def _write(packages: Path, made: Path) -> None:
    total = 0
    with (
        open(made, "wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=3, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in _names(packages):
            with open(packages / name, "rb") as stream:
                member = tarfile.TarInfo(f"site-packages/{name}")
                info = os.fstat(stream.fileno())
                member.size, member.mode = info.st_size, 0o755 if info.st_mode & 0o100 else 0o644
                total += member.size
                if total > MAX_PACKED:
                    raise TooLarge(f"python: the packages take more than {MAX_PACKED >> 30} GiB",
                                   "leave out what the tasks do not import")
                archive.addfile(member, stream)


def _names(packages: Path) -> Iterator[str]:
    """Yield the names of the files to pack, in a fixed order."""
    for folder, folders, names in os.walk(packages):
        folders.sort()
        for name in sorted(names):
            inside = os.path.relpath(os.path.join(folder, name), packages)
            if not _LEFT_OUT.fullmatch(inside) and os.path.isfile(packages / inside):
                yield inside
