"""Sites drained and undrained at any moment, under faults: no pilot goes to a drained site, and all tasks end."""

from __future__ import annotations

import random

import msgspec
import pytest

from windfall.core.decide.requests import sites

from .plan import HORIZON, Act, Plan, crowded_plan, random_plan
from .world import World


def mixed(seed: int) -> Plan:
    """Return a random plan with acts that drain and undrain its sites."""
    plan, r = random_plan(2 * seed + 1), random.Random(seed)
    acts = tuple(Act(r.randrange(HORIZON), "drained", r.randrange(6), r.randrange(100)) for _ in range(8))
    return msgspec.structs.replace(plan, acts=plan.acts + acts)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_worlds_with_drained_sites_keep_every_promise(first: int) -> None:
    for seed in range(first, first + 40):
        World(mixed(seed)).run()


def test_crowded_site_may_be_drained_and_undrained_again_and_again() -> None:
    worlds = [World(crowded_plan("drained")(seed)).run() for seed in range(60)]
    assert sum(world.drained for world in worlds) > 200, "sites are really drained"


def test_drained_site_that_keeps_its_queue_breaks_p6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "_empty", lambda core, site, now: None)
    with pytest.raises(AssertionError, match="P6"):
        for seed in range(60):
            World(crowded_plan("drained")(seed)).run()
