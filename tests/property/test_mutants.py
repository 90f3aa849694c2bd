"""Every mutant is caught, and by the promise that it breaks."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .world import Broken, World

SEEDS = 1_000


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    promise, apply, worlds = MUTANTS[name]
    apply(monkeypatch)
    told: dict[str, int] = {}
    for seed in range(SEEDS):
        try:
            World(worlds(seed)).run()
        except Broken as broken:
            if any(said.startswith(promise) for said in broken.said):
                return
            told.setdefault(broken.said[0], seed)
    pytest.fail(f"{name} broke no {promise} in {SEEDS} seeds; instead: {told}")
