"""Submit descriptions of HTCondor: the part of them that describes one job.

A line is `name = value`; case does not matter, and the last value of a name counts.  `$(name)` and `$(name:otherwise)`
are replaced once everything is read.  Unknown names are macros, as in HTCondor, and mean nothing by themselves.  A
description queues one job: the reader refuses more jobs, conditions and includes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.model.units import parse_size
from windfall.workflow.dagman.macros import DAG_NUMBER, MacroError, Macros, refers, with_old
from windfall.workflow.dagman.nodes import asks
from windfall.workflow.mistakes import MistakeLog
from windfall.workflow.text import Source

MAX_LINES = 100_000
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
    source: Source
    entries: dict[str, Entry]
    queued: bool

    @cached_property
    def asks(self) -> bool:
        """Does the description ask for the number of the try?"""
        return any(asks(entry.value) for entry in self.entries.values())

    def mistake(self, name: str, message: str, hint: str = "") -> BadInput:
        entry = self.entries.get(name)
        return self.source.mistake(entry.at if entry else 0, message, hint)


def read(source: Source, start: int = 0, end: int = -1) -> Description:
    """Read a submit description from the whole text, or from the part of a DAG file between `start` and `end`."""
    end = len(source.text) if end < 0 else end
    entries = _Entries()
    queued, mistakes = False, MistakeLog()
    for at, line in _lines(source, start, end):
        word = line.split(None, 1)[0].lower()
        if word == "queue":
            if line.split()[1:] not in ([], ["1"]):
                mistakes.add(source, at, "a node has one job, but this queues more, or others",
                             "queue, and a node for each")
            queued = True
        elif word in ("if", "else", "elif", "endif", "include", "use"):
            mistakes.add(source, at, f"'{word}' in a submit description is not supported", "write it out")
        elif (match := _LINE.match(line)) and not queued:
            try:
                entries.add(match[1].lower(), match[2].strip(), at)
            except MacroError as error:
                mistakes.add(source, at, error.message, error.hint)
        elif not queued:
            mistakes.add(source, at, "this is not 'name = value'", "one a line; # begins a comment")
    mistakes.tell()
    return Description(source, entries.known, queued)


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
