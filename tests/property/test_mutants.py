"""Every mutant breaks the promise that it names, in some world."""

from __future__ import annotations

import pytest

from .caught import caught_by
from .mutants import MUTANTS

SEEDS = 1_000


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_breaks_its_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    caught(name, monkeypatch)


def caught(name: str, patch: pytest.MonkeyPatch) -> int:
    promise, apply, worlds = MUTANTS[name]
    apply(patch)
    return caught_by(name, promise, worlds, SEEDS)
