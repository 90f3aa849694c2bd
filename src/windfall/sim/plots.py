"""Charts: lines over an axis, and a Gantt chart of the attempts on each host.

A Gantt chart of many attempts is summed up: a row stands for several slots, and time is cut into pieces, each as dark
as its slots were busy.  So a hundred thousand attempts make a picture as small as a thousand do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from windfall.sim.experiments.base import Figure
from windfall.workflow.drawing import LETTER, Sheet

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d00", "#666666")
GRID, INK = "#dddddd", "#222222"
WIDTH, HEIGHT = 800, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
UNITS = ((1, "s"), (60, "min"), (3600, "h"), (86_400, "d"))


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


# --- axes ------------------------------------------------------------------------------------------------------------


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Return round numbers between `low` and `high`, about `about` of them."""
    span = high - low
    if not span > 1e-9 * abs(low) or not math.isfinite(span):
        return [low]
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999999)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def unit_of(seconds: float) -> tuple[int, str]:
    """Return the unit that suits a stretch of time: its length in seconds, and its name."""
    return next(((size, name) for size, name in reversed(UNITS) if seconds >= 3 * size), UNITS[0])


def _label(value: float) -> str:
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.3g}"


class Frame:
    """The axes of a chart."""

    def __init__(self, sheet: Sheet, x: tuple[float, float], y: tuple[float, float], left: float = LEFT) -> None:
        self.sheet, self.left = sheet, left
        self.right, self.bottom = sheet.width - RIGHT, sheet.height - BOTTOM
        (self.x0, self.x1), (self.y0, self.y1) = x, y

    def x(self, value: float) -> float:
        return self.left + (value - self.x0) / ((self.x1 - self.x0) or 1) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - (value - self.y0) / ((self.y1 - self.y0) or 1) * (self.bottom - TOP)

    def across(self, title: str) -> None:
        for tick in ticks(self.x0, self.x1, 8):
            at = self.x(tick)
            self.sheet.line([(at, TOP), (at, self.bottom)], GRID)
            self.sheet.word(at, self.bottom + 12, _label(tick), 10, "middle")
        self.sheet.word((self.left + self.right) / 2, self.bottom + 30, title, 11, "middle")

    def up(self, title: str) -> None:
        for tick in ticks(self.y0, self.y1):
            at = self.y(tick)
            self.sheet.line([(self.left, at), (self.right, at)], GRID)
            self.sheet.word(self.left - 6, at, _label(tick), 10, "end")
        self.sheet.word(8, TOP - 12, title, 11)

    def border(self) -> None:
        self.sheet.line([(self.left, TOP), (self.left, self.bottom), (self.right, self.bottom)], INK)


def lines(figure: Figure, steps: bool = False) -> Sheet:
    """Draw a figure as lines; with `steps` a value holds until the next."""
    sheet = Sheet(WIDTH, HEIGHT)
    frame = _frame(sheet, figure)
    sheet.word(WIDTH / 2, 12, figure.title, 13, "middle")
    for number, each in enumerate(figure.series):
        points = [(frame.x(x), frame.y(y)) for x, y in zip(each.x, each.y, strict=True)
                  if math.isfinite(x) and math.isfinite(y)]
        if len(points) > 1:
            sheet.line(_stepped(points) if steps else points, colour(number), 1.8)
        elif points:
            sheet.box(points[0][0] - 2, points[0][1] - 2, 4, 4, colour(number))
    frame.border()
    _legend(sheet, [each.name for each in figure.series])
    return sheet


def _frame(sheet: Sheet, figure: Figure) -> Frame:
    """Draw axes that hold all finite points of a figure."""
    xs = [x for each in figure.series for x in each.x if math.isfinite(x)] or [0.0]
    ys = [y for each in figure.series for y in each.y if math.isfinite(y)] or [0.0]
    frame = Frame(sheet, (min(xs), max(xs)), (min(0.0, *ys), max(ys) * 1.05 if max(ys) > 0 else 1.0))
    frame.across(figure.x)
    frame.up(figure.y)
    return frame


def _stepped(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found = [points[0]]
    for (_, before), (x, y) in pairwise(points):
        found += [(x, before), (x, y)]
    return found


def _legend(sheet: Sheet, names: Sequence[str]) -> None:
    """Write the legend at the upper right, from the last name to the first."""
    at = float(sheet.width - RIGHT)
    for number, name in reversed(list(enumerate(names[: 2 * len(COLOURS)]))):
        at -= len(name) * 10 * LETTER + 20
        if at < 200:
            return
        sheet.box(at, TOP - 15, 9, 9, colour(number))
        sheet.word(at + 12, TOP - 10.5, name, 10)


# --- Gantt -----------------------------------------------------------------------------------------------------------

MAX_ROWS = 80  # a chart of more rows is summed up
MAX_BARS = 4_000  # a chart of more bars is summed up
PIECES = 240  # pieces of time in a chart that is summed up
SHADES = 10


class Bar(NamedTuple):
    start: float  # s
    end: float
    fill: str


class GanttRow(NamedTuple):
    name: str
    group: str  # the site
    bars: list[Bar]


def gantt(title: str, rows: Sequence[GanttRow], end: float, legend: Sequence[tuple[str, str]] = (),
          across: str = "time") -> Sheet:
    """Draw rows of bars from 0 to `end`, in seconds.  `legend`: names and the colours of bars; `across`: the title of
    the time axis."""
    summed = len(rows) > MAX_ROWS or sum(len(row.bars) for row in rows) > MAX_BARS
    size, unit = unit_of(end)
    shown = _summed_up(rows, end) if summed else list(rows)
    height = max(4.0, min(16.0, 900 / max(1, len(shown))))
    sheet = Sheet(WIDTH, round(TOP + BOTTOM + height * max(1, len(shown))))
    left = min(180, 20 + max((len(row.name) for row in shown), default=0) * 9 * LETTER)
    frame = Frame(sheet, (0, end / size or 1), (0, 1), max(LEFT, left))
    frame.across(f"{across} ({unit})")
    _name_rows(frame, shown, height)
    gap = 0.0 if summed else 0.4  # between one bar and the next
    for number, row in enumerate(shown):
        top = TOP + number * height
        for bar in row.bars:
            x = frame.x(bar.start / size)
            sheet.box(x, top + height * 0.08, max(0.4, frame.x(bar.end / size) - x - gap), height * 0.84, bar.fill)
    _groups(sheet, frame, shown, height)
    frame.border()
    sheet.word(WIDTH / 2, 12, title + (", busy slots shaded" if summed else ""), 13, "middle")
    if not summed:
        _key(sheet, legend)
    return sheet


def _name_rows(frame: Frame, rows: Sequence[GanttRow], height: float) -> None:
    """Write the names of the rows, leaving out some where rows are low."""
    for number, row in enumerate(rows):
        if height >= 8 or number % math.ceil(8 / height) == 0:
            top = TOP + number * height
            frame.sheet.word(frame.left - 4, top + height / 2, row.name[:30], min(9.0, max(height, 7.0)), "end")


def _groups(sheet: Sheet, frame: Frame, rows: Sequence[GanttRow], height: float) -> None:
    """Draw a line between one site and the next."""
    for number, (before, row) in enumerate(pairwise(rows), 1):
        if before.group != row.group:
            at = TOP + number * height
            sheet.line([(frame.left, at), (frame.right, at)], "#888888", 0.6)


def _key(sheet: Sheet, legend: Sequence[tuple[str, str]]) -> None:
    at = float(sheet.width - RIGHT)
    for name, fill in reversed(list(legend)):
        at -= len(name) * 10 * LETTER + 20
        sheet.box(at, TOP - 15, 9, 9, fill)
        sheet.word(at + 12, TOP - 10.5, name, 10)


def _summed_up(rows: Sequence[GanttRow], end: float) -> list[GanttRow]:
    """Join rows of one site, so many that about `MAX_ROWS` are left."""
    each = math.ceil(len(rows) / MAX_ROWS)
    groups: dict[str, list[GanttRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    found = []
    for number, (group, members) in enumerate(groups.items()):
        for first in range(0, len(members), each):
            part = members[first : first + each]
            last = f"…{first + len(part)}" if len(part) > 1 else ""
            name = part[0].name if each == 1 else f"{group} {first + 1}{last}"
            found.append(GanttRow(name, group, _shaded(part, end, colour(number))))
    return found


def _shaded(rows: Sequence[GanttRow], end: float, base: str) -> list[Bar]:
    """Return a bar per stretch of time, each as dark as these rows were busy."""
    width = end / PIECES or 1.0
    busy = [0.0] * PIECES
    for row in rows:
        for bar in row.bars:
            _spread(busy, bar.start / width, bar.end / width)
    levels = [min(SHADES, math.ceil(share / len(rows) * SHADES - 1e-9)) for share in busy]
    found: list[Bar] = []
    for piece, level in enumerate(levels):
        if not level:
            continue
        shade = _mixed(base, level / SHADES)
        if found and found[-1].fill == shade and abs(found[-1].end - piece * width) < width / 2:
            found[-1] = found[-1]._replace(end=(piece + 1) * width)
        else:
            found.append(Bar(piece * width, (piece + 1) * width, shade))
    return found


def _spread(busy: list[float], start: float, end: float) -> None:
    """Add to each piece of time the part of it that lies between `start` and `end`."""
    first, last = max(0, int(start)), min(PIECES - 1, int(end))
    for piece in range(first, last + 1):
        busy[piece] += max(0.0, min(end, piece + 1) - max(start, piece))


def _mixed(base: str, share: float) -> str:
    """Mix a colour with white."""
    parts = (int(base[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in parts)
