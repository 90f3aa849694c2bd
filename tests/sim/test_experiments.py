"""The registry of studies, and the printed cells of a study."""

from __future__ import annotations

import math
from importlib import import_module

import pytest

from windfall.cli.commands.studies import experiment
from windfall.sim import experiments
from windfall.sim.experiments.base import Cell, Experiment, StudyResult

MODULES = sorted({study.module for study in experiments.STUDIES.values() if study.here})


@pytest.mark.parametrize("module", MODULES)
def test_each_module_holds_the_studies_of_the_registry(module: str) -> None:
    found = import_module(f"windfall.sim.experiments.{module}").EXPERIMENTS
    for each in found:
        assert experiments.STUDIES[each.id].module == module
        assert experiments.STUDIES[each.id].title == each.title and each.source
        assert experiments.find(each.id) is each


@pytest.mark.parametrize(("cell", "asked", "holds"), [
    (Cell("x", 10, 12), False, True),
    (Cell("x", 10, 12, "s", 9, 11), True, False),
    (Cell("x", 10, 11, "s", 9, 11), True, True),
    (Cell("x", None, 8, "s", 9), True, False),
    (Cell("x", None, math.nan, "s", 9), True, False),
    (Cell("x", None, math.nan, "s", None, 9), True, False),
])  # fmt: skip
def test_cell_holds_when_number_lies_in_asked_range(cell: Cell, asked: bool, holds: bool) -> None:
    assert (cell.asked, cell.holds) == (asked, holds)


def test_experiment_prints_our_numbers_beside_the_papers(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [Cell("makespan", 900, 945, "s", 810, 990), Cell("gain", 13.5, 9.0, "%", 9.5, 17.5), Cell("x", None, 3)]
    study = Experiment("t-0", "a title", "a paper", lambda _: StudyResult(cells))
    experiment._tell(study, StudyResult(cells, notes=["so"]))
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    assert ["makespan", "900", "945", "s", "+5.0%", "810", "…", "990", "yes"] in rows
    assert ["gain", "13.5", "9", "%", "-4.5", "points", "9.5", "…", "17.5", "NO"] in rows
    assert ["x", "3"] in rows and "1 of 2 numbers" in printed and "so" in printed
