"""The records of a study: it runs and returns cells, each with the paper's number beside ours.

A cell's `low … high` is the range that our number must lie in; without both the number is only shown.  A module of
studies has a list `EXPERIMENTS`; `__init__` names the module of each study.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Cell(NamedTuple):
    name: str
    paper: float | None
    ours: float
    unit: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def asked(self) -> bool:
        return self.low is not None or self.high is not None

    @property
    def holds(self) -> bool:
        """Does our number lie in the range?  NaN lies in none."""
        above = self.low is None or self.ours >= self.low
        return above and (self.high is None or self.ours <= self.high)


class Series(NamedTuple):
    name: str
    x: list[float]
    y: list[float]


class Figure(NamedTuple):
    title: str
    x: str
    y: str
    series: list[Series]


class StudyResult(NamedTuple):
    cells: list[Cell]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()


def seeds_cell(claim: str, holding: int, count: int) -> Cell:
    """Return the cell of a claim that is to hold in 13 of 15 seeds."""
    return Cell(f"of {count} seeds: {claim}", None, holding, low=13 / 15 * count, high=count)


def quiet(_text: str) -> None:
    pass


class Options(NamedTuple):
    """`seeds`: how many seeds to run; None: the study's own number.  `tell`: called with reports of progress."""

    seeds: int | None = None
    first_seed: int = 1
    tell: Callable[[str], None] = quiet

    def seed_range(self, usual: int) -> range:
        """Return the seeds to run; `usual`: the study's own number of them."""
        return range(self.first_seed, self.first_seed + (self.seeds or usual))


class Experiment(NamedTuple):
    id: str
    title: str
    source: str
    run: Callable[[Options], StudyResult]
