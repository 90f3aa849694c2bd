"""Sources of text, so that a complaint points at the user's own file: line, column, caret.

A graph may be embedded in XML.  The compiler then reads a text made of pieces, each of which knows its line and column
in the file; `place` maps `at`, an offset into the text, back to them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from windfall.errors import BadInput, TooLarge

SHOWN = 100  # letters of a line in a complaint


class FilePlace(NamedTuple):
    """A place in a user's file, with the file's lines to show it."""

    file: str
    lines: list[str]  # empty for a workflow composed in Python
    line: int
    column: int


class Piece(NamedTuple):
    start: int  # in the text
    line: int  # in the file, from 1
    column: int  # from 1


@dataclass(frozen=True)
class Source:
    file: str
    text: str
    lines: list[str] = field(repr=False)  # of the whole file
    pieces: list[Piece] = field(default_factory=lambda: [Piece(0, 1, 1)], repr=False)

    def place(self, at: int) -> tuple[int, int]:
        """Return the line and column of an offset in the file, both from 1."""
        piece = self.pieces[max(0, bisect_right(self.pieces, at, key=lambda each: each.start) - 1)]
        before = self.text[piece.start : at]
        newlines = before.count("\n")
        if not newlines:
            return piece.line, piece.column + len(before)
        return piece.line + newlines, len(before) - before.rfind("\n")

    def mistake(self, at: int, message: str, hint: str = "") -> BadInput:
        return complaint(FilePlace(self.file, self.lines, *self.place(at)), message, hint)


def read_file(path: Path, most: int) -> bytes:
    """Read at most `most + 1` bytes: a caller that gets more than `most` knows that the file is too large."""
    try:
        with path.open("rb") as stream:
            return stream.read(most + 1)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", "is the name right?") from None


def read_source(path: Path, most: int) -> Source:
    data = read_file(path, most)
    if len(data) > most:
        raise TooLarge(f"{path} is larger than {most >> 20} MiB")
    try:
        return plain(str(path), data.decode())
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text") from None


def plain(file: str, text: str) -> Source:
    lines = text.split("\n")
    starts = accumulate((len(line) + 1 for line in lines[:-1]), initial=0)
    return Source(file, text, lines, [Piece(start, number, 1) for number, start in enumerate(starts, 1)])


def complaint(place: FilePlace, message: str, hint: str = "") -> BadInput:
    """Make an error that shows the line and a caret below the column, if the file has lines."""
    file, lines, line, column = place
    if not lines:
        return BadInput(message, hint, file)
    first = max(0, column - SHOWN * 3 // 4)
    shown = lines[line - 1][first : first + SHOWN] if 0 < line <= len(lines) else ""
    shown = "".join(c if c.isprintable() else " " for c in shown)
    caret = " " * (column - 1 - first) + "^"
    return BadInput(message, hint, f"{file}:{line}:{column}", f"{shown}\n    {caret}")
