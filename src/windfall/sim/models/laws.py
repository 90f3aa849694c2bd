"""Laws of random values, as people write them: `weibull(0.45, 4.16h)`, `lognormal(10min, 0.5)`, or just `5min`.

A law draws times, sizes or plain numbers.  An argument in the unit of the drawn values is a scale; other arguments are
shapes.  Lognormal takes its median and the deviation of the logarithm, Pareto its shape and least value.  No law draws
a negative value.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.model import units

MOST = 1e15  # greatest value drawn
SCALE, SHAPE = "scale", "shape"

Read = Callable[[str, str], float]
Draw = Callable[[random.Random], float]


class LawKind(NamedTuple):
    arguments: tuple[tuple[str, str], ...]  # name and sort (SCALE or SHAPE) of each
    draw: Callable[..., float]
    mean: Callable[..., float]


def _normal(r: random.Random, mean: float, deviation: float) -> float:
    return max(0.0, r.gauss(mean, deviation))


def _pareto_mean(shape: float, least: float) -> float:
    return shape * least / (shape - 1) if shape > 1 else math.inf


KINDS = {
    "uniform": LawKind((("from", SCALE), ("to", SCALE)), random.Random.uniform, lambda a, b: (a + b) / 2),
    "exponential": LawKind((("mean", SCALE),), lambda r, mean: r.expovariate(1 / mean), lambda mean: mean),
    "normal": LawKind((("mean", SCALE), ("deviation", SCALE)), _normal, lambda mean, _: mean),
    "lognormal": LawKind((("median", SCALE), ("deviation", SHAPE)), lambda r, m, s: m * math.exp(s * r.gauss(0, 1)),
                      lambda m, s: m * math.exp(s * s / 2)),
    "weibull": LawKind((("shape", SHAPE), ("scale", SCALE)), lambda r, k, s: r.weibullvariate(s, k),
                    lambda k, s: s * math.gamma(1 + 1 / k)),
    "gamma": LawKind((("shape", SHAPE), ("scale", SCALE)), lambda r, k, s: r.gammavariate(k, s), lambda k, s: k * s),
    "pareto": LawKind((("shape", SHAPE), ("least", SCALE)), lambda r, k, s: s * r.paretovariate(k), _pareto_mean),
}


class Law(NamedTuple):
    text: str  # as it was written
    kind: str  # a key of KINDS; empty: a constant
    arguments: tuple[float, ...]

    def draw(self, r: random.Random) -> float:
        return _bounded(KINDS[self.kind].draw, r, *self.arguments) if self.kind else self.arguments[0]

    @property
    def mean(self) -> float:
        return _bounded(KINDS[self.kind].mean, *self.arguments) if self.kind else self.arguments[0]


def _bounded(function: Callable[..., float], *arguments: object) -> float:
    try:
        return min(float(function(*arguments)), MOST)
    except OverflowError:
        return MOST


def always(value: float) -> Law:
    return Law("", "", (value,))


_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\(([^()]*)\)\s*")


def number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadInput(f"{what}: '{text.strip()[:40]}' is not a number", text=text[:60]) from None
    if not (math.isfinite(value) and abs(value) < MOST):
        raise BadInput(f"{what}: {value} is out of all bounds", text=text[:60])
    return value


def parse(text: object, what: str, read: Read) -> Law:
    """Read a law; `read` reads one value in the unit that the law draws: a time, a size or a number."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        text = repr(text)
    if not isinstance(text, str) or len(text) > 200:
        raise BadInput(f"{what} must be a value or a law", f"as in {_example(read)}")
    call = _CALL.fullmatch(text)
    if call is None:
        return Law(text, "", (_positive(read(text, what), what),))
    return _parse_call(text, call, what, read)


def _parse_call(text: str, call: re.Match[str], what: str, read: Read) -> Law:
    kind = KINDS.get(call[1])
    if kind is None:
        raise BadInput(f"{what}: the law '{call[1][:40]}' does not exist", _near(call[1]), text=call[1][:60])
    parts = call[2].split(",")
    if len(parts) != len(kind.arguments):
        wanted = ", ".join(name for name, _ in kind.arguments)
        raise BadInput(f"{what}: {call[1]} takes {wanted}", f"as in {_example(read)}", text=text[:60])
    given = [_argument(part, f"{what}: {name}", sort, read)
             for part, (name, sort) in zip(parts, kind.arguments, strict=True)]
    if call[1] == "uniform" and given[0] > given[1]:
        raise BadInput(f"{what}: uniform must go from the smaller to the larger value", text=text[:60])
    return Law(text, call[1], tuple(given))


def _argument(text: str, what: str, sort: str, read: Read) -> float:
    if sort == SCALE:
        scale = _positive(read(text.strip(), what), what)
        if not scale and not what.endswith(": from"):
            raise BadInput(f"{what} must be larger than 0", text=text.strip()[:60])
        return scale
    value = number(text, what)
    if not 0.01 <= value <= 100:
        raise BadInput(f"{what}: {value:g} is not between 0.01 and 100", text=text.strip()[:60])
    return value


def _positive(value: float, what: str) -> float:
    if value < 0:
        raise BadInput(f"{what} must not be negative")
    return value


def _example(read: Read) -> str:
    return "'5', 'uniform(1, 5)'" if read is number else "'5min', 'exponential(10min)', 'weibull(0.45, 4.16h)'"


def _near(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, KINDS, 1)
    return f"did you mean '{near[0]}'?" if near else f"there is {', '.join(KINDS)}"


def time(text: object, what: str) -> Law:
    """Read a law of times, in ms."""
    return parse(text, what, lambda each, name: float(units.parse_duration(each, name)))


def plain(text: object, what: str) -> Law:
    """Read a law of plain numbers."""
    return parse(text, what, number)


def size(text: object, what: str) -> Law:
    """Read a law of sizes, in bytes."""
    return parse(text, what, lambda each, name: float(units.parse_size(each, name)))
