"""The vocabulary of expressions: functions, operators, and hints for words that do not exist.

The language is that of ClassAds; `expressions.py` says what is left out of it, and why.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.model.policies.attributes import ANY, LIST, NUMBER, TEXT, TRUTH
from windfall.model.suggest import nearest

# --- functions --------------------------------------------------------------------------------------------------


class Function(NamedTuple):
    takes: tuple[str, ...]  # types of its arguments
    gives: str
    least: int  # how many arguments it needs
    says: str


FUNCTIONS = {
    "isUndefined": Function((ANY,), TRUTH, 1, "is an attribute in it missing?"),
    "isError": Function((ANY,), TRUTH, 1, "does it make no sense, as 1/0?"),
    "isString": Function((ANY,), TRUTH, 1, "is it a text?"),
    "isInteger": Function((ANY,), TRUTH, 1, "is it a whole number?"),
    "isReal": Function((ANY,), TRUTH, 1, "is it a number with a fraction, as 2.0?"),
    "isBoolean": Function((ANY,), TRUTH, 1, "is it true or false?"),
    "ifThenElse": Function((TRUTH, ANY, ANY), ANY, 3, "the second if the first is true, else the third"),
    "int": Function((NUMBER,), NUMBER, 1, "the whole number, without its fraction"),
    "real": Function((NUMBER,), NUMBER, 1, "the same with a fraction, so that / divides exactly"),
    "string": Function((ANY,), TEXT, 1, "the value as a text"),
    "bool": Function((ANY,), TRUTH, 1, 'the truth that "true", "false" or a number says'),
    "floor": Function((NUMBER,), NUMBER, 1, "the next whole number below"),
    "ceiling": Function((NUMBER,), NUMBER, 1, "the next whole number above"),
    "round": Function((NUMBER,), NUMBER, 1, "the nearest whole number"),
    "pow": Function((NUMBER, NUMBER), NUMBER, 2, "the first to the power of the second"),
    "quantize": Function((NUMBER, NUMBER), NUMBER, 2, "the next multiple of the second: quantize(7, 4) is 8"),
    "min": Function((LIST,), NUMBER, 1, "the least of a list, as in min({4, Host.Cores})"),
    "max": Function((LIST,), NUMBER, 1, "the greatest"),
    "sum": Function((LIST,), NUMBER, 1, "all together"),
    "avg": Function((LIST,), NUMBER, 1, "their mean"),
    "member": Function((ANY, LIST), TRUTH, 2, 'is it in the list?  member(Host.Site, {"a", "b"})'),
    "identicalMember": Function((ANY, LIST), TRUTH, 2, "the same, with regard to case"),
    "size": Function((TEXT,), NUMBER, 1, "characters of a text"),
    "toLower": Function((TEXT,), TEXT, 1, "in small letters"),
    "toUpper": Function((TEXT,), TEXT, 1, "in capital letters"),
    "strcat": Function((ANY,) * 8, TEXT, 1, 'values joined to a text: strcat("n", 1) is "n1"'),
    "join": Function((TEXT, *(ANY,) * 8), TEXT, 2, 'the same, with the first between: join("-", 1, 2) is "1-2"'),
    "substr": Function((TEXT, NUMBER, NUMBER), TEXT, 2, "a part of a text: from which character on, counted from 0, "
                                                        "and how many; below 0: counted from its end"),
    "strcmp": Function((TEXT, TEXT), NUMBER, 2, "-1, 0 or 1: which text comes first"),
    "stricmp": Function((TEXT, TEXT), NUMBER, 2, "the same without regard to case"),
    "versioncmp": Function((TEXT, TEXT), NUMBER, 2, 'below, at or above 0: which version is older; "8.9" is older '
                                                    'than "8.10"'),
    "versionGT": Function((TEXT, TEXT), TRUTH, 2, "is the first version newer?"),
    "versionGE": Function((TEXT, TEXT), TRUTH, 2, "is it newer, or the same?"),
    "versionLT": Function((TEXT, TEXT), TRUTH, 2, "is it older?"),
    "versionLE": Function((TEXT, TEXT), TRUTH, 2, "is it older, or the same?"),
    "versionEQ": Function((TEXT, TEXT), TRUTH, 2, "is it the same?"),
    "version_in_range": Function((TEXT, TEXT, TEXT), TRUTH, 3, "is the first version from the second to the third?"),
    "anyCompare": Function((TEXT, LIST, ANY), TRUTH, 3, 'does any of a list compare so?  '
                                                        'anyCompare("<", {4, 8}, Host.Cores)'),
    "allCompare": Function((TEXT, LIST, ANY), TRUTH, 3, "do all?"),
    "regexp": Function((TEXT, TEXT, TEXT), TRUTH, 2, 'is the pattern found in the text?  regexp("^node[0-9]+", '
                                                     'Host.Name); "i" as third: without regard to case'),
}
BY_NAME = {name.lower(): name for name in FUNCTIONS}
_CLOCKS = ("time", "abstime", "reltime", "daytime", "currenttime", "gettimeofday", "formattime", "splittime",
           "timezoneoffset", "epochtime", "unixtime", "interval")
_MACHINE = ("userhome", "user_home", "usermap", "getenv", "debug", "eval", "unparse", "splitusername", "splitslotname")


def no_function(name: str) -> str:
    if name.lower() in _CLOCKS:
        return "use Now for the time; expressions read no clock"
    if name.lower().startswith("random"):
        return "expressions cannot draw random numbers: the same state must give the same decision"
    if name.lower() in _MACHINE:
        return "an expression can use attributes only, nothing of the machine that evaluates it"
    return nearest(name, FUNCTIONS)


# --- tokens -----------------------------------------------------------------------------------------------------


class Token(NamedTuple):
    kind: str  # number, text, name, operator, end
    text: str
    at: int


_TOKEN = re.compile(r"""
    (?P<space>[ \t\r\n]+)
  | (?P<number>(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w.]))
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
  | (?P<operator>\?:|=\?=|=!=|>>>|<<|>>|&&|\|\||==|!=|<=|>=|=>|=<|/\*|//|[-+*/%<>!?:(),{}&|^~=\[\];.])
""", re.VERBOSE | re.ASCII | re.DOTALL)  # fmt: skip

LEVELS = {"||": 1, "&&": 2, "==": 6, "!=": 6, "=?=": 6, "=!=": 6, "is": 6, "isnt": 6,
           "<": 7, "<=": 7, ">": 7, ">=": 7, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10}
WORDS = {"true": TRUTH, "false": TRUTH, "undefined": ANY, "error": ANY}
INSTEAD = {
    "=": "== compares; regexp(\"^node\", Host.Name) looks for a pattern",
    "=>": "it is written >=", "=<": "it is written <=",
    "&": "&& is and", "|": "|| is or", "^": "!= between truths is either-or", "~": "! is not",
    "<<": "multiply by a power of two", ">>": "divide by a power of two", ">>>": "divide by a power of two",
    "/*": "there are no comments here; a pattern is a text, as in regexp(\"myhost\", Host.Name)",
    "//": "there are no comments here; # begins one in the bag file",
    "[": "there are no records and no subscripts; attributes are called as in Host.Memory",
    ";": "a policy is one expression", "and": "&& is and", "or": "|| is or", "not": "! is not",
    ".": "an attribute is called by its ad and its name, as in Host.Memory",
}  # fmt: skip
NAMES = {NUMBER: "a number", TEXT: "a text", TRUTH: "true or false", LIST: "a list", ANY: "anything"}


def tokens(text: str) -> list[Token]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _no_token(text, at)
        kind = str(match.lastgroup)
        if kind != "space":
            found.append(Token(kind, match[0], at))
            if match[0] in ("/*", "//"):
                raise wrong(text, at, "a comment, or a pattern without quotes", INSTEAD[match[0]])
        at = match.end()
    return [*found, Token("end", "", len(text.rstrip()))]


def _no_token(text: str, at: int) -> BadInput:
    if text[at] == '"':
        return wrong(text, at, "a text without its closing quote", 'write texts as "…"')
    if text[at] == "'":
        return wrong(text, at, "a single quote",
                     'texts are "…"; single quotes go around the whole: requirements = \'Host.Site == "lab"\'')
    if text[at].isdigit() or text[at] == ".":
        return wrong(text, at, "not a number", "as in 16, 0.5 or 1e6; sizes are in MB, times in seconds")
    if text[at] == "#":
        return wrong(text, at, "a comment", "an expression cannot have comments")
    hint = "&& is and, || is or" if text[at] == "\\" else "names are of the letters a to z"
    return wrong(text, at, f"'{text[at]}' is allowed only inside a text", hint)


# --- complaints -------------------------------------------------------------------------------------------------


def wrong(text: str, at: int, message: str, hint: str = "") -> BadInput:
    """Return an error about a place in an expression, with its line and a caret below the place."""
    at = min(at, len(text))
    line, first = text.count("\n", 0, at) + 1, text.rfind("\n", 0, at) + 1
    column = at - first + 1
    where = f"line {line}, column {column}" if "\n" in text.strip() else f"column {column}"
    return BadInput(f"{where}: {message}", hint, text=pointed(text[first:].split("\n", 1)[0], column))


def pointed(line: str, column: int, width: int = 90) -> str:
    """Return the line, or the part of it around the column, with a caret below the column."""
    start = max(0, column - 1 - width // 2) if len(line) > width else 0
    shown = "".join(char if char.isprintable() else "?" for char in line[start : start + width])
    return f"{shown}\n    {' ' * (column - 1 - start)}^"
