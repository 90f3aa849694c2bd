"""Submit descriptions of HTCondor: the part of them that describes one job.

A line is `name = value`; case does not matter, and the last value of a name counts.  `$(name)` and `$(name:otherwise)`
are replaced once everything is read.  Unknown names are macros, as in HTCondor, and mean nothing by themselves.  Each
`queue` queues jobs with the values that stand before it.  The reader refuses conditions and includes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.model.units import parse_size
from windfall.workflow.dagman.macros import DAG_NUMBER, MacroError, Macros, refers, with_old
from windfall.workflow.dagman.nodes import asks
from windfall.workflow.dagman.queue import QueueStatement
from windfall.workflow.mistakes import MistakeLog
from windfall.workflow.text import Source

MAX_LINES = 100_000
MAX_QUEUES = 10_000
MAX_COPIED = 1_000_000  # values of all queue statements
MAX_GROWN = 64 << 20  # letters of all values that extend older ones

_LINE = re.compile(r"\s*([+\w.]+)\s*=\s*(.*)")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_QUOTED = re.compile(r"'((?:[^']|'')*)'")
UNHEEDED = (
    "requirements", "rank", "periodic_hold", "periodic_remove", "periodic_release", "on_exit_hold", "on_exit_remove",
    "max_retries", "retry_until", "concurrency_limits", "transfer_output_remaps", "deferral_time", "docker_image",
)  # fmt: skip
UNIVERSES = ("", "vanilla", "local", "scheduler", "container")


class Entry(NamedTuple):
    value: str
    at: int
    extends: bool = False  # it uses the value that its name has before the description


def extend(raw: dict[str, str], pairs: Iterable[tuple[str, str]]) -> None:
    """Give macros their values in turn; each may use the value that its name had before."""
    for name, value in pairs:
        key = name.lower()
        raw[key] = with_old(key, value, raw.get(key)) if refers(key, value) else value


@dataclass(frozen=True)
class Description:
    """The values before one `queue`, and its jobs; `further`: those of the next ones."""

    source: Source
    entries: dict[str, Entry]
    queue: QueueStatement
    further: tuple[Description, ...] = ()

    @cached_property
    def asks(self) -> bool:
        """Does the description ask for the number of the try?"""
        each = [entry.value for description in (self, *self.further) for entry in description.entries.values()]
        return any(map(asks, each))

    def at(self, name: str) -> int:
        return self.entries[name].at if name in self.entries else 0

    def mistake(self, name: str, message: str, hint: str = "") -> BadInput:
        return self.source.mistake(self.at(name), message, hint)


def read(source: Source, start: int = 0, end: int = -1) -> Description:
    """Read a submit description from the whole text, or from the part of a DAG file between `start` and `end`."""
    end = len(source.text) if end < 0 else end
    reader = _DescriptionReader(source)
    for at, line in _lines(source, start, end):
        reader.take(at, line)
    return reader.finish()


class _DescriptionReader:
    """Takes one line after the other."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.entries = _Entries()
        self.mistakes = MistakeLog()
        self.queued: list[tuple[dict[str, Entry], QueueStatement]] = []
        self.copied = 0
        self.items: list[str] | None = None  # lines between ( and ) of a queue statement

    def take(self, at: int, line: str) -> None:
        word = line.split(None, 1)[0].lower()
        if self.items is not None:
            self._item(line)
        elif word == "queue":
            self._queue(at, line[len(word) :].strip())
        elif word in ("if", "else", "elif", "endif", "include", "use"):
            self.mistakes.add(self.source, at, f"'{word}' in a submit description is not supported", "write it out")
        elif match := _LINE.match(line):
            try:
                self.entries.add(match[1].lower(), match[2].strip(), at)
            except MacroError as error:
                self.mistakes.add(self.source, at, error.message, error.hint)
        else:
            self.mistakes.add(self.source, at, "this is not 'name = value'", "one a line; # begins a comment")

    def _queue(self, at: int, text: str) -> None:
        self.copied += len(self.entries.known)
        if len(self.queued) >= MAX_QUEUES or self.copied > MAX_COPIED:
            raise self.source.mistake(at, "too many 'queue' lines", "queue … from FILE gives each job its values")
        self.queued.append((dict(self.entries.known), QueueStatement(text, (), at)))
        if "(" in text and not text.endswith(")"):
            self.items = []

    def _item(self, line: str) -> None:
        assert self.items is not None
        values, queue = self.queued[-1]
        if line == ")":
            self.queued[-1], self.items = (values, queue._replace(lines=tuple(self.items))), None
        else:
            self.items.append(line)

    def finish(self) -> Description:
        if self.items is not None:
            self.mistakes.add(self.source, self.queued[-1][1].at, "the items of 'queue' have no end",
                              "a line with ) alone ends them")
        self.mistakes.tell()
        each = [Description(self.source, *queued) for queued in self.queued]
        first = each[0] if each else Description(self.source, self.entries.known, QueueStatement("", (), 0))
        return replace(first, further=tuple(each[1:]))


class _Entries:
    """The entries of a description so far; one that uses its own old value gets it at once."""

    def __init__(self) -> None:
        self.known: dict[str, Entry] = {}
        self._grown = 0

    def add(self, name: str, value: str, at: int) -> None:
        old = self.known.get(name)
        self.known[name] = Entry("", at)  # a later line has no mistake of its own if this one has
        if old is not None and refers(name, value):
            value = with_old(name, value, old.value)
            self._grown += len(value)
            if self._grown > MAX_GROWN:
                raise MacroError(f"the values of '{name}' and others grow to more than {MAX_GROWN >> 20} MiB")
        self.known[name] = Entry(value, at, refers(name, value))


def _lines(source: Source, start: int, end: int) -> list[tuple[int, str]]:
    """Return each line's begin and text; a line with a backslash at its end goes on in the next."""
    found: list[tuple[int, str]] = []
    at, held, began = start, "", start
    for line in source.text[start:end].split("\n"):
        began = began if held else at + len(line) - len(line.lstrip())
        at += len(line) + 1
        if line.rstrip().endswith("\\"):
            held += line.rstrip()[:-1] + " "
            continue
        text, held = (held + line).strip(), ""
        if text and not text.startswith("#"):
            found.append((began, text))
        if len(found) > MAX_LINES:
            raise source.mistake(began, f"a submit description has at most {MAX_LINES:,} lines")
    if held.strip():
        found.append((began, held.strip()))
    return found


# --- the values for one node -----------------------------------------------------------------------------------------


class Values:
    """A description with a node's macros filled in."""

    def __init__(self, description: Description, before: dict[str, str], after: Iterable[tuple[str, str]]) -> None:
        """Fill in macros: `before` the description is read, and `after`, those of its queue statement included."""
        self.description = description
        raw = dict(before)
        for name, entry in description.entries.items():
            raw[name] = self._extended(name, entry, before) if entry.extends else entry.value
        extend(raw, after)
        self._macros = Macros(raw)

    def _extended(self, name: str, entry: Entry, before: dict[str, str]) -> str:
        try:
            return with_old(name, entry.value, before.get(name))
        except MacroError as error:
            raise self._wrong(name, error.message, error.hint) from None

    def get(self, name: str) -> str:
        value = self._value(name)
        if DAG_NUMBER in value:
            raise self._wrong(name, f"$(DAGManJobId) has no value yet in '{name}'",
                              "only 'arguments' and 'environment' may use it: the bag gets its number later")
        return value

    def _value(self, name: str) -> str:
        try:
            return self._macros.value(name)
        except MacroError as error:
            raise self._wrong(name, error.message, error.hint) from None

    def _wrong(self, name: str, message: str, hint: str = "") -> BadInput:
        return self.description.mistake(name, message, hint)

    # --- values of a kind --------------------------------------------------------------------------------------------

    def listed(self, name: str) -> list[str]:
        return [each.strip() for each in self.get(name).strip('"').split(",") if each.strip()]

    def arguments(self) -> list[str]:
        text = self._value("arguments") or self._value("args")
        try:
            return _new(text) if _is_new(text) else text.replace('\\"', '"').split()
        except ValueError as error:
            raise self._wrong("arguments", f"arguments: {error}") from None

    def environment(self) -> dict[str, str]:
        text = self._value("environment") or self._value("env")
        try:
            pairs = _new(text) if _is_new(text) else [each for each in text.split(";") if each.strip()]
        except ValueError as error:
            raise self._wrong("environment", f"environment: {error}") from None
        found = {}
        for pair in pairs:
            key, equals, value = pair.strip().partition("=")
            if not equals or not re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII):
                raise self._wrong("environment", f"'{pair[:50]}' is not NAME=VALUE", "as in \"A=1 B='two words'\"")
            found[key] = value
        return found

    def count(self, name: str, otherwise: int) -> int:
        text = self.get(name).strip()
        if not text:
            return otherwise
        if not (text.isascii() and text.isdecimal() and len(text) < 8):
            raise self._wrong(name, f"{name}: '{text[:50]}' is not a whole number", "expressions are not evaluated")
        return int(text)

    def size(self, name: str, unit: str) -> int:
        """Return a size in bytes; a bare number is in HTCondor's own unit."""
        text = self.get(name).strip()
        if not text:
            return 0
        match = _SIZE.fullmatch(text)
        if match is None:
            hint = "as in 1024, 512M or 2GB; expressions are not evaluated"
            raise self._wrong(name, f"{name}: '{text[:50]}' is not a size", hint)
        return parse_size(f"{match[1]}{match[2] or unit}iB", name)

    def yes(self, name: str, otherwise: bool) -> bool:
        text = self.get(name).strip().lower()
        return otherwise if not text else text in ("true", "yes", "1", "t", "y")

    def unheeded(self) -> list[str]:
        return [name for name in UNHEEDED if name in self.description.entries]

    def queue(self) -> QueueStatement:
        """Return the queue statement with its macros filled in."""
        queue = self.description.queue
        if "$" not in queue.text:
            return queue
        try:
            return queue._replace(text=self._macros.filled(queue.text))
        except MacroError as error:
            raise self.description.source.mistake(queue.at, error.message, error.hint) from None


def _is_new(text: str) -> bool:
    return len(text) > 1 and text.startswith('"') and text.endswith('"')


def _new(text: str) -> list[str]:
    """Split HTCondor's newer quoting: double quotes around all, single ones around words, each escaped by doubling."""
    text = text[1:-1]
    if '"' in text.replace('""', ""):
        raise ValueError('a double quote inside is written ""')
    text = text.replace('""', '"')
    words, at, word = [], 0, None
    while at < len(text):
        letter = text[at]
        if letter.isspace():
            if word is not None:
                words.append(word)
            word, at = None, at + 1
        else:
            part, at = _quoted_part(text, at) if letter == "'" else _bare_part(text, at)
            word = (word or "") + part
    return words if word is None else [*words, word]


def _quoted_part(text: str, at: int) -> tuple[str, int]:
    """Return the part of a word in the single quotes that begin at `at`, and where the text goes on."""
    match = _QUOTED.match(text, at)
    if match is None:
        raise ValueError("a single quote is not closed")
    return match[1].replace("''", "'"), match.end()


def _bare_part(text: str, at: int) -> tuple[str, int]:
    match = re.compile(r"[^\s']+").match(text, at)
    assert match is not None  # the caller has seen a letter that is no space and no quote
    return match[0], match.end()
