"""Regular expressions of users: the cost of compiling them, and the ones that a policy may contain.

Parsing a pattern is quick; compiling is slow for a class of many characters, above all without regard to case.  So the
server parses patterns first, adds up their classes, and refuses costly ones before it compiles any.

A policy evaluates its pattern again and again, so it may contain simple ones only: `*`, `+` and counts repeat one
character or one class, so that the steps of a match do not multiply.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from re import _constants as const, _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any

from windfall.errors import TooLarge

MAX_PATTERN = 4_096
MAX_LENGTH = 1_000_000  # characters of all patterns of a bag
MAX_EFFORT = 3_000_000  # characters in all classes: about a second
WIDE = 4_096  # least cost of a class with characters beyond Latin-1
ERRORS = (re.error, RecursionError, OverflowError)


def check_effort(patterns: Iterable[str]) -> None:
    """Raise TooLarge if compiling these patterns would take long; invalid ones count as 0."""
    length = work = 0
    for text in patterns:
        length += len(text)
        if length > MAX_LENGTH:
            raise TooLarge(f"the patterns of the bag have more than {MAX_LENGTH:,} characters")
        work += effort(text)
        if work > MAX_EFFORT:
            raise TooLarge("the patterns of the bag have classes with too many characters", "name fewer, as in [a-z]")


def effort(text: str) -> int:
    if len(text) > MAX_PATTERN:
        return 0  # another check refuses it for its length
    try:
        return _walk(parser.parse(text))
    except ERRORS:
        return 0


def _walk(part: Any) -> int:
    """Return the number of characters in all classes of a parsed pattern."""
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
    """Return why a policy cannot contain a pattern, and a hint; None if it can."""
    if not 0 < len(pattern) <= SHORT:
        return f"a pattern must have 1 to {SHORT} characters, not {len(pattern)}", "make it shorter"
    at, depth, before = 0, 0, ""
    while at < len(pattern):
        match = _SIMPLE.match(pattern, at)
        kind = str(match.lastgroup) if match else ""
        if match is None or (kind == "close" and not depth):
            return _from(pattern[at:]), r"allowed are letters, [a-z], ., \\d, ^, $, |, groups, and * + ? {n,m}"
        depth += (kind == "open") - (kind == "close")
        if kind == "repeat" and not _repeats(before, match[0]):
            return _from(pattern[at:]), (f"repeat one character or class, with {{n,m}} up to {MAX_COUNT} times; "
                                         "after a group only ? is allowed")
        before, at = kind, match.end()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a class like [--a] may mean in a later Python
            re.compile(pattern)
    except ERRORS as error:
        return _from(pattern), str(error)
    return None


def _from(rest: str) -> str:
    return f"the pattern is not allowed from '{rest[:20]}' on"


def _repeats(before: str, sign: str) -> bool:
    if before == "close":
        return sign == "?"
    counts = [int(each) for each in re.findall(r"\d+", sign)]
    return before in ("class", "escape", "plain") and all(each <= MAX_COUNT for each in counts)


def search(pattern: str) -> str:
    """Return a pattern that, matched at the start of a text, succeeds where a search for the given one would.

    Most patterns are pieces of fixed length with anything between them, as in `^node.*-rack7`.  For these the first
    place of each piece is as good as any, so the match looks for none twice, and its time grows with the text alone.
    """
    pieces = _pieces(pattern)
    if pieces is None:
        return f"^(?s:.*?)(?:{pattern})"
    begins, ends = pattern.startswith("^"), [match[0] for match in _SIMPLE.finditer(pattern)][-1] == "$"
    if len(pieces) == 1 and ends:
        return f"^{pieces[0]}$" if begins else f"^(?s:.*){pieces[0]}$"
    return _match_pieces(pieces, begins, ends)


def _match_pieces(pieces: list[str], begins: bool, ends: bool) -> str:
    """Return a pattern for pieces one after another; `begins`, `ends`: the first, or last, is at the text's end."""
    first, *others = pieces
    found = f"^{first}" if begins or not first else f"^(?>(?s:.*?){first})"
    *between, last = others or [""]
    found += "".join(f"(?>(?s:.*?){piece})" for piece in between if piece)
    if not last:
        return found
    return found + (f"(?s:.*){last}$" if ends else f"(?s:.*?){last}")


def _pieces(pattern: str) -> list[str] | None:
    """Return the pieces between `.*`; None if a piece has no fixed length."""
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
