"""ClassAds: the one module that knows HTCondor's implementation of them.

What comes here has been read and bounded by `model/policies/expressions.py`; nothing else may.  Evaluation is a pure
function of the values of the attributes that an expression refers to, so results are remembered by these.  They are
three-valued, and then some: true, false, a number, UNDEFINED where an attribute that matters is missing, ERROR where it
makes no sense.  Neither of the last two ever matches.

The module is loaded when the first expression comes: a server whose bags have none does without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from windfall.errors import BadInput
from windfall.model.policies.expressions import Expression, flat, parse

if TYPE_CHECKING:
    from windfall.core.state.world import BagState

UNDEFINED, ERROR = "undefined", "error"
Value = bool | int | float | str | None  # of an attribute; None: undefined
Result = bool | int | float | str  # a text is one of the two above

MOST_RESULTS = 50_000  # remembered, of one expression,
MOST_OF_ALL = 250_000  # and of all of them: about 250 bytes each
MOST_PROGRAMS = 4_096  # beside those that bags hold
MOST_WRITTEN = 4 << 20  # characters of all of them: 26 bytes each, compiled
MOST_TEXT = 256  # characters of a value; hosts say their names themselves
LARGE = 1 << 53


class Program:
    """An expression, ready to be evaluated; `uses` says which values `result` takes, in that order."""

    __slots__ = ("__weakref__", "_evaluate", "broken", "expression", "known", "uses")

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self.uses = expression.uses
        self.known: dict[tuple[Value, ...], Result] = {}  # by the values of what it uses
        self._evaluate = _compiled(expression.program, [flat(path) for path in expression.uses])
        self.broken = ""  # why it cannot be evaluated

    def result(self, values: tuple[Value, ...]) -> Result:
        found = self.known.get(values)
        if found is None:
            _memory.make_room(self.known)
            # True and 1 are one key; an attribute's type never changes, so that does no harm.
            found = self.known[values] = self._evaluate(values)
        return found


class _Memory:
    """The memory that the programs of all expressions take, those of removed bags included."""

    def __init__(self) -> None:
        self.results = 0
        self.written = 0  # characters of programs
        self.filled: list[dict[tuple[Value, ...], Result]] = []

    def make_room(self, known: dict[tuple[Value, ...], Result]) -> None:
        """For one more."""
        if self.results >= MOST_OF_ALL:
            for each in self.filled:
                each.clear()
            self.filled, self.results = [], 0
        if not known:
            self.filled.append(known)
        elif len(known) >= MOST_RESULTS:
            self.results -= len(known)
            known.clear()
        self.results += 1

    def keep(self, text: str, found: Program) -> None:
        if len(_programs) >= MOST_PROGRAMS or self.written + len(text) > MOST_WRITTEN:
            _programs.clear()
            self.written = 0
        _programs[text] = found
        self.written += len(text)


_memory = _Memory()
_programs: dict[str, Program] = {}


def program(text: str) -> Program:
    """Read and compiled once.  A bag may come from a journal that was written where more was taken, or where there was
    a `classad2`: what cannot be evaluated here is an error always, and so matches nothing."""
    found = _programs.get(text)
    if found is None:
        try:
            found = Program(parse(text))
        except (BadInput, RuntimeError) as error:
            found = Program.__new__(Program)
            found.expression, found.uses = Expression(text, text, "any", (), ()), ()
            found.known, found._evaluate = {}, lambda values: ERROR
            found.broken = str(error).split("\n", 1)[0]
        _memory.keep(text, found)
    return found


def program_of(bag: BagState, key: str) -> Program:
    """Return the program of one of a bag's policies.  The bag keeps it, so that it is compiled only once."""
    text = bag.policy[key]
    found = bag.programs.get(text)
    if found is None:
        found = bag.programs[text] = program(text)
    return found


def available() -> bool:
    try:
        import classad2  # noqa: F401
    except ImportError:
        return False
    return True


def evaluate(text: str, ads: Mapping[str, Any]) -> Result:
    """Evaluate an expression against ads: {"Host": {"Memory": 4000, …}, "Bag": …, "Now": 0}; case matters there."""
    known = program(text)
    if known.broken:
        raise BadInput(known.broken)
    return known.result(tuple(_lookup(ads, path.split(".")) for path in known.uses))


def _lookup(ads: Mapping[str, Any], path: list[str]) -> Value:
    found: Any = ads
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return None if isinstance(found, Mapping) else found


_idle: list[Any] = []  # ads in which expressions are evaluated, again and again: `classad2` gives back none's memory


def _compiled(text: str, names: list[str]) -> Callable[[tuple[Value, ...]], Result]:
    try:
        from classad2 import ClassAd, ClassAdException, ExprTree
    except ImportError as error:
        raise RuntimeError("expressions need HTCondor's classad2, which is not installed here") from error
    try:
        tree = ExprTree(text)
    except ClassAdException as error:
        raise RuntimeError("HTCondor's ClassAds cannot read it") from error

    def evaluated(values: tuple[Value, ...]) -> Result:
        ad = _idle.pop() if _idle else ClassAd()
        given = []
        try:
            for name, value in zip(names, values, strict=True):
                if (clean := _clean(value)) is not None:
                    ad[name] = clean
                    given.append(name)
            return _result(tree.eval(ad))
        except ClassAdException:
            return ERROR
        finally:
            for name in given:
                del ad[name]
            _idle.append(ad)

    return evaluated


def _clean(value: Value) -> Value:
    """Return a value that is safe to evaluate: a host may publish overlong texts and odd numbers."""
    if isinstance(value, str):
        return "".join(char if char.isprintable() else "?" for char in value[:MOST_TEXT])
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or -LARGE <= value <= LARGE else float(value)


def _result(found: Any) -> Result:
    if type(found) in (bool, int):
        return found  # type: ignore[no-any-return]
    if isinstance(found, float):
        return found if math.isfinite(found) else ERROR
    return UNDEFINED if getattr(found, "name", "") == "Undefined" else ERROR  # these two are numbers, to Python


def matches(result: Result) -> bool:
    """Is the result true?  A number other than 0 counts as true, as it does in an expression."""
    return not isinstance(result, str) and bool(result)


def why_not(text: str, values: Mapping[str, Value]) -> str:
    """Why an expression does not hold: the first part that does not, and what is missing."""
    known = program(text)
    if known.broken:
        return f"{text} cannot be evaluated here: {known.broken}"
    parts = [part for part, _ in known.expression.parts] or [text]
    for part in parts:
        each = program(part)
        result = each.result(tuple(values.get(path) for path in each.uses))
        if not matches(result):
            return _said(part, result, [(path, values.get(path)) for path in each.uses])
    return ""


def why_no_value(text: str, values: Mapping[str, Value]) -> str:
    """Why an expression comes to nothing there, neither true nor false nor a number; "" where it comes to something."""
    known = program(text)
    if known.broken:
        return f"{text} cannot be evaluated here: {known.broken}"
    result = known.result(tuple(values.get(path) for path in known.uses))
    return _said(text, result, [(path, values.get(path)) for path in known.uses]) if isinstance(result, str) else ""


def _said(part: str, result: Result, values: list[tuple[str, Value]]) -> str:
    missing = [path for path, value in values if value is None]
    if result == UNDEFINED and missing:
        return f"{part} is undefined: {' and '.join(missing)} is not known there"
    there = ", ".join(f"{path} is {format_value(value)}" for path, value in values if value is not None)
    what = {UNDEFINED: "is undefined", ERROR: "is an error"}.get(str(result), "is false")
    return f"{part} {what}" + (f": {there}" if there else "")


def format_value(value: Value) -> str:
    """Return a value as people write it in an expression."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{_clean(value)}"'
    return f"{value:.6g}" if isinstance(value, float) else str(value)
