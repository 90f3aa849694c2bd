"""Mutants of data-conscious selection and lost copies: each is caught by P4."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from windfall.core.decide.data import lost_copies
from windfall.core.decide.grant import nearest_data

from .caught import caught_by
from .plan import data_plan

SEEDS = 400
Patch = pytest.MonkeyPatch


def withheld_tasks_are_not_looked_at_again(patch: Patch) -> None:
    """Leave withheld tasks alone until some pilot asks by itself."""
    patch.setattr(nearest_data, "_check_again", lambda *_: None)


def withheld_tasks_are_not_rechecked_when_hosts_come_or_go(patch: Patch) -> None:
    """Do not recheck what was withheld from waiting pilots when other hosts come or go."""
    patch.setattr(nearest_data, "recheck_withheld", lambda _turn: None)


def lost_outputs_are_not_made_again(patch: Patch) -> None:
    patch.setattr(lost_copies, "rerun_makers", lambda *_: None)


MUTANTS: dict[str, Callable[[Patch], None]] = {each.__name__: each for each in (
    withheld_tasks_are_not_looked_at_again, withheld_tasks_are_not_rechecked_when_hosts_come_or_go,
    lost_outputs_are_not_made_again,
)}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_of_data_breaks_p4(name: str, monkeypatch: Patch) -> None:
    caught(name, monkeypatch)


def caught(name: str, patch: Patch) -> int:
    MUTANTS[name](patch)
    return caught_by(name, "P4", data_plan, SEEDS)
