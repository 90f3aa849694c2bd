"""The user's components, in a folder: `NAME/VERSION.xml`, each a copy of the file it came in.

Versions count from 1, and a lookup uses the latest.  Adding an identical file makes no new version.  No version is ever
overwritten, so the components an application was compiled with can be looked up later.

Several processes may add and remove at once, and any may be killed: a version appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from windfall.errors import BadInput, NotFound
from windfall.workflow.components.files import NAME, Component, ComponentFile, load, loads, looks_like_xml
from windfall.workflow.components.xmlfile import MAX_FILE
from windfall.workflow.text import read_file

MAX_VERSIONS = 10_000
VERSION = re.compile(r"([0-9]{1,9})\.xml")
SUFFIXES = (".query", ".xml", ".yml", ".component")


class Entry(NamedTuple):
    component: Component
    version: int
    new: bool = False


class Catalogue(Mapping[str, Component]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Component] = {}
        self._files: dict[
            bytes, ComponentFile
        ] = {}  # by content: a file of several components lies here once per component

    # --- the latest of each name --------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[str]:
        found = os.listdir(self.folder) if self.folder.is_dir() else []
        return iter(sorted(name for name in found if self.versions(name)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.versions(name))

    def __getitem__(self, name: str) -> Component:
        if name not in self._read:
            if name not in self:
                raise KeyError(name)
            self._read[name] = self.entry(name).component
        return self._read[name]

    # --- versions -----------------------------------------------------------------------------------------------------

    def versions(self, name: str) -> list[int]:
        if not NAME.fullmatch(name):
            return []
        try:
            found = list(os.scandir(self.folder / name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(match[1]) for each in found if (match := VERSION.fullmatch(each.name)) and each.is_file())

    def path(self, name: str, version: int | None = None) -> Path:
        known = self.versions(name)
        if not known:
            raise NotFound(f"there is no component '{name}'", "'windfall component ls' lists them")
        if version is not None and version not in known:
            raise NotFound(f"there is no version {version} of '{name}'", f"there are: {', '.join(map(str, known))}")
        return self.folder / name / f"{version or known[-1]}.xml"

    def entry(self, name: str, version: int | None = None) -> Entry:
        path = self.path(name, version)
        for component in self._file(path).components:
            if component.name == name:
                return Entry(component, int(path.stem))
        raise BadInput(f"{path} does not hold '{name}' any more", f"'windfall component rm {name}', and add it again")

    def _file(self, path: Path) -> ComponentFile:
        data = read_file(path, MAX_FILE)
        key = hashlib.sha256(data).digest()
        if key not in self._files:
            self._files[key] = loads(data, str(path))
        return self._files[key]

    def add(self, path: Path) -> list[Entry]:
        """Add all components of a file, or none if the file has a mistake."""
        data = read_file(path, MAX_FILE)
        file = loads(data, str(path))
        if not file.components:
            raise BadInput(f"{path} holds no component", "a component's file begins with <component type=…>")
        self._read.clear()
        self.folder.mkdir(parents=True, exist_ok=True)
        return [self._add(component, data) for component in file.components]

    def _add(self, component: Component, data: bytes) -> Entry:
        known = self.versions(component.name)
        folder = self.folder / component.name
        for version in range(known[-1] if known else 1, MAX_VERSIONS):
            if _appeared(folder / f"{version}.xml", data):
                return Entry(component, version, True)
            if _bytes(folder / f"{version}.xml") == data:
                return Entry(component, version)
        raise BadInput(f"'{component.name}' has too many versions", "'windfall component rm NAME@1' removes one")

    def remove(self, name: str, version: int | None = None) -> list[int]:
        """Remove one version of a component, or all; return those removed."""
        self.path(name, version)
        gone = self.versions(name) if version is None else [version]
        for each in gone:
            (self.folder / name / f"{each}.xml").unlink(missing_ok=True)
        with suppress(OSError):  # the folder holds other versions, or files of another program
            (self.folder / name).rmdir()
        self._read.clear()
        return gone


def _appeared(path: Path, data: bytes) -> bool:
    """Put a whole file under its name; return False if the name is taken."""
    handle, part = tempfile.mkstemp(dir=path.parent.parent, prefix=".new-")
    try:
        with open(handle, "wb") as stream:
            stream.write(data)
        while True:
            with suppress(FileExistsError):
                path.parent.mkdir()
            with suppress(FileNotFoundError):  # another process has removed the folder
                return _linked(Path(part), path)
    finally:
        os.unlink(part)


def _linked(part: Path, path: Path) -> bool:
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    except PermissionError:  # a file system without links
        try:
            with path.open("xb") as stream:
                stream.write(part.read_bytes())
        except FileExistsError:
            return False
    return True


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def gather(paths: list[Path]) -> dict[str, Component]:
    """Collect the components of files, and of all files in folders."""
    found: dict[str, Component] = {}
    for path in paths:
        files = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES) if path.is_dir() else [path]
        for file in files:
            for component in _components(file, path.is_dir()):
                if component.name in found and found[component.name] != component:
                    raise BadInput(f"'{component.name}' is in {found[component.name].where} and in {component.where}",
                                   "remove one, or name the file that counts")
                found[component.name] = component
    return found


def _components(path: Path, among_others: bool) -> list[Component]:
    """Read a file's components; a file found in a folder is skipped if it is not XML, a named one must be readable."""
    return [] if among_others and not looks_like_xml(path) else load(path).components


