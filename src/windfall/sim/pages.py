"""The files of a run: its record as CSV and JSON, and its charts as SVG and PNG.

    bags.json                        the numbers of every bag
    attempts.csv, pilots.csv         a line per attempt, a line per pilot
    asked.csv, transfers.csv         intents of pilots, and the files that attempts fetched, if there were any
    gantt.svg, .png                  which attempts ran on which host
    running.csv, .svg, .png          running tasks over time, by site
    completion.csv, .svg, .png       ended tasks over time, by bag
    queued.csv, .svg, .png           pilots waiting in batch queues over time, by site, if there were any
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from heapq import merge
from pathlib import Path
from typing import Any

from windfall.core.messages.lifecycle import O_FAILED, OUTCOMES
from windfall.errors import Unwritable
from windfall.sim import plots
from windfall.sim.experiments.base import Figure, Series
from windfall.sim.record import COLUMNS, AttemptRecord, Record, TransferRecord
from windfall.workflow.drawing import Sheet

SINCE = "time since the first submission"
FAILED, WASTED = "#c00000", "#aaaaaa"
POINTS = 2_000  # a drawn curve has about so many; its CSV has all of them


class OutputFolder:
    """A folder for files; the first file creates it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, data: str | bytes) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_bytes(data.encode() if isinstance(data, str) else data)
        except OSError as error:
            raise Unwritable(f"cannot write {self.path / name}: {error.strerror}", "write elsewhere: -o DIR") from None

    def rows(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        from io import StringIO

        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        self.write(name, text.getvalue())

    def draw(self, name: str, sheet: Sheet) -> None:
        self.write(f"{name}.svg", sheet.svg())
        self.write(f"{name}.png", sheet.png())


def write(record: Record, path: Path) -> None:
    folder = OutputFolder(path)
    folder.write("bags.json", json.dumps(record.summaries(), indent=1) + "\n")
    folder.rows("attempts.csv", (*COLUMNS, "site", "host"), map(_row(record), record.attempts()))
    folder.rows("pilots.csv", ("pilot", "site", "host", "cores", "enrolled", "ended", "why"), (
        (number, life.site, life.host, life.cores, life.enrolled, life.ended, life.why)
        for number, life in record.pilots.items()))
    if record.asked:
        folder.rows("asked.csv", ("intent", "site", "cores", "made", "queued", "running", "ended", "why"), (
            (number, *astuple(asked)) for number, asked in record.asked.items()))
        _curve(folder, "queued", Figure("Pilots in batch queues", SINCE, "pilots", queued(record)), record.first)
    if record.transfers:
        folder.rows("transfers.csv", TransferRecord._fields, record.transfers)
    folder.draw("gantt", gantt(record))
    _curve(folder, "running", Figure("Running tasks", SINCE, "tasks", running(record)), record.first)
    _curve(folder, "completion", Figure("Tasks ended", SINCE, "tasks", completion(record)), record.first)


def _row(record: Record) -> Callable[[AttemptRecord], tuple[Any, ...]]:
    def row(attempt: AttemptRecord) -> tuple[Any, ...]:
        life = record.pilots.get(attempt.pilot)
        place = (life.site, life.host) if life else ("", "")
        return (*attempt[:-2], OUTCOMES[attempt.outcome], attempt.counts, *place)

    return row


def write_figures(figures: Sequence[Figure], path: Path) -> None:
    """Write each figure of an experiment as data and as a drawing."""
    folder = OutputFolder(path)
    for number, figure in enumerate(figures, 1):
        folder.rows(f"figure-{number}.csv", (figure.x, "name", figure.y), (
            (x, each.name, y) for each in figure.series for x, y in zip(each.x, each.y, strict=True)))
        folder.draw(f"figure-{number}", plots.lines(figure))


# --- curves ----------------------------------------------------------------------------------------------------------


def running(record: Record) -> list[Series]:
    """Return a curve per site, in seconds: how many tasks run from each moment on."""
    changes: dict[str, list[tuple[int, int]]] = {}
    for attempt in record.attempts():
        life = record.pilots.get(attempt.pilot)
        if life and 0 <= attempt.start < attempt.end:
            changes.setdefault(life.site, []).extend([(attempt.start, 1), (attempt.end, -1)])
    return [_summed(site, changes[site]) for site in sorted(changes)]


def queued(record: Record) -> list[Series]:
    """Return a curve per site, in seconds: how many pilots wait there from each moment on."""
    changes: dict[str, list[tuple[int, int]]] = {}
    for asked in record.asked.values():
        over = asked.running if asked.running >= 0 else asked.ended
        if asked.queued >= 0:
            ends = [(over, -1)] if over >= 0 else []
            changes.setdefault(asked.site, []).extend([(asked.queued, 1), *ends])
    return [_summed(site, changes[site]) for site in sorted(changes)]


def _summed(name: str, changes: list[tuple[int, int]]) -> Series:
    xs, ys, level = [0.0], [0.0], 0
    for at, change in sorted(changes):
        level += change
        if xs[-1] == at / 1000:
            ys[-1] = float(level)
        else:
            xs.append(at / 1000)
            ys.append(float(level))
    return Series(name, xs, ys)


def completion(record: Record) -> list[Series]:
    """Return a curve per bag, in seconds: how many of its tasks have ended."""
    ends: dict[str, list[tuple[int, int]]] = {name: [] for name in record.named()}
    for attempt in record.attempts():
        if attempt.counts:
            ends[record.bags[attempt.bag].name].append((attempt.end, 1))
    return [_summed(name, ends[name]) for name in ends]


def _curve(folder: OutputFolder, name: str, figure: Figure, first: int) -> None:
    """Write a chart, drawn from `first` (ms) on, and its CSV, whose times count from the start of the simulation."""
    rows = merge(*([(x, each.name, y) for x, y in zip(each.x, each.y, strict=True)] for each in figure.series))
    folder.rows(f"{name}.csv", ("seconds", "name", figure.y), rows)
    begin = first / 1000
    size, unit = plots.unit_of(max((each.x[-1] - begin for each in figure.series), default=0.0))
    thin = [Series(each.name, [max(0.0, x - begin) / size for x in _thinned(each.x)], _thinned(each.y))
            for each in figure.series]
    folder.draw(name, plots.lines(figure._replace(x=f"{figure.x} ({unit})", series=thin), steps=True))


def _thinned(values: list[float]) -> list[float]:
    """Return no more values than a chart can show, the last one among them."""
    every = 1 + len(values) // POINTS
    return values if every == 1 else [*values[:-1:every], values[-1]]


# --- Gantt -----------------------------------------------------------------------------------------------------------


def gantt(record: Record) -> Sheet:
    """Draw a row for each slot of each host, in the order of sites and hosts."""
    places: dict[tuple[str, str], list[AttemptRecord]] = {}
    for attempt in record.attempts():
        life = record.pilots.get(attempt.pilot)
        if life and 0 <= attempt.start < attempt.end:
            places.setdefault((life.site, life.host), []).append(attempt)
    first = record.first
    colours = {number: plots.colour(place) for place, bags in enumerate(record.named().values()) for number in bags}
    rows = [row for place in sorted(places, key=_in_order) for row in _slots(*place, places[place], colours, first)]
    names = [(name, colours[bags[0]]) for name, bags in record.named().items()]
    legend = [*names[: len(plots.COLOURS)], ("failed", FAILED), ("not counted", WASTED)]
    return plots.gantt("What ran where", rows, max(0, record.last - first) / 1000, legend, SINCE)


def _in_order(place: tuple[str, str]) -> tuple[str, list[tuple[int, str]]]:
    """Return a sort key that orders hosts as people count them: the ninth before the tenth."""
    site, host = place
    return site, [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", host)]


def _slots(
    site: str, host: str, attempts: list[AttemptRecord], colours: dict[int, str], first: int
) -> list[plots.GanttRow]:
    """Return a row per slot of a host: attempts that ran at the same time stand below each other."""
    free: list[int] = []  # ms: when each slot becomes free
    rows: list[plots.GanttRow] = []
    for attempt in sorted(attempts, key=lambda each: (each.start, each.number)):
        slot = next((n for n, at in enumerate(free) if at <= attempt.start), len(free))
        if slot == len(free):
            free.append(0)
            rows.append(plots.GanttRow(host if not slot else "", site, []))
        free[slot] = attempt.end
        start, end = (attempt.start - first) / 1000, (attempt.end - first) / 1000
        rows[slot].bars.append(plots.Bar(start, end, _fill(attempt, colours)))
    return rows


def _fill(attempt: AttemptRecord, colours: dict[int, str]) -> str:
    if attempt.counts:
        return colours[attempt.bag]
    return FAILED if attempt.outcome == O_FAILED else WASTED
