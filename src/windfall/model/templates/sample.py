"""Parameters drawn at random, with the same values on every machine and in every version.

Value i follows from seed, name and i alone, through BLAKE2b.  No generator has a state, so values can be computed in
any order, a longer sample begins with the shorter one's values, and versions of Python and libraries do not matter.
Floating-point values have twelve digits, fewer than those in which mathematical libraries differ.

A Latin hypercube of n points cuts every column's range into n equal parts and visits them in the order of a
permutation: four rounds of a Feistel network over the next power of four, repeated while the number is n or more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from windfall.errors import BadInput
from windfall.model.spec import Latin, Law, Sample

Draw = Callable[[int], int | float]


class LawForm(NamedTuple):
    arguments: str  # their names
    example: str


LAWS = {
    "uniform": LawForm("from, to", "uniform(0, 1)"),
    "loguniform": LawForm("from, to", "loguniform(1e-3, 1)"),
    "normal": LawForm("mean, deviation", "normal(0, 1)"),
    "integer": LawForm("from, to", "integer(1, 6)"),
}

_LAW = re.compile(r"\s*([A-Za-z_]+)\s*\(([^()]*)\)\s*")
_WHOLE = re.compile(r"[-+]?\d[\d_]{0,22}")


def parse_law(name: str, text: str) -> Law:
    """Read a law, such as `uniform(0, 1)`."""
    match = _LAW.fullmatch(text) if len(text) <= 200 else None
    try:
        if match is None:
            raise ValueError
        arguments = [int(part) if _WHOLE.fullmatch(part.strip()) else float(part) for part in match[2].split(",")]
    except ValueError:
        raise BadInput(f"'{name}': not a law of random values", f"as in {_examples()}", text=text[:100]) from None
    law = Law(name=name, law=match[1], arguments=arguments)
    check_law(law)
    return law


def _examples() -> str:
    return ", ".join(kind.example for kind in LAWS.values())


def check_law(law: Law) -> None:
    kind = LAWS.get(law.law)
    if kind is None:
        from difflib import get_close_matches

        near = get_close_matches(law.law[:100], list(LAWS), 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(LAWS)}"
        raise BadInput(f"'{law.name}': the law '{law.law[:100]}' does not exist", hint, text=law.law[:100])
    if len(law.arguments) != 2 or not all(math.isfinite(n) and abs(n) < 1e300 for n in law.arguments):
        raise BadInput(
            f"'{law.name}': {law.law} takes two numbers: {kind.arguments}", f"as in {kind.example}", text=law.law
        )
    wrong = _wrong_arguments(law)
    if wrong:
        raise BadInput(f"'{law.name}': {law.law}: {wrong}", f"as in {kind.example}", text=law.law)


def _wrong_arguments(law: Law) -> str:
    """Return what is wrong with the arguments of a law, or ""."""
    first, second = law.arguments
    if law.law == "integer":
        if not all(map(_is_whole, law.arguments)):
            return "both must be whole numbers"
        return "" if first <= second else "the first must not be larger than the second"
    if law.law == "normal":
        return "" if second > 0 else "the deviation must be larger than 0"
    if law.law == "loguniform" and first <= 0:
        return "both must be larger than 0"
    return "" if first < second else "the first must be smaller than the second"


def _is_whole(number: int | float) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and abs(number) < 1 << 62


# --- drawing ---------------------------------------------------------------------------------------------------


def _bits(*parts: object) -> int:
    """Return 64 bits that follow from the parts."""
    from hashlib import blake2b  # late: its import takes milliseconds, and most commands draw nothing

    return int.from_bytes(blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest(), "big")


def draw_sample(axis: Sample) -> Draw:
    seed, name = axis.seed, axis.law.name
    shape = _shaped(axis.law)
    return lambda i: shape(_bits(seed, name, i), 1 << 64)


def draw_latin(axis: Latin, law: Law) -> Draw:
    seed, name, n = axis.seed, law.name, axis.n
    shape, place = _shaped(law), _permutation(f"{seed}\0{name}", n)
    return lambda i: shape((place(i) << 64) + _bits(seed, name, "within", i), n << 64)


def _permutation(key: str, n: int) -> Callable[[int], int]:
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    known: dict[tuple[int, int], int] = {}  # at most four times the square root of four n

    def mixed(turn: int, right: int) -> int:
        found = known.get((turn, right))
        if found is None:
            found = known[turn, right] = _bits(key, turn, right) & mask
        return found

    def place(i: int) -> int:
        while True:
            left, right = i >> half, i & mask
            for turn in range(4):
                left, right = right, left ^ mixed(turn, right)
            i = left << half | right
            if i < n:
                return i

    return place


def _shaped(law: Law) -> Callable[[int, int], int | float]:
    """Return a function from a numerator and a denominator, a number in [0, 1), to a value of the law."""
    first, second = law.arguments
    if law.law == "integer":
        least, span = int(first), int(second) - int(first) + 1
        return lambda over, under: least + over * span // under
    if law.law == "normal":
        return _normal(first, second)
    if law.law == "loguniform":
        low, high = math.log(first), math.log(second)
        return lambda over, under: _rounded(math.exp(low + (high - low) * _unit(over, under)), first, second)
    return lambda over, under: _rounded(first + (second - first) * _unit(over, under), first, second)


def _normal(mean: float, deviation: float) -> Callable[[int, int], float]:
    from statistics import NormalDist

    quantile = NormalDist().inv_cdf
    return lambda over, under: _rounded(mean + deviation * quantile(_unit(over, under)), -math.inf, math.inf)


def _unit(over: int, under: int) -> float:
    """Return a number strictly between 0 and 1, since quantiles are infinite at both."""
    return ((over << 52) // under * 2 + 1) / (1 << 53)


def _rounded(value: float, least: float, most: float) -> float:
    return min(max(float(f"{value:.12g}"), float(least)), float(most))
