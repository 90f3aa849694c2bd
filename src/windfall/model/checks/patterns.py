"""Regular expressions of strangers: what does it cost to compile them, and which may stand in a policy?

Reading one is quick; compiling is not where a class names many characters, above all without regard to case: every
one of them is then looked at.  So patterns are read first, their classes are added up, and only then compiled.

In a policy a pattern is evaluated again and again, so little is taken there: what is repeated is one character or one
class, so that nothing multiplies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as const, _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any

from windfall.errors import TooLarge

MAX_PATTERN = 4_096
MAX_LENGTH = 1_000_000  # characters of all patterns of a bag
MAX_EFFORT = 3_000_000  # characters that their classes name: about a second
WIDE = 4_096  # what a class beyond Latin-1 takes however few it names
ERRORS = (re.error, RecursionError, OverflowError)


def check_effort(patterns: Iterable[str]) -> None:
    """Raise TooLarge where compiling these would take long.  One that is no pattern costs nothing here."""
    length = work = 0
    for text in patterns:
        length += len(text)
        if length > MAX_LENGTH:
            raise TooLarge(f"the patterns of the bag have more than {MAX_LENGTH:,} characters")
        work += effort(text)
        if work > MAX_EFFORT:
            raise TooLarge("the patterns of the bag have classes of too many characters", "name fewer, as in [a-z]")


def effort(text: str) -> int:
    if len(text) > MAX_PATTERN:
        return 0  # refused for its length
    try:
        return _walk(parser.parse(text))
    except ERRORS:
        return 0


def _walk(part: Any) -> int:
    """Characters of all classes below."""
    total = 0
    for code, value in part:
        total += _class(value) if code is const.IN else _below(value)
    return total


def _below(value: Any) -> int:
    if isinstance(value, parser.SubPattern):
        return _walk(value)
    if isinstance(value, (list, tuple)):
        return sum(map(_below, value))
    return 0


def _class(members: list[tuple[Any, Any]]) -> int:
    total, wide = 0, False
    for code, value in members:
        first, last = value if code is const.RANGE else (value, value)
        total += last - first + 1 if code is const.RANGE else 1
        wide = wide or (code in (const.RANGE, const.LITERAL) and last > 255)
    return total + WIDE * wide


# --- in policies ------------------------------------------------------------------------------------------------

SHORT = 128  # characters
MAX_COUNT = 64  # in {n,m}
_SIMPLE = re.compile(r"""
    (?P<class>\[\^?\]?(?:[^\]\\\[]|\\[\w\\\]\[.^$*+?(){}|/-])*\])
  | (?P<escape>\\[dDwWsSbB.^$*+?(){}|\[\]\\/-])
  | (?P<open>\((?:\?:)?(?!\?|\*))
  | (?P<close>\))
  | (?P<repeat>[*+?]|\{\d{1,3}(?:,\d{0,3})?\})
  | (?P<bar>\|)
  | (?P<plain>[^\\()\[\]{}*+?|])
""", re.VERBOSE)  # fmt: skip


def refusal(pattern: str) -> tuple[str, str] | None:
    """Why a pattern cannot stand in a policy, and a hint; None if it can."""
    if not 0 < len(pattern) <= SHORT:
        return f"a pattern has 1 to {SHORT} characters, not {len(pattern)}", "make it shorter"
    at, depth, before = 0, 0, ""
    while at < len(pattern):
        match = _SIMPLE.match(pattern, at)
        kind = str(match.lastgroup) if match else ""
        if match is None or (kind == "close" and not depth):
            return _from(pattern[at:]), r"taken are letters, [a-z], ., \\d, ^, $, |, groups, and * + ? {n,m}"
        depth += (kind == "open") - (kind == "close")
        if kind == "repeat" and not _repeats(before, match[0]):
            return _from(pattern[at:]), (f"one character or class may be repeated, up to {MAX_COUNT} times where "
                                         "counted; a group may have ? behind it")
        before, at = kind, match.end()
    try:
        re.compile(pattern)
    except ERRORS as error:
        return _from(pattern), str(error)
    return None


def _from(rest: str) -> str:
    return f"not a pattern that is taken here, from '{rest[:20]}' on"


def _repeats(before: str, sign: str) -> bool:
    if before == "close":
        return sign == "?"
    counts = [int(each) for each in re.findall(r"\d+", sign)]
    return before in ("class", "escape", "plain") and all(each <= MAX_COUNT for each in counts)


def search(pattern: str) -> str:
    """The same pattern, to be matched at the first place of a text only: it goes on by itself to where it is found.

    Most are pieces of a fixed length with anything between them, as in `^node.*-rack7`.  For these the first place
    where a piece is found is as good as any, so none is looked for twice, and the time grows with the text alone.
    """
    pieces = _pieces(pattern)
    if pieces is None:
        return f"^(?s:.*?)(?:{pattern})"
    begins, ends = pattern.startswith("^"), [match[0] for match in _SIMPLE.finditer(pattern)][-1] == "$"
    first, *others = pieces
    found = f"^{first}" if begins or not first else f"^(?>(?s:.*?){first})"
    if not others and ends:
        return f"^{first}$" if begins else f"^(?s:.*){first}$"
    *between, last = others or [""]
    found += "".join(f"(?>(?s:.*?){piece})" for piece in between if piece)
    if not last:
        return found
    return found + (f"(?s:.*){last}$" if ends else f"(?s:.*?){last}")


def _pieces(pattern: str) -> list[str] | None:
    """What stands between `.*`; None if it is not of that kind."""
    tokens = [(str(match.lastgroup), match[0]) for match in _SIMPLE.finditer(pattern)]
    tokens = tokens[tokens[:1] == [("plain", "^")] :]
    tokens = tokens[: len(tokens) - (tokens[-1:] == [("plain", "$")])]
    pieces, piece = [], [""]
    for kind, text in tokens:
        if kind in ("open", "close", "bar") or text in ("^", "$", r"\b", r"\B"):
            return None
        if kind != "repeat":
            piece.append(text)
        elif piece[-1] == "." and text in "*+":
            pieces.append("".join(piece[: -1 if text == "*" else None]))
            piece = [""]
        elif re.fullmatch(r"\{\d+\}", text):
            piece.append(text)
        else:
            return None
    return [*pieces, "".join(piece)]
