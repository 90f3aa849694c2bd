"""Patterns of file names, as pilot, server and client read them.

    results/*.png   `*` and `?` and `[a-z]` stand for characters of one name, never for a slash
    logs/**/*.txt   `**` stands for any directories, or none; once in a pattern
    out/            all files below a directory; a plain name that turns out to be a directory means the same

A name that begins with a dot needs a pattern that begins with one; below a directory that is named all files count.
Patterns and names may come from strangers: no pattern makes a search go back further than its last `*`.
"""

import re

from windfall.errors import BadInput

MAX_TEXT = 255               # characters of a pattern
MAX_PARTS = 32               # directories of a path that may match
MAX_NAME = 255               # characters of one name of a path: no file system has longer ones
_ANY = None                  # stands for any directories of a path


def is_pattern(text):
    """Does a path stand for files whose names are not known yet?"""
    return "*" in text or "?" in text or text.endswith("/") or 0 <= text.find("[") < text.rfind("]")


def split(path):
    return [part for part in path.split("/") if part not in ("", ".")]


def fixed_part(text):
    """Return the directories of a pattern before its first wildcard; the whole path where it has none."""
    parts = split(text)
    first = next((at for at, part in enumerate(parts) if is_pattern(part)), len(parts))
    return "/".join(parts[:first])


def check(text, what):
    """Raise BadInput if a pattern is too long, or would take too long to match."""
    if len(text) > MAX_TEXT or split(text).count("**") > 1:
        raise BadInput("{}: the pattern '{}' is too large: at most {} characters, and ** once".format(
            what, text[:60], MAX_TEXT))


class Pattern:
    """A compiled pattern."""

    def __init__(self, text):
        self.parts = [_ANY if part == "**" else re.compile(_expression(part), re.DOTALL) for part in split(text)]
        self.below = text.endswith("/")  # files below it alone, not a file of that name

    def matches(self, path):
        """Does the pattern stand for this file, or for a directory above it?"""
        parts = split(path)
        if len(parts) > MAX_PARTS or any(len(name) > MAX_NAME for name in parts):
            return False
        inside = [_ALL] if self.below else []
        return _fits(self.parts + inside + [_ANY], parts)

    def reaches(self, path):
        """May a file below this directory match?"""
        for at, name in enumerate(split(path)[:len(self.parts)]):
            if self.parts[at] is _ANY:
                return True
            if not fits(self.parts[at], name):
                return False
        return True


def fits(part, name):
    """Does one name of a path fit a part of a pattern?"""
    return (name[:1] != "." or part.pattern[:2] == "\\.") and part.fullmatch(name) is not None


def _fits(tokens, names):
    """Match the names of a path.  Where a match fails, only the last `_ANY` takes one name more."""
    token = name = 0
    any_at, resume = -1, 0
    while name < len(names):
        if token < len(tokens) and tokens[token] is _ANY:
            any_at, resume = token, name
            token += 1
        elif token < len(tokens) and (tokens[token] is _ALL or fits(tokens[token], names[name])):
            token += 1
            name += 1
        elif any_at >= 0:
            resume += 1
            token, name = any_at + 1, resume
        else:
            return False
    return all(each is _ANY for each in tokens[token:])


_ALL = re.compile("(?s).+")  # any one name, hidden or not


def _expression(text):
    """Return the regular expression of one name.  A group that has matched is not tried again, so that no search
    explodes: the part before each `*` but the last matches where it first can."""
    first, *rest = _between_stars(text)
    if not rest:
        return first
    middle = "".join("(?=(?P<g{0}>.*?{1}))(?P=g{0})".format(number, part) for number, part in enumerate(rest[:-1]))
    return "{}{}.*{}".format(first, middle, rest[-1])


def _between_stars(text):
    """Return the regular expressions of what stands between the stars."""
    parts, at = [""], 0
    while at < len(text):
        end = text.find("]", at + 2 + (text[at + 1:at + 2] in ("!", "^"))) if text[at] == "[" else -1
        if end > 0:
            parts[-1] += _class(text[at + 1:end])
            at = end
        elif text[at] != "*":
            parts[-1] += "." if text[at] == "?" else re.escape(text[at])
        elif at == 0 or text[at - 1] != "*":
            parts.append("")
        at += 1
    return parts


def _class(text):
    """Return the regular expression of a class of characters, as in [a-z] or [!0-9]."""
    excludes = text[0] in "!^"
    text, ranges, at = text[excludes:], "", 0
    while at < len(text):
        wide = at + 2 < len(text) and text[at + 1] == "-"
        first, last = text[at], text[at + 2] if wide else text[at]
        if first <= last:
            ranges += "{}-{}".format(re.escape(first), re.escape(last))
        at += 3 if wide else 1
    if not ranges:
        return "." if excludes else "(?!)"
    return "[{}{}]".format("^" if excludes else "", ranges)
