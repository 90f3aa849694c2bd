"""Who is late is found once and kept for a while: what changes meanwhile is seen all the same."""

from __future__ import annotations

from typing import Any

import pytest

from windfall.core import events as e, replication

from .conftest import Bench, granted, shape

MEAN = 64_000  # so that what was found is kept for a second
TASKS = 40


def late(b: Bench, running: int, **more: Any) -> tuple[int, list[tuple[int, int]]]:
    """A bag of which so many tasks run and are late; with who runs them: pilot and attempt."""
    bag = b.submit(shape(TASKS, expect=MEAN), replicate="tail-safe", retries=1, **more)
    slow = []
    for n in range(running):
        pilot = b.pilot(host=f"slow{n}")
        ((attempt, _),) = b.take(pilot, 1)
        b.exchange(pilot, started=[attempt])
        slow.append((pilot, attempt))
    quick = b.pilot(host="quick")
    for _ in range(TASKS - running):
        ((attempt, _),) = b.take(quick, 1)
        b.report(quick, attempt, wall=MEAN)
    b.wait(2 * MEAN)
    return bag, slow


def asks(b: Bench, host: str) -> list[int]:
    """Tasks that an idle pilot of that host is given."""
    return [task for _, task in granted(b.exchange(b.pilot(host=host), want=1))]


def test_one_look_serves_many(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = replication._look
    monkeypatch.setattr(replication, "_look", lambda *each: looks.append(1) or real(*each))
    late(bench, 5)
    looks.clear()
    assert [asks(bench, f"idle{n}") for n in range(5)] == [[0], [1], [2], [3], [4]]
    assert len(looks) == 1
    bench.wait(MEAN)
    asks(bench, "another")
    assert len(looks) > 1, "averages move"


def test_what_has_ended_has_no_replica(bench: Bench) -> None:
    _, slow = late(bench, 3)
    assert asks(bench, "idle") == [0]
    bench.report(*slow[1], wall=MEAN)
    assert asks(bench, "idler") == [2]


def test_nor_has_anything_while_what_was_lost_waits_to_start(bench: Bench) -> None:
    _, slow = late(bench, 3)
    assert asks(bench, "idle") == [0]
    bench.exchange(slow[2][0], bye="stopped", reports=[e.Report(slow[2][1], "lost")])
    again = bench.pilot(host="again")
    ((attempt, task),) = bench.take(again, 1)
    assert task == 2
    assert asks(bench, "idler") == []
    bench.exchange(again, started=[attempt])
    assert asks(bench, "idlest") == [1]


def test_a_policy_holds_from_the_next_request_on(bench: Bench) -> None:
    bag, _ = late(bench, 3)
    assert asks(bench, "idle") == [0]
    bench.do(e.SetPolicy(0, bag, {"replicas-per-task": "1"}, "ann"))
    assert asks(bench, "idler") == []
    bench.do(e.SetPolicy(0, bag, {"replicas-per-task": "2"}, "ann"))
    assert asks(bench, "idlest") == [1]


def test_what_does_not_fit_hides_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "MOST_ALIKE", 2)
    bench.submit(shape(4, expect=MEAN, gpus=1), shape(TASKS, expect=MEAN), replicate="tail-safe")
    for n in range(4):
        pilot = bench.pilot(host=f"gpu{n}", gpus=1)
        ((attempt, task),) = bench.take(pilot, 1)
        bench.exchange(pilot, started=[attempt])
        assert task < 4
    bench.wait(MEAN // 4)  # so that those are late before
    last = bench.pilot(host="last")
    ((attempt, task),) = bench.take(last, 1)
    bench.exchange(last, started=[attempt])
    quick = bench.pilot(host="quick")
    for _ in range(TASKS - 1):
        ((done, _),) = bench.take(quick, 1)
        bench.report(quick, done, wall=MEAN)
    bench.wait(2 * MEAN)
    assert asks(bench, "idle") == [task]


def test_of_bags_that_have_ended_nothing_is_kept(bench: Bench) -> None:
    first, slow = late(bench, 1)
    assert asks(bench, "idle") == [0] and first in bench.core.kept_tails
    bench.report(*slow[0], wall=MEAN)
    second, _ = late(bench, 2)
    assert asks(bench, "idler") == [0] and list(bench.core.kept_tails) == [second]
