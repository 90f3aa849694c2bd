"""Sizes and durations as people write them, and back.

    sizes       2GB is 2·10⁹ bytes, 2GiB is 2·2³⁰; a bare letter is binary as in Slurm and ulimit: 2G is 2GiB
    durations   500ms, 90s, 30min, 1h30m, 2d; parts add up

A number without a unit is refused, since `time = 30` could mean seconds or minutes.
"""

from __future__ import annotations

import re

from windfall.errors import BadInput

MAX_SIZE = 1 << 60
MAX_DURATION = 100 * 366 * 86_400_000  # a century
MAX_CORE_TIME = 1 << 59

_SIZES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", start=1):
    _SIZES[_letter] = _SIZES[_letter + "ib"] = 1024**_power
    _SIZES[_letter + "b"] = 1000**_power

_DURATIONS = {
    "ms": 1,
    "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip

_PART = re.compile(r"\s*(\d{1,19}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", re.ASCII)


_CORE_TIME = re.compile(r"\s*(\d{1,19}(?:\.\d{1,9})?)\s*core-([A-Za-z]+)\s*", re.ASCII)


def parse_size(text: object, what: str = "size") -> int:
    """Return the bytes of a size: `"2GB"`."""
    match = _PART.fullmatch(text) if isinstance(text, str) else None
    factor = _SIZES.get(match[2].lower()) if match else None
    if match is None or factor is None or (match[2] == "" and match[1] != "0"):
        raise BadInput(f"{what}: {_shown(text)} is not a size", "write a number and a unit, as in 512MB, 2GB or 2GiB")
    return _bounded(_scaled(match[1], factor), MAX_SIZE, f"{what}: {_shown(text)}", exact_size(MAX_SIZE))


def parse_duration(text: object, what: str = "duration") -> int:
    """Return the milliseconds of a duration: `"1h30m"`."""
    total, at = 0, 0
    while isinstance(text, str) and at < len(text):
        match = _PART.match(text, at)
        factor = _DURATIONS.get(match[2].lower()) if match else None
        if match is None or (factor is None and not (match[1] == "0" and match[2] == "")):
            at = 0
            break
        total, at = total + _scaled(match[1], factor or 1), match.end()
    if at == 0:
        raise BadInput(
            f"{what}: {_shown(text)} is not a duration", "write numbers and units, as in 90s, 30min, 1h30m or 2d"
        )
    return _bounded(total, MAX_DURATION, f"{what}: {_shown(text)}", exact_duration(MAX_DURATION))


def parse_core_time(text: object, what: str = "budget") -> int:
    """Return the milliseconds of cores of a core time: `"100 core-hours"`."""
    match = _CORE_TIME.fullmatch(text) if isinstance(text, str) else None
    factor = _DURATIONS.get(match[2].lower()) if match else None
    if match is None or factor is None or factor == 1:
        raise BadInput(f"{what}: {_shown(text)} is not a core time", "as in 100 core-hours, or 2 core-days")
    most = format_core_time(MAX_CORE_TIME)
    return _bounded(_scaled(match[1], factor), MAX_CORE_TIME, f"{what}: {_shown(text)}", most)


def format_core_time(ms: int) -> str:
    """Return a time of cores in core-hours, a very short one in core-seconds."""
    if ms >= 36_000 or not ms:
        return f"{ms / 3_600_000:.4g} core-hours"
    return f"{ms / 1000:.3g} core-seconds"


def _scaled(number: str, factor: int) -> int:
    """Multiply exactly, so that 0.1GB is 100,000,000."""
    whole, _, fraction = number.partition(".")
    return int(whole + fraction) * factor // int("1" + "0" * len(fraction))


def _bounded(value: int, most: int, what: str, most_text: str) -> int:
    if value > most:
        raise BadInput(f"{what} is too large; at most {most_text}")
    return value


def _shown(text: object) -> str:
    shown = repr(text) if isinstance(text, str) else str(text)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def format_size(size: int) -> str:
    """Return a size with three significant digits and decimal units: `2.05 GB`."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if value < 999.5 or unit == "PB":
            break
        value /= 1000
    return f"{size} B" if unit == "B" else f"{value:.3g} {unit}"


def format_duration(ms: int) -> str:
    """Return a duration in its two largest units: `350ms`, `4.20s`, `12m05s`, `3h07m`, `2d04h`."""
    if ms < 1000:
        return f"{ms}ms"
    if ms < 60_000:
        return f"{ms / 1000:.3g}s"
    seconds = ms // 1000
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86_400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3600:02d}h"


def exact_duration(ms: int) -> str:
    """Return a duration that parses back to the same number of milliseconds."""
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)):
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def exact_size(size: int) -> str:
    """Return a size that parses back to the same number of bytes."""
    for letter, power in (("T", 4), ("G", 3), ("M", 2), ("k", 1)):
        for unit, factor in ((letter + "iB", 1024**power), (letter + "B", 1000**power)):
            if size and size % factor == 0:
                return f"{size // factor}{unit}"
    return f"{size}B" if size else "0"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
