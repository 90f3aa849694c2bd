"""Draw a picture of a graph on a sheet: rows of boxes, arrows from row to row, colours by component."""

from __future__ import annotations

from windfall.workflow.drawing import LETTER, Sheet
from windfall.workflow.graphs.picture import Picture, printable

ROW, GAP, HEIGHT, EDGE, SIZE = 64, 14, 26, 20, 11
LONGEST = 44  # letters of a label
MOST = 2_500_000  # square units of a sheet: a PNG of some 40 million points before it is reduced
COLOURS = ("#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9", "#fce5cd", "#d0e0e3", "#ead1dc")


def _label(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _width(text: str) -> float:
    return len(_label(text)) * SIZE * LETTER + 16


def _size(found: Picture) -> tuple[float, float]:
    widths = [sum(_width(found.nodes[number].label) + GAP for number in row) for row in found.rows()]
    return max([300.0, *widths]) + 2 * EDGE, len(widths) * ROW + 3 * EDGE


def fits(found: Picture) -> bool:
    width, height = _size(found)
    return width * height <= MOST


def draw(found: Picture) -> Sheet:
    width, height = (min(each, 6000.0) for each in _size(found))
    sheet = Sheet(round(width), round(height))
    sheet.word(EDGE, EDGE, _title(found), 13)
    places = _places(found, width)
    for a, b in found.arrows:
        _arrow(sheet, places[a], places[b], a == b)
    components = {node.component: None for node in found.nodes}
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(components)}
    for number, node in enumerate(found.nodes):
        x, y, wide = places[number]
        sheet.box(x, y, wide, HEIGHT, "#666666")
        sheet.box(x + 1, y + 1, wide - 2, HEIGHT - 2, colours[node.component])
        sheet.word(x + wide / 2, y + HEIGHT / 2, _label(node.label), SIZE, "middle")
    return sheet


def _title(found: Picture) -> str:
    tasks = sum(node.tasks for node in found.nodes)
    more = f"; {found.left_out:,} smaller groups are left out" if found.left_out else ""
    return f"{_label(found.title)}: {tasks:,} tasks" + (", by component and section" if found.summary else "") + more


def _places(found: Picture, width: float) -> dict[int, tuple[float, float, float]]:
    """Return left edge, top and width of each box; in a row, boxes stand below the boxes they follow."""
    before: dict[int, list[int]] = {}
    for a, b in found.arrows:
        before.setdefault(b, []).append(a)
    places: dict[int, tuple[float, float, float]] = {}
    for number, row in enumerate(found.rows()):
        ordered = sorted(row, key=lambda node: (_middle(before.get(node, []), places), node))
        total = sum(_width(found.nodes[node].label) + GAP for node in row) - GAP
        x = max(EDGE, (width - total) / 2)
        for node in ordered:
            wide = _width(found.nodes[node].label)
            places[node] = (x, 2 * EDGE + number * ROW, wide)
            x += wide + GAP
    return places


def _middle(nodes: list[int], places: dict[int, tuple[float, float, float]]) -> float:
    centres = [places[node][0] + places[node][2] / 2 for node in nodes if node in places]
    return sum(centres) / len(centres) if centres else 0.0


def _arrow(sheet: Sheet, a: tuple[float, float, float], b: tuple[float, float, float], own: bool) -> None:
    if own:  # the label says "in turn"
        return
    start, end = (a[0] + a[2] / 2, a[1] + HEIGHT), (b[0] + b[2] / 2, b[1])
    colour = "#888888"
    if b[1] <= a[1]:  # an arrow up or sideways goes around, in another colour
        side = max(a[0] + a[2], b[0] + b[2]) + GAP / 2
        start, end, colour = (a[0] + a[2], a[1] + HEIGHT / 2), (b[0] + b[2], b[1] + HEIGHT / 2), "#cc8866"
        sheet.line([start, (side, start[1]), (side, end[1]), end], colour)
        return
    sheet.line([start, end], colour)
    sheet.line([(end[0] - 3, end[1] - 6), end, (end[0] + 3, end[1] - 6)], colour)
