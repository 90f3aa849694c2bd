"""Files that a command names and that lie here, but that no task will find: an `--input` may have been forgotten."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windfall.model.spec import Bag, Target

SEPARATORS = re.compile(r"""[\s;|&()"'=,]+""")
ELSEWHERE = re.compile(r"[{}$*?~<>`\\]|^/")  # words that a sweep, a shell or another place decides on
NAMED = 3  # files of a target that are named


def hints(bag: Bag, base: Path) -> Iterator[str]:
    """Yield hints at files of this folder that the command of a target needs and no input of it names."""
    for target in bag.targets:
        for name in _swept(target, base):
            yield (f"'{name}' stands for files of this folder, and each task runs in a directory of its own: "
                   f"--input '{{{name}}}', or inputs = [\"{{{name}}}\"] in a bag file, gives each task its file")
        found = list(dict.fromkeys(_forgotten(target, base)))[:NAMED]
        if found:
            files, them = ", ".join(found), "it" if len(found) == 1 else "them"
            example = f"--input {found[0]}, or inputs = [\"{found[0]}\"] in a bag file, takes {them} along"
            yield f"each task runs in a directory of its own, without {files}: {example}"


def _forgotten(target: Target, base: Path) -> Iterator[str]:
    words = _words(target.command)
    if "cd" in words or target.kind != "command":
        return
    known = {each.path for each in (*target.inputs, *target.families, *target.placed)}
    known.update(map(os.path.normpath, (*target.outputs, *target.checkpoint)))
    for word in words:
        path = os.path.normpath(word)
        if "." in word and path not in known and not path.startswith("..") and _is_file(base / path) \
                and ("/" in word or not shutil.which(word)):
            yield path


def _swept(target: Target, base: Path) -> Iterator[str]:
    """Yield the parameters of a command whose values are paths of files here, where no input's name has them."""
    command = target.command if isinstance(target.command, str) else " ".join(target.command)
    taken = " ".join([*(each.source for each in target.families), *(each.there for each in target.placed)])
    known = {each.path for each in target.inputs}
    for name, value in _listed(target):
        word = "{" + name + "}"
        if word in command and word not in taken and os.path.normpath(value) not in known and _is_file(base / value):
            yield name


def _listed(target: Target) -> Iterator[tuple[str, str]]:
    """Yield the parameters whose values are a list, each with its first value, if that may be a file's path."""
    from windfall.model.spec import Sweep, Values

    for axis in target.source.axes if isinstance(target.source, Sweep) else ():
        if isinstance(axis, Values) and "." in str(axis.values[0]) and not str(axis.values[0]).startswith("/"):
            yield axis.name, str(axis.values[0])


def _words(command: str | list[str]) -> list[str]:
    """Return the words of a command that stand for themselves; a shell's `> file` writes, and is left out."""
    text = re.sub(r"\d?>>?\s*\S+", " ", command) if isinstance(command, str) else " ".join(command)
    return [word for word in SEPARATORS.split(text) if word and not ELSEWHERE.search(word)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
