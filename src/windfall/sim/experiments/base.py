"""What a study is: something that runs and gives cells, each with the paper's number beside ours.

A cell's `low … high` is what is asked of ours; without both nothing is asked and the number is only shown.  A module of
studies has `EXPERIMENTS`, a list of them; `__init__` says which module has which.
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
        """Not a number is within no range."""
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


class Outcome(NamedTuple):
    cells: list[Cell]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()


def quiet(_text: str) -> None:
    pass


class Options(NamedTuple):
    """`seeds`: how many, or as many as the study takes by itself.  `tell`: how far it is."""

    seeds: int | None = None
    first_seed: int = 1
    tell: Callable[[str], None] = quiet


class Experiment(NamedTuple):
    id: str
    title: str
    source: str
    run: Callable[[Options], Outcome]
