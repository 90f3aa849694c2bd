"""Mistakes that somebody could make with data, one each: P4 must tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from windfall.core import conscious, losses

from .plan import data_plan
from .world import Broken, World

SEEDS = 400
Patch = pytest.MonkeyPatch


def nobody_looks_again(patch: Patch) -> None:
    """What was withheld waits for somebody to ask, whoever that may be."""
    patch.setattr(conscious, "_look_again", lambda *_: None)


def others_are_not_minded(patch: Patch) -> None:
    """Who waits is not looked at when others come or go."""
    patch.setattr(conscious, "stir", lambda _core: None)


def the_lost_is_not_made_again(patch: Patch) -> None:
    patch.setattr(losses, "make_again", lambda *_: None)


MUTANTS: list[Callable[[Patch], None]] = [nobody_looks_again, others_are_not_minded, the_lost_is_not_made_again]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.__name__)
def test_mutant_is_caught(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    told: list[str] = []
    for seed in range(SEEDS):
        try:
            World(data_plan(seed)).run()
        except Broken as broken:
            if any(said.startswith("P4") for said in broken.said):
                return
            told.append(broken.said[0])
    pytest.fail(f"{mutant.__name__} broke no P4 in {SEEDS} seeds; instead: {told}")
