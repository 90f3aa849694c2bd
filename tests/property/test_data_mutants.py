"""Mistakes that somebody could make with data, one each: P4 must tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from windfall.core.decide.data import lost_copies
from windfall.core.decide.grant import nearest_data

from .caught import caught_by
from .plan import data_plan

SEEDS = 400
Patch = pytest.MonkeyPatch


def nobody_looks_again(patch: Patch) -> None:
    """What was withheld waits for somebody to ask, whoever that may be."""
    patch.setattr(nearest_data, "_look_again", lambda *_: None)


def others_are_not_minded(patch: Patch) -> None:
    """Who waits is not looked at when others come or go."""
    patch.setattr(nearest_data, "stir", lambda _core: None)


def the_lost_is_not_made_again(patch: Patch) -> None:
    patch.setattr(lost_copies, "rerun_makers", lambda *_: None)


MUTANTS: dict[str, Callable[[Patch], None]] = {
    each.__name__: each for each in (nobody_looks_again, others_are_not_minded, the_lost_is_not_made_again)}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str, monkeypatch: Patch) -> None:
    caught(name, monkeypatch)


def caught(name: str, patch: Patch) -> int:
    MUTANTS[name](patch)
    return caught_by(name, "P4", data_plan, SEEDS)
