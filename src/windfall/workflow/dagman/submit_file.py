"""Submit descriptions of HTCondor: the part of them that describes one job.

A line is `name = value`; case does not matter, and the last value of a name counts.  `$(name)` and `$(name:otherwise)`
are replaced once everything is read.  Unknown names are macros, as in HTCondor, and mean nothing by themselves.  A
description queues one job: the reader refuses more jobs, conditions and includes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.model.units import parse_size
from windfall.workflow.dagman.nodes import asks
from windfall.workflow.mistakes import MistakeLog
from windfall.workflow.text import Source

MAX_VALUE = 1 << 20
MAX_NESTED = 50  # levels of macros inside each other
MAX_LINES = 100_000

_LINE = re.compile(r"\s*([+\w.]+)\s*=\s*(.*)")
_MACRO = re.compile(r"\$(\$?)(ENV)?\(([^()$]*)\)")
_DOLLAR = "\0"  # stands for $(DOLLAR) until all other macros are replaced
_FUNCTION = re.compile(r"\$(?:F[a-z]*|INT|REAL|CHOICE|SUBSTR|STRING|EVAL|RANDOM_\w+|DIRNAME|BASENAME)\(")
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
    entries: dict[str, Entry] = {}
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
            entries[match[1].lower()] = Entry(match[2].strip(), at)
        elif not queued:
            mistakes.add(source, at, "this is not 'name = value'", "one a line; # begins a comment")
    mistakes.tell()
    return Description(source, entries, queued)


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

    def __init__(self, description: Description, before: dict[str, str], after: dict[str, str]) -> None:
        self.description = description
        self._known: dict[str, str] = {}
        self._raw = {**before, **{name: entry.value for name, entry in description.entries.items()}, **after}

    def get(self, name: str) -> str:
        value = self._raw.get(name, "")
        return self._filled(name, value, 0).replace(_DOLLAR, "$") if "$" in value else value

    def _filled(self, name: str, value: str, depth: int) -> str:
        """Replace the macros of a value, innermost first, since a macro's name may contain a macro."""
        for _ in range(MAX_NESTED):
            if wrong := _FUNCTION.search(value):
                raise self._wrong(name, f"'{wrong[0]}…)' is not known here", "write its value")
            if depth > MAX_NESTED or len(value) > MAX_VALUE:
                break
            if _MACRO.search(value) is None:
                return value
            value = self._round(name, value, depth)
        raise self._endless(name)

    def _round(self, name: str, value: str, depth: int) -> str:
        """Replace all macros that have no other macro inside."""
        parts, at, size = [], 0, 0
        for match in _MACRO.finditer(value):
            parts += [value[at : match.start()], self._one(name, match, depth)]
            at, size = match.end(), size + len(parts[-1])
            if size > MAX_VALUE:
                raise self._endless(name)
        return "".join([*parts, value[at:]])

    def _one(self, name: str, match: re.Match[str], depth: int) -> str:
        key, colon, otherwise = match[3].partition(":")
        if match[1]:
            raise self._wrong(name, f"'$$({key})' is a value of HTCondor's machines", "write its value")
        found = os.environ.get(key) if match[2] else self._macro(name, key.strip().lower(), depth)
        if found is None and not colon:
            raise self._wrong(name, f"there is no macro '{key}'", f"VARS gives macros; $({key}:) may be empty")
        return otherwise if found is None else found

    def _macro(self, name: str, key: str, depth: int) -> str | None:
        """Return a macro's value, worked out once however often it is used."""
        if key == "dollar":
            return _DOLLAR
        value = self._raw.get(key)
        if value is None or "$" not in value:
            return value
        if key not in self._known:
            self._known[key] = self._filled(name, value, depth + 1)
        return self._known[key]

    def _endless(self, name: str) -> BadInput:
        return self._wrong(name, f"the macros of '{name}' expand without end", "does one refer to itself?")

    def _wrong(self, name: str, message: str, hint: str = "") -> BadInput:
        return self.description.mistake(name, message, hint)

    # --- values of a kind --------------------------------------------------------------------------------------------

    def listed(self, name: str) -> list[str]:
        return [each.strip() for each in self.get(name).strip('"').split(",") if each.strip()]

    def arguments(self) -> list[str]:
        text = self.get("arguments") or self.get("args")
        try:
            return _new(text) if _is_new(text) else text.replace('\\"', '"').split()
        except ValueError as error:
            raise self._wrong("arguments", f"arguments: {error}") from None

    def environment(self) -> dict[str, str]:
        text = self.get("environment") or self.get("env")
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
