"""Lines and words of a DAG file, each with its place.

A line that ends with a backslash goes on in the next.  Words are separated by blanks; a line whose first word begins
with `#` is a comment.  A `{` at the end of a line begins a submit description, which a line with only `}` ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from windfall.errors import TooLarge
from windfall.workflow.text import Source

MAX_LINE = 16 << 20

_WORD = re.compile(r"(?:[^\s\\]|\\(?!\r?\n))+")
_PAIR = re.compile(r'(?:\\\r?\n|[^\S\n])*([^\s="]+)(?:\\\r?\n|[^\S\n])*=(?:\\\r?\n|[^\S\n])*'
                   r'"((?:[^"\\\n]|\\\r?\n|\\[^\n])*)"')
_FOLDED = re.compile(r"\\\r?\n[^\S\n]*")
_BLANK = re.compile(r"(?:\\\r?\n|\s)*")


class LineError(Exception):
    """A mistake in one command; the reader still checks the others."""

    def __init__(self, at: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.at, self.message, self.hint = at, message, hint


class DagWord(NamedTuple):
    text: str
    at: int

    @property
    def upper(self) -> str:
        return self.text.upper()


class MacroValue(NamedTuple):
    name: str
    value: str
    at: int


@dataclass(frozen=True, slots=True)
class DagLine:
    source: Source
    command: str
    words: list[DagWord]
    end: int
    body: tuple[int, int] | None = None  # begin and end of a submit description

    def pairs(self, first: int) -> tuple[list[MacroValue], int]:
        """Return the `name="value"` pairs from word `first` on, and where other text begins, or -1."""
        at, found, text = self.words[first].at, [], self.source.text
        while match := _PAIR.match(text, at, self.end):
            value = _FOLDED.sub("", match[2])
            found.append(MacroValue(match[1], re.sub(r"\\([\"\\])", r"\1", value), match.start(1)))
            at = match.end()
        rest = _BLANK.match(text, at, self.end)
        at = rest.end() if rest else at
        return found, at if at < self.end else -1


def require_words(line: DagLine, least: int, most: int, usage: str) -> list[DagWord]:
    """Return the words of a line, which must be `least` to `most`, the command included; `most` 0: any number."""
    words = line.words
    if len(words) < least:
        raise LineError(words[-1].at + len(words[-1].text), f"{line.command} is incomplete", usage)
    if most and len(words) > most:
        raise LineError(words[most].at, f"'{words[most].text[:50]}' is one word too many", usage)
    return words


def number(word: DagWord, least: int, most: int) -> int:
    text = word.text.removeprefix("-") if least < 0 else word.text
    if text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(word.text) <= most:
        return int(word.text)
    raise LineError(word.at, f"'{word.text[:50]}' is not a whole number from {least:,} to {most:,}")


def lines(source: Source) -> Iterator[DagLine]:
    at, text = 0, source.text
    while at < len(text):
        end = _end(text, at)
        first, at = _WORD.search(text, at, end), end + 1
        if first is None or first[0].startswith("#"):
            continue
        if end - first.start() > MAX_LINE:
            raise TooLarge(f"{source.file} has a line of more than {MAX_LINE >> 20} MiB")
        words = [DagWord(match[0], match.start()) for match in _WORD.finditer(text, first.start(), end)]
        body = None
        if words[-1].text == "{":
            body, at = _body(text, at)
        yield DagLine(source, words[0].upper, words, end, body)


def _end(text: str, at: int) -> int:
    while True:
        end = text.find("\n", at)
        if end < 0:
            return len(text)
        if not text.endswith(("\\", "\\\r"), at, end):
            return end
        at = end + 1


def _body(text: str, at: int) -> tuple[tuple[int, int] | None, int]:
    """Return the begin and end of a submit description, None if no line ends it, and where the next line begins."""
    start = at
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if text[at:end].strip() == "}":
            return (start, at), end + 1
        at = end + 1
    return None, at
