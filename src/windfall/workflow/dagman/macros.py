"""Macros of submit descriptions: `$(name)`, `$(name:otherwise)`, `$ENV(name)`, and functions such as `$CHOICE(…)`.

Rules
  * A value is worked out once everything is read; but `x = $(x) more` means the value that `x` had before that line.
  * Text grows by substitution alone, so the length of every value and the depth of nesting are bounded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

MAX_VALUE = 1 << 20
MAX_NESTED = 50  # levels of macros inside each other
DOLLAR = "\0"  # stands for $(DOLLAR) until all other macros are replaced
DAG_NUMBER = "\1"  # stands for $(DAGManJobId), which only the task knows

_MACRO = re.compile(r"\$(\$?)(ENV|CHOICE|SUBSTR|DIRNAME|BASENAME|F[pdunxbqa]*)?\(([^()$]*)\)")
_OTHER_FUNCTION = re.compile(r"\$(?:F(?![pdunxbqa]*\()[a-z]*|INT|REAL|STRING|EVAL|RANDOM_\w+)\(")


class MacroError(Exception):
    """A value that cannot be worked out."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def refers(name: str, value: str) -> bool:
    """Does the value of `name` use its own old value?"""
    return "$(" in value and _own(name).search(value) is not None


def with_old(name: str, value: str, old: str | None) -> str:
    """Return the new value of `name`, its own macro replaced by the value it had before."""
    pattern = _own(name)
    count = sum(1 for _ in pattern.finditer(value))
    if count * len(old or "") + len(value) > MAX_VALUE:
        raise _endless(name)
    return pattern.sub(lambda match: (match[1] or "") if old is None else old, value)


def _own(name: str) -> re.Pattern[str]:
    return re.compile(rf"\$\(\s*{re.escape(name)}\s*(?::([^()$]*))?\)", re.IGNORECASE)


def _endless(name: str) -> MacroError:
    return MacroError(f"the macros of '{name}' expand without end", "does one refer to itself?")


class Macros:
    """Raw values by name, in lower case, and what each comes to."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._raw = raw
        self._known: dict[str, str] = {}

    def value(self, name: str) -> str:
        value = self._raw.get(name, "")
        return self._filled(name, value, 0).replace(DOLLAR, "$") if "$" in value else value

    def filled(self, text: str) -> str:
        """Return a text with its macros replaced."""
        return self._filled("queue", text, 0).replace(DOLLAR, "$")

    def _filled(self, name: str, value: str, depth: int) -> str:
        """Replace the macros of a value, innermost first, since a macro's name may contain a macro."""
        for _ in range(MAX_NESTED):
            if wrong := _OTHER_FUNCTION.search(value):
                raise MacroError(f"'{wrong[0]}…)' is not known here", "write its value")
            if depth > MAX_NESTED or len(value) > MAX_VALUE:
                break
            if _MACRO.search(value) is None:
                return value
            value = self._round(name, value, depth)
        raise _endless(name)

    def _round(self, name: str, value: str, depth: int) -> str:
        """Replace all macros that have no other macro inside."""
        parts, at, size = [], 0, 0
        for match in _MACRO.finditer(value):
            parts += [value[at : match.start()], self._one(match, depth)]
            at, size = match.end(), size + len(parts[-1])
            if size > MAX_VALUE:
                raise _endless(name)
        return "".join([*parts, value[at:]])

    def _one(self, match: re.Match[str], depth: int) -> str:
        function, text = match[2], match[3]
        key, colon, otherwise = text.partition(":")
        if match[1]:
            raise MacroError(f"'$$({key})' is a value of HTCondor's machines", "write its value")
        if function and function != "ENV":
            act = FUNCTIONS.get(function, Macros._file_name)
            return act(self, function, text, depth)
        found = os.environ.get(key) if function else self._macro(key.strip().lower(), depth)
        if found is None and not colon:
            raise MacroError(f"there is no macro '{key}'", f"VARS gives macros; $({key}:) may be empty")
        return otherwise if found is None else found

    def _macro(self, key: str, depth: int) -> str | None:
        """Return a macro's value, worked out once however often it is used."""
        if key == "dollar":
            return DOLLAR
        value = self._raw.get(key)
        if value is None or "$" not in value:
            return value
        if key not in self._known:
            self._known[key] = self._filled(key, value, depth + 1)
        return self._known[key]

    # --- functions ---------------------------------------------------------------------------------------------------

    def _named(self, text: str, depth: int) -> str:
        """Return the value of the macro that `text` names, or `text` itself."""
        found = self._macro(text.strip().lower(), depth)
        return text.strip() if found is None else found

    def _number(self, function: str, text: str, depth: int) -> int:
        value = self._named(text, depth)
        if re.fullmatch(r"[+-]?[0-9]{1,9}", value) is None:
            raise MacroError(f"'{value[:50]}' is not a whole number for ${function}", "a number, or a macro's name")
        return int(value)

    def _choice(self, function: str, text: str, depth: int) -> str:
        index, *items = text.split(",")
        if len(items) == 1:  # the name of a list
            items = self._named(items[0], depth).split(",")
        place = self._number(function, index, depth)
        if not 0 <= place < len(items):
            raise MacroError(f"$CHOICE has no item {place}", f"there are {len(items):,}, and the first is item 0")
        return items[place].strip()

    def _substring(self, function: str, text: str, depth: int) -> str:
        name, *numbers = text.split(",")
        if len(numbers) not in (1, 2):
            raise MacroError("$SUBSTR takes a macro's name, a start, and maybe a length", "as in $SUBSTR(name, 0, 3)")
        whole = self._named(name, depth)
        start, *length = (self._number(function, each, depth) for each in numbers)
        first = max(0, len(whole) + start) if start < 0 else start
        if not length:
            return whole[first:]
        return whole[first : first + length[0]] if length[0] >= 0 else whole[first : len(whole) + length[0]]

    def _base_name(self, function: str, text: str, depth: int) -> str:
        name, _, suffix = text.partition(",")
        return PurePosixPath(self._named(name, depth)).name.removesuffix(suffix.strip())

    def _file_name(self, function: str, text: str, depth: int) -> str:
        """Return the parts of a file's name that the letters after `$F` ask for."""
        letters = "p" if function == "DIRNAME" else function[1:]
        name = self._named(text, depth)
        found = _parts(name, letters) if set("pdnx") & set(letters) else name
        mark = ("'" if "a" in letters else '"') if "q" in letters else ""
        return f"{mark}{found}{mark}"


def _parts(path: str, letters: str) -> str:
    """Return folder (p), its last part (d), stem (n) and extension (x) of a path; b: without slash and dot."""
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".")
    bare = "b" in letters
    found = folder + slash if "p" in letters else ""
    if "d" in letters and "p" not in letters:
        found = folder.rpartition("/")[2] + ("" if bare else slash)
    if "n" in letters:
        found += stem if dot else name
    return found + (extension if bare else dot + extension) if "x" in letters and dot else found


FUNCTIONS: dict[str, Callable[[Macros, str, str, int], str]] = {
    "CHOICE": Macros._choice, "SUBSTR": Macros._substring, "BASENAME": Macros._base_name,
}  # fmt: skip
