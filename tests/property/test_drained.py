"""Sites that are drained and used again at any moment, under faults: nothing goes there meanwhile, and all ends."""

from __future__ import annotations

import random

import msgspec
import pytest

from windfall.core.decide.requests import sites

from .plan import HORIZON, Act, Plan, crowded_plan, random_plan
from .world import World


def mixed(seed: int) -> Plan:
    """Any world, and sites that are drained in it."""
    plan, r = random_plan(2 * seed + 1), random.Random(seed)
    acts = tuple(Act(r.randrange(HORIZON), "drained", r.randrange(6), r.randrange(100)) for _ in range(8))
    return msgspec.structs.replace(plan, acts=plan.acts + acts)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_seeds(first: int) -> None:
    for seed in range(first, first + 40):
        World(mixed(seed)).run()


def test_one_site_that_comes_and_goes() -> None:
    worlds = [World(crowded_plan("drained")(seed)).run() for seed in range(60)]
    assert sum(world.drained for world in worlds) > 200, "it really happens"


def test_a_mistake_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken back."""
    monkeypatch.setattr(sites, "_empty", lambda core, site, now: None)
    with pytest.raises(AssertionError, match="P6"):
        for seed in range(60):
            World(crowded_plan("drained")(seed)).run()
