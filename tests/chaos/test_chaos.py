"""Random kill -9 of server, pilots, their helpers and tasks, while an independent client keeps the books."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.chaos.oracle import Oracle, accepted_in_journal
from tests.chaos.rig import Rig
from windfall import Client

TASKS = int(os.environ.get("WINDFALL_CHAOS_TASKS", "20000"))
KILLS = int(os.environ.get("WINDFALL_CHAOS_KILLS", "300"))
SEED = int(os.environ.get("WINDFALL_CHAOS_SEED", "1"))
KINDS = ("server", "pilot", "runner", "task")


@pytest.mark.slow
def test_every_task_has_exactly_one_result_whatever_is_killed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, pilots=2, seed=SEED)
    oracle = Oracle(rig.profile, TASKS)
    try:
        oracle.start()
        harass(rig, oracle)
        calm(rig, oracle)
        rig.stop()
        assert rig.leftovers() == []
    finally:
        rig.sweep_up()
    judge(rig, oracle)


def calm(rig: Rig, oracle: Oracle) -> None:
    """Nobody is killed any more: everything must come to its end.

    A task that was present at three deaths is quarantined, rightly; its user looks at it and asks for it again.
    """
    patience = time.monotonic() + 240
    while time.monotonic() < patience and oracle.failure is None:
        rig.mend()
        if oracle.done.wait(1):
            with Client(rig.profile) as client:
                counts = client.bag(oracle.bag)["counts"]
                if counts["succeeded"] == TASKS:
                    return
                assert counts["failed"] == 0, counts
                client.retry(oracle.bag)
    raise AssertionError(progress(rig, oracle))


def harass(rig: Rig, oracle: Oracle) -> None:
    """Kill at random moments until the quota is met; there is work all along."""
    done = 0
    while done < KILLS:
        assert not oracle.done.is_set(), f"the work was over after {done} kills"
        kind = rig.random.choices(KINDS, (1, 2, 3, 6))[0]
        done += rig.kill(kind)
        rig.mend()
        time.sleep(rig.random.uniform(0.0, 0.2))


def progress(rig: Rig, oracle: Oracle) -> str:
    with Client(rig.profile) as client:
        counts, why = client.bag(oracle.bag)["counts"], client.explain(oracle.bag)
        return f"kills {rig.kills}, seed {SEED}: {counts}, explain: {why}"


def judge(rig: Rig, oracle: Oracle) -> None:
    print(f"kills: {rig.kills}")
    assert oracle.contradictions == []
    assert oracle.acknowledged == TASKS
    counts = accepted_in_journal(rig.home, oracle.bag)
    assert sorted(counts) == list(range(TASKS)), "P2: an acknowledged task has no result"
    assert set(counts.values()) == {1}, "P1: a task has more than one accepted result"
    assert set(oracle.seen) <= set(counts), "P2: a result that was shown is gone"
