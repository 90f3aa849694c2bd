"""Who is late is found once and kept for a while: what changes meanwhile is seen all the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import Bench, granted, shape
from windfall.core.decide.replicas import candidates
from windfall.core.messages import events as e

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
    real = candidates._scan_attempts
    monkeypatch.setattr(candidates, "_scan_attempts", lambda *each: looks.append(1) or real(*each))
    _, slow = late(bench, 5)
    looks.clear()
    assert [asks(bench, f"idle{n}") for n in range(5)] == [[0], [1], [2], [3], [4]]
    assert len(looks) == 1
    bench.wait(MEAN)
    asks(bench, "another")
    assert len(looks) == 1, "nothing has ended since"
    bench.report(*slow[0], wall=MEAN)
    bench.wait(MEAN)
    asks(bench, "another")
    assert len(looks) > 1, "averages move"


def one_after_the_other(b: Bench, apart: int, running: int) -> dict[int, tuple[int, int]]:
    """Tasks that start so many ms apart, the last of a bag: when each started → who runs it, pilot and attempt."""
    b.submit(shape(10 * running, expect=MEAN), replicate="tail-safe", policy={"replicas-per-task": "2"})
    quick, began = b.pilot(host="quick"), {}
    for _ in range(9 * running):
        b.report(quick, b.take(quick, 1)[0][0], wall=MEAN)
    slow = [b.pilot(host=f"slow{n}") for n in range(running)]
    held = [b.take(pilot, 1)[0][0] for pilot in slow]
    for pilot, attempt in zip(slow, held, strict=True):
        b.exchange(pilot, started=[attempt])
        began[b.now] = pilot, attempt
        b.wait(apart)
    return began


def replicas(b: Bench, ran: set[int]) -> list[tuple[int, int]]:
    """(task, when it was granted) of what others have than those."""
    attempts = b.core.state.attempts
    return sorted((attempts.task[row] & 0xFFFFFFFF, attempts.granted[row]) for row in attempts.of_bag(1).tolist()
                  if attempts.pilot[row] not in ran)


@pytest.mark.parametrize("most", [256, 3])
def test_those_that_are_late_next_are_foreseen(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its replica when its time has come, without another look; one that has ended meanwhile has none."""
    monkeypatch.setattr(candidates, "MOST_LATE", most)
    bench = Bench(lease=3_600_000, silence=36_000_000)
    looks, real = [], candidates._scan_attempts
    began = one_after_the_other(bench, 100, 8)
    ran = {pilot for pilot, _ in began.values()}
    bench.wait(min(began) + 3 * MEAN // 2 - bench.now - 10)
    for n in range(8):
        assert bench.exchange(bench.pilot(host=f"idle{n}"), want=1, wait=20_000) is None
    monkeypatch.setattr(candidates, "_scan_attempts", lambda *each: looks.append(1) or real(*each))
    ended = [*began][5]
    bench.report(*began.pop(ended), wall=MEAN)
    bench.wait(900)
    tasks = [n for n in range(72, 80) if n != 77]
    assert replicas(bench, ran) == [(n, at + 3 * MEAN // 2) for n, at in zip(tasks, began, strict=True)]
    assert len(looks) <= (2 if most > 8 else 8)


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
    monkeypatch.setattr(candidates, "MOST_PER_CLASS", 2)
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
    assert asks(bench, "idle") == [0] and first in bench.core.turn.replicas.kept_scans
    bench.report(*slow[0], wall=MEAN)
    second, _ = late(bench, 2)
    assert asks(bench, "idler") == [0] and list(bench.core.turn.replicas.kept_scans) == [second]
