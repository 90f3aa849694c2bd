"""Random kill -9 of server, pilots, their helpers and tasks, while an independent client keeps the books.

`scripts/soak chaos` plays it again and again, with other seeds.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.flushes import Flushes, compiler_here
from tests.chaos.oracle import Oracle, accepted_in_journal, count_accepted
from tests.chaos.rig import Rig
from windfall import Client
from windfall.core.messages import facts as f

TASKS = int(os.environ.get("WINDFALL_CHAOS_TASKS", "20000"))
KILLS = int(os.environ.get("WINDFALL_CHAOS_KILLS", "300"))
SEED = int(os.environ.get("WINDFALL_CHAOS_SEED", "1"))
KINDS = ("server", "pilot", "runner", "task")


@pytest.mark.slow
def test_every_task_has_exactly_one_result_whatever_is_killed(tmp_path: Path) -> None:
    flushes = Flushes(tmp_path) if compiler_here() else None  # without one, the test below says so
    rig = Rig(tmp_path, pilots=2, seed=SEED, server_env=flushes.environment if flushes else None)
    oracle = Oracle(rig.profile, TASKS, flushes=flushes)
    try:
        oracle.start()
        harass(rig, oracle)
        calm(rig, oracle)
        rig.stop()
        assert rig.leftovers() == []
    finally:
        rig.sweep_up()
    judge(rig, oracle)


# --- the judge can say no -------------------------------------------------------------------------------------------

UNFLUSHED = """
from windfall.store import journal
journal._SETTINGS = tuple(s.replace("synchronous = FULL", "synchronous = OFF") for s in journal._SETTINGS)
from windfall.__main__ import main
raise SystemExit(main())
"""


@pytest.mark.parametrize("flushing", [True, False])
def test_an_acknowledgement_without_a_flush_is_seen(tmp_path: Path, flushing: bool) -> None:
    flushes = Flushes(tmp_path)
    how = ("-m", "windfall") if flushing else ("-c", UNFLUSHED)
    rig = Rig(tmp_path, pilots=0, seed=SEED, server_env=flushes.environment, serve=how)
    oracle = Oracle(rig.profile, 500, flushes=flushes)
    try:
        oracle.submit()
        rig.stop()
    finally:
        rig.sweep_up()
    assert oracle.acknowledgements == 7  # the bag, five appends, its close
    assert len(oracle.contradictions) == (0 if flushing else 7), oracle.contradictions


def test_a_second_acceptance_is_seen() -> None:
    success = f.End(7, 1, 3, 0, 0, "", 4, False, 0, 0, 0, 0, 0, 0, 0, 0)
    late = f.End(9, 1, 3, 0, 0, "", 4, False, 0, 0, 0, 0, 0, 0, 0, 0, decides=False)
    again = f.End(9, 1, 3, 1, 0, "", 4, False, 0, 0, 0, 0, 0, 0, 0, 0)
    plain = f.Finished(0, 1, 1, [8], [3], [0], [0], [0], [0])
    retried = f.TasksRetried(0, 1, [(3, 1)])

    def counted(*facts: f.Fact) -> dict[tuple[int, int], int]:
        return dict(count_accepted(facts, 1, f))

    assert counted(f.Ended(0, 1, [success, late])) == {(3, 0): 1}
    assert counted(f.Ended(0, 1, [success]), f.Ended(0, 1, [success])) == {(3, 0): 2}
    assert counted(plain, plain) == {(3, 0): 2} == counted(f.Ended(0, 1, [success]), plain)
    assert counted(plain, retried, plain) == {(3, 0): 1, (3, 1): 1} == counted(plain, f.Ended(0, 1, [again]))


# --- the parts ------------------------------------------------------------------------------------------------------


def calm(rig: Rig, oracle: Oracle) -> None:
    """Stop killing, and wait until all tasks have succeeded.

    A task that ran at three deaths is quarantined, as it should be; its user retries it.
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
    """Kill processes at random moments until the quota is met, while there is work."""
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
    assert oracle.acknowledgements == TASKS // oracle.each + 2  # each seen to be flushed
    accepted = accepted_in_journal(rig.home, oracle.bag)
    assert set(accepted.values()) == {1}, "P1: a generation of a task has more than one accepted result"
    tasks = Counter(task for task, _ in accepted)
    assert sorted(tasks) == list(range(TASKS)), "P2: an acknowledged task has no result"
    assert set(tasks.values()) == {1}, "P1: a task that had succeeded was run again"
    assert set(oracle.seen) <= set(tasks), "P2: a result that was shown is gone"
