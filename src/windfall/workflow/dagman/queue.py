"""The `queue` statement of a submit description: how many jobs, and the variables of each.

    queue [COUNT] [VARIABLES] [in | from | matching [files | dirs | any]] [SLICE] ITEMS

ITEMS stand on the line, or line by line in ( … ); `from FILE` reads them from a file.  Each item makes COUNT jobs.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.workflow.text import read_source

MAX_JOBS = 100_000  # of one node
USAGE = "queue [COUNT] [NAMES in|from|matching ITEMS]"
MAX_ITEMS_FILE = 16 << 20

_HOW = re.compile(r"(?:^|(?<=\s))(in|from|matching)(?=[\s(\[]|$)", re.IGNORECASE)
_KIND = re.compile(r"\s*(files|dirs|any)(?=[\s(\[])", re.IGNORECASE)
_SLICE = re.compile(r"\s*(\[[-\d\s]*:[-\d\s:]*\])")
_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,9}")


class QueueError(Exception):
    """A queue statement that says nothing that can be done."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class QueueStatement(NamedTuple):
    """`text` follows the word `queue`; `lines` stood between parentheses, one below the other."""

    text: str
    lines: tuple[str, ...]
    at: int

    @property
    def plain(self) -> bool:
        """Does it queue one job without variables?"""
        return self.text in ("", "1")

    def jobs(self, folder: Path) -> list[dict[str, str]]:
        """Return the macros of each job; names of files begin in `folder`."""
        how = _HOW.search(self.text)
        count, names = _head(self.text[: how.start()] if how else self.text)
        if how is None:
            if names:
                raise QueueError(f"'queue {self.text[:50]}' is not understood here", USAGE)
            return [{"step": str(step)} for step in range(_bounded(count))]
        rest, kind, cut = self.text[how.end() :], "any", None
        if match := _KIND.match(rest) if how[1].lower() == "matching" else None:
            kind, rest = match[1].lower(), rest[match.end() :]
        if match := _SLICE.match(rest):
            cut, rest = match[1], rest[match.end() :]
        items = self._items(how[1].lower(), kind, rest.strip(), folder)
        chosen = range(len(items))[_slice(cut)]
        _bounded(count * len(chosen))
        return [{"step": str(step), "row": str(row), "itemindex": str(row), **_given(names or ["item"], items[row])}
                for row in chosen for step in range(count)]

    def _items(self, how: str, kind: str, text: str, folder: Path) -> list[str]:
        listed = text.startswith("(")
        if listed:
            text = text[1:].removesuffix(")")
        lines = [text, *self.lines] if listed else [text]
        if how == "from" and not listed:
            lines = _lines_of(text, folder)
        if how == "from":
            return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        words = [word for line in lines for word in re.split(r"[\s,]+", line) if word]
        return words if how == "in" else list(_matching(words, kind, folder))


def _head(text: str) -> tuple[int, list[str]]:
    """Return the count, or 1, and the names of variables."""
    words = [word for word in re.split(r"[\s,]+", text) if word]
    count = 1
    if words and words[0].isascii() and words[0].isdecimal():
        first = words.pop(0)
        count = int(first) if len(first) < 10 else MAX_JOBS + 1
    for word in words:
        if _NAME.fullmatch(word) is None:
            raise QueueError(f"'{word[:50]}' is not understood after 'queue'", USAGE)
    return count, [word.lower() for word in words]


def _bounded(count: int) -> int:
    if count > MAX_JOBS:
        raise QueueError(f"a node queues at most {MAX_JOBS:,} jobs, not {count:,}", "let several nodes share them")
    return count


def _slice(text: str | None) -> slice:
    if text is None:
        return slice(None)
    parts = [part.strip() for part in text[1:-1].split(":")]
    numbers = all(not part or _NUMBER.fullmatch(part) for part in parts)
    if len(parts) > 3 or not numbers or parts[2:] in (["0"], ["-0"]):
        raise QueueError(f"'{text[:50]}' is not a slice", "as in [0:10], or [::2]")
    return slice(*(int(part) if part else None for part in parts))


def _given(names: list[str], item: str) -> dict[str, str]:
    """Give a name each of the item's words, and the last name what is left."""
    words = re.split(r"\s*,\s*|\s+", item, maxsplit=len(names) - 1) if len(names) > 1 else [item]
    return dict(zip(names, [*words, *[""] * len(names)], strict=False))


def _lines_of(name: str, folder: Path) -> list[str]:
    if name.endswith("|"):
        raise QueueError("Windfall does not run a command for the items of a queue", "write its output to a file")
    try:
        return read_source(folder / name, MAX_ITEMS_FILE).text.split("\n")
    except (BadInput, ValueError) as error:
        raise QueueError(f"queue from: {getattr(error, 'message', error)}",
                         "relative names start at the DAG file's folder, or at DIR") from None


def _matching(patterns: list[str], kind: str, folder: Path) -> Iterator[str]:
    """Yield the files, or folders, that match any pattern, each once."""
    seen: set[str] = set()
    for pattern in patterns:
        for name in sorted(glob.iglob(pattern, root_dir=folder)):
            path = folder / name
            if name in seen or (kind == "files" and not path.is_file()) or (kind == "dirs" and not path.is_dir()):
                continue
            seen.add(name)
            _bounded(len(seen))
            yield name
