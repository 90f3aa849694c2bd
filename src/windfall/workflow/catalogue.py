"""The user's components, in a folder: `NAME/VERSION.xml`, each the file it came in.

Versions count from 1.  Adding what is there already makes no new one; nothing is ever overwritten, so what an
application was compiled with can be looked up later.  The latest version is the one that is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import BadInput, NotFound
from .files import NAME, Component, load, looks_like_xml

MAX_VERSIONS = 10_000
SUFFIXES = (".query", ".xml", ".yml", ".component")


class Entry(NamedTuple):
    component: Component
    version: int
    new: bool = False


class Catalogue(Mapping[str, Component]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Component] = {}

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
        if not NAME.fullmatch(name) or not (self.folder / name).is_dir():
            return []
        stems = (each.name.removesuffix(".xml") for each in os.scandir(self.folder / name))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def path(self, name: str, version: int | None = None) -> Path:
        known = self.versions(name)
        if not known:
            raise NotFound(f"there is no component '{name}'", "'windfall component ls' lists them")
        if version is not None and version not in known:
            raise NotFound(f"there is no version {version} of '{name}'", f"there are: {', '.join(map(str, known))}")
        return self.folder / name / f"{version or known[-1]}.xml"

    def entry(self, name: str, version: int | None = None) -> Entry:
        path = self.path(name, version)
        for component in load(path).components:
            if component.name == name:
                return Entry(component, int(path.stem))
        raise BadInput(f"{path} does not hold '{name}' any more", f"'windfall component rm {name}', and add it again")

    def implementations(self, abstract: str) -> list[Component]:
        return [self[name] for name in self if self[name].kind == "impl" and self[name].abstract == abstract]

    def add(self, path: Path) -> list[Entry]:
        """All components of a file; nothing is added unless all of it is right."""
        file = load(path)
        if not file.components:
            raise BadInput(f"{path} holds no component", "a component's file begins with <component type=…>")
        data = path.read_bytes()
        self._read.clear()
        return [self._add(component, data) for component in file.components]

    def _add(self, component: Component, data: bytes) -> Entry:
        known = self.versions(component.name)
        if known and self.path(component.name).read_bytes() == data:
            return Entry(component, known[-1])
        folder = self.folder / component.name
        folder.mkdir(parents=True, exist_ok=True)
        for version in range(known[-1] + 1 if known else 1, MAX_VERSIONS):
            if _write_new(folder / f"{version}.xml", data):
                return Entry(component, version, True)
        raise BadInput(f"'{component.name}' has too many versions", "'windfall component rm NAME@1' removes one")

    def remove(self, name: str, version: int | None = None) -> list[int]:
        """The versions that are gone."""
        self.path(name, version)
        gone = self.versions(name) if version is None else [version]
        for each in gone:
            (self.folder / name / f"{each}.xml").unlink(missing_ok=True)
        if not self.versions(name):
            (self.folder / name).rmdir()
        self._read.clear()
        return gone


def _write_new(path: Path, data: bytes) -> bool:
    """False if somebody was faster."""
    try:
        with path.open("xb") as stream:
            stream.write(data)
    except FileExistsError:
        return False
    return True


def gather(paths: list[Path]) -> dict[str, Component]:
    """Components of files, and of all files of folders."""
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
    """In a folder, files that are no XML are passed over; one that is named must hold components."""
    return [] if among_others and not looks_like_xml(path) else load(path).components


