"""Input files of tasks: found on this machine, hashed once, added to a target.

    "a.dat"                        every task finds the file at a.dat
    "genome.fa -> data/genome.fa"  every task finds the file at data/genome.fa
    "scripts"                      a directory: all files below it
    "data/*.csv"                   all files that match now, in the order of their names
    "data/*.csv -> in"             the same, in the directory `in`
    "data-{x}.dat -> in.dat"       each task has its own file; all of them must exist now
    "site:/ref/panel.bin -> p"     the file is on the hosts; the pilot links to it, or without an arrow checks it
    "site:panel.bin -> p"          the same, at the path that the site file names
"""

from __future__ import annotations

import glob
import itertools
import os
import stat
from pathlib import Path

from msgspec.structs import replace

from windfall.errors import BadInput, TooLarge
from windfall.model.checks import bag
from windfall.model.checks.bounds import at_most
from windfall.model.checks.result_schema import MAX_SCHEMA
from windfall.model.spec import Family, Input, Placed, Sweep, Target
from windfall.model.templates import template as tpl
from windfall.model.templates.families import renderings
from windfall.wire.patterns import is_pattern

MAX_MATCHES = 1_000_000  # files of one pattern
BESIDE = "paths of inputs start at the folder of the bag file; with --input, at the current folder"

Blob = tuple[str, int, int]  # sha256, size, mode


class InputFinder:
    """Finds and hashes input files; `uploads` collects them."""

    def __init__(self, base: Path):
        self.base = base
        self.uploads: dict[str, Path] = {}
        self._known: dict[Path, Blob] = {}

    def add(self, target: Target, text: str) -> Target:
        """Return the target with one more entry of `inputs`."""
        source, arrow, place = (part.strip() for part in text.partition("->"))
        if not source or (arrow and not place):
            hint = 'as in "genome.fa" or "genome.fa -> data/genome.fa"'
            raise BadInput("not an input file", hint, text=tpl.excerpt(text))
        if source.startswith("site:"):
            there = source[len("site:") :]
            return replace(target, placed=[*target.placed, Placed(path=_tidy(place), there=there)])
        folder, place = place, place_of(source, place)
        if tpl.names(tpl.pieces(source)) or tpl.names(tpl.pieces(place)):
            return replace(target, families=[*target.families, self._family(target, source, place)])
        if self._is_pattern(_plain(source)):
            found = self._matching(_plain(source), _plain(_tidy(folder)))
            once = {(each.path, each.blob): each for each in (*target.inputs, *found)}  # patterns may overlap
            return replace(target, inputs=list(once.values()))
        return replace(target, inputs=[*target.inputs, *self._inputs(_plain(source), _plain(place))])

    def _is_pattern(self, source: str) -> bool:
        return is_pattern(source.rstrip("/")) and not os.path.lexists(self.base / source)

    def _matching(self, pattern: str, folder: str) -> list[Input]:
        """Return the files that a pattern stands for, at their own paths or in a directory of the task."""
        found: list[Input] = []
        for name in self.matching(pattern, "the input"):
            found += self._inputs(name, f"{folder}/{os.path.basename(name)}" if folder else place_of(name, ""))
            at_most(len(found), bag.MAX_FILES, "inputs")
        return found

    def matching(self, pattern: str, what: str) -> list[str]:
        """Return the paths that a pattern stands for now, relative to the bag file, in the order of their names."""
        shown = tpl.excerpt(pattern)
        found = glob.iglob(pattern, root_dir=self.base, recursive=True)
        paths = sorted(set(itertools.islice(found, MAX_MATCHES + 1)))
        if len(paths) > MAX_MATCHES:
            raise TooLarge(f"{what} '{shown}' matches more than {MAX_MATCHES:,} files", text=shown)
        if not paths:
            raise BadInput(f"{what} '{shown}' matches no file", f"looked in {os.path.abspath(self.base)}", text=shown)
        return paths

    def _inputs(self, source: str, place: str) -> list[Input]:
        bag.relative_path(place, "inputs")
        if not os.path.isdir(self.base / source):
            return [_input(place, self.blob(source))]
        names = self._below(source)
        if not names:
            raise BadInput(f"the input '{source}' is a directory without files", text=source)
        return [_input(f"{place}/{name}", self.blob(os.path.join(source, name))) for name in names]

    def _below(self, source: str) -> list[str]:
        """Return all files below a directory, by their paths from there, in a fixed order."""
        root = self.base / source
        found: list[str] = []
        for folder, folders, names in os.walk(root):
            folders.sort()
            found += [os.path.relpath(os.path.join(folder, name), root) for name in sorted(names)]
            if len(found) > bag.MAX_FILES:
                message = f"the input directory '{source}' has more than {bag.MAX_FILES:,} files"
                raise TooLarge(message, "make an archive of it", text=source)
        return found

    def _family(self, target: Target, source: str, place: str) -> Family:
        if not isinstance(target.source, Sweep) or (not target.source.axes and not target.source.derived):
            raise BadInput(
                "an input has parameters in its name, but the bag has no [sweep]",
                "write {{ and }} for braces",
                text=source,
            )
        _known_parameters(target.source, source, place)
        if "*" in source:
            raise BadInput("an input has both parameters and wildcards in its name",
                           "sweep over the files: x = \"glob:data/*.csv\", and inputs = [\"{x}\"]", text=source)
        files: dict[str, Blob] = {}
        for task, (name, path) in renderings(target.source, source, place):
            if not name:
                continue
            bag.relative_path(path, "inputs")
            if name not in files:
                files[name] = self._blob_for(name, source, task)
        return Family(path=place, source=source, files=files)

    def _blob_for(self, name: str, source: str, task: int) -> Blob:
        try:
            return self.blob(name)
        except BadInput as error:
            error.message = f"task {task}: {error.message}"
            error.text = source
            raise

    def blob(self, source: str) -> Blob:
        file = self.base / source
        if file not in self._known:
            self._known[file] = _hash(file, source)
            self.uploads[self._known[file][0]] = file
        return self._known[file]

    def text(self, name: str, what: str) -> str:
        """Return the text of a small file that travels in the bag."""
        try:
            with open(self.base / name, "rb") as stream:
                data = stream.read(4 * MAX_SCHEMA + 1)
            return data.decode()
        except OSError as error:
            raise BadInput(
                f"{what} '{tpl.excerpt(name)}' cannot be read: {error.strerror}", "its path is relative to the bag file"
            ) from None
        except UnicodeDecodeError:
            raise BadInput(f"{what} '{tpl.excerpt(name)}' is not UTF-8 text") from None
        except ValueError:
            raise BadInput(f"{what}: not a file name") from None


def _known_parameters(sweep: Sweep, *templates: str) -> None:
    from windfall.model.templates.render import Space, lean_sweep

    space = Space(lean_sweep(sweep))
    for template in templates:
        space.check(tpl.pieces(template), "an input")


def place_of(source: str, place: str) -> str:
    """Return a file's path for the task: `place`, else its path if below the bag file, else its last name."""
    if place:
        return _tidy(place)
    inside = not source.startswith("/") and ".." not in source.split("/")
    return _tidy(source if inside else source.rstrip("/").rsplit("/", 1)[-1])


def _tidy(path: str) -> str:
    return path.removeprefix("./").rstrip("/") if path.strip("./") else path


def _plain(text: str) -> str:
    """Return the text of a template without parameters, with its doubled braces as single ones."""
    return "".join(map(str, tpl.pieces(text)))


def _input(path: str, blob: Blob) -> Input:
    return Input(path=path, blob=blob[0], size=blob[1], mode=blob[2])


def _hash(file: Path, shown: str) -> Blob:
    import hashlib

    shown = tpl.excerpt(shown)
    try:
        info = file.stat()
        if stat.S_ISDIR(info.st_mode):
            raise BadInput(f"the input '{shown}' is a directory", "name its files, or an archive of it", text=shown)
        if not stat.S_ISREG(info.st_mode):
            raise BadInput(f"the input '{shown}' is not a regular file", text=shown)
        with open(file, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.tell()
    except OSError as error:
        raise BadInput(f"the input '{shown}' cannot be read: {error.strerror}", BESIDE, text=shown) from None
    except ValueError:
        raise BadInput("not a file name", text=shown) from None
    return digest, size, 0o755 if info.st_mode & 0o100 else 0o644
