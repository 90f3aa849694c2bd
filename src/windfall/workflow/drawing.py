"""A sheet of rectangles, lines and words, as SVG and as PNG.

The same calls draw both, so the two never differ; the same calls give the same bytes.  Pillow is loaded only when a
caller asks for a PNG.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple
from xml.sax.saxutils import escape

PIXELS = 2  # pixels of a PNG per unit of the sheet
SMOOTH = 2  # a PNG is drawn this many times larger, then reduced
LETTER = 0.56  # mean width of a letter, in units of its size

Point = tuple[float, float]


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    fill: str


class Line(NamedTuple):
    points: Sequence[Point]
    stroke: str
    width: float


class Word(NamedTuple):
    x: float
    y: float  # the middle of the letters
    text: str
    size: float
    anchor: str  # start, middle, end
    fill: str


class Sheet:
    """A sheet measured in units from its upper left corner."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._items: list[Box | Line | Word] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self._items.append(Box(x, y, width, height, fill))

    def line(self, points: Sequence[Point], stroke: str = "#000000", width: float = 1.0) -> None:
        self._items.append(Line(points, stroke, width))

    def word(self, x: float, y: float, text: str, size: float = 11, anchor: str = "start",
             fill: str = "#222222") -> None:
        self._items.append(Word(x, y, text, size, anchor=anchor, fill=fill))

    # --- SVG --------------------------------------------------------------------------------------------------------

    def svg(self) -> str:
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
        ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
        return "\n".join([head, ground, *map(_svg, self._items), "</svg>"]) + "\n"

    # --- PNG --------------------------------------------------------------------------------------------------------

    def png(self) -> bytes:
        from PIL import Image, ImageDraw

        scale = PIXELS * SMOOTH
        image = Image.new("RGB", (self.width * scale, self.height * scale), "#ffffff")
        draw = ImageDraw.Draw(image)
        for item in self._items:
            if isinstance(item, Box):
                x, y = item.x * scale, item.y * scale
                draw.rectangle((x, y, max(x, x + item.width * scale - 1), y + item.height * scale - 1), item.fill)
            elif isinstance(item, Line):
                points = [(x * scale, y * scale) for x, y in item.points]
                draw.line(points, item.stroke, max(1, round(item.width * scale)), "curve")
            else:
                self._write(draw, item, scale)
        small = image.reduce(SMOOTH)
        out = BytesIO()
        small.save(out, "PNG", optimize=True)
        return out.getvalue()

    def _write(self, draw: object, item: Word, scale: int) -> None:
        from PIL import ImageDraw, ImageFont

        assert isinstance(draw, ImageDraw.ImageDraw)
        font = ImageFont.load_default(item.size * scale)
        anchor = {"start": "l", "middle": "m", "end": "r"}[item.anchor] + "m"
        draw.text((item.x * scale, item.y * scale), item.text, item.fill, font, anchor)


def _svg(item: Box | Line | Word) -> str:
    if isinstance(item, Box):
        where = f'x="{_n(item.x)}" y="{_n(item.y)}" width="{_n(item.width)}" height="{_n(item.height)}"'
        return f'<rect {where} fill="{item.fill}"/>'
    if isinstance(item, Line):
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in item.points)
        return f'<polyline points="{points}" fill="none" stroke="{item.stroke}" stroke-width="{_n(item.width)}"/>'
    anchor = "" if item.anchor == "start" else f' text-anchor="{item.anchor}"'
    where = f'x="{_n(item.x)}" y="{_n(item.y + item.size * 0.35)}"'
    return f'<text {where} font-size="{_n(item.size)}" fill="{item.fill}"{anchor}>{escape(item.text)}</text>'


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
