"""What is late, whose turn it is, and who is woken: what was found is kept, and must not hide what has changed."""

from __future__ import annotations

import pytest

from tests.core.conftest import Bench, answers, granted, shape
from windfall.core.decide.replicas import candidates
from windfall.core.messages import events as e

MEAN = 64_000  # what was found is kept for a second
LATE = 3 * MEAN // 2
TASKS = 40
HOUR = 3_600_000


@pytest.fixture
def b() -> Bench:
    return Bench(lease=HOUR, silence=10 * HOUR, park=HOUR, idle=10 * HOUR)


def tail(b: Bench, starts: list[int], **more: object) -> list[tuple[int, int]]:
    """The last tasks of a bag, n started at starts[n] from now on: pilot and attempt."""
    b.submit(shape(TASKS, expect=MEAN, retries=9), replicate="tail-safe", **more)
    pilots = [b.pilot(host=f"slow{n}") for n in range(len(starts))]
    held = [b.take(pilot, 1)[0][0] for pilot in pilots]
    quick = b.pilot(host="quick")
    for _ in range(TASKS - len(starts)):
        b.report(quick, b.take(quick, 1)[0][0], wall=MEAN)
    b.exchange(quick, bye="idle")
    begin = b.now
    for at, pilot, attempt in sorted(zip(starts, pilots, held, strict=True)):
        b.wait(begin + at - b.now)
        b.exchange(pilot, started=[attempt])
    return list(zip(pilots, held, strict=True))


def asks(b: Bench, host: str, cores: int = 1) -> list[int]:
    return [task for _, task in granted(b.exchange(b.pilot(host=host, cores=cores), want=1))]


def replica(b: Bench, host: str, task: int) -> tuple[int, int]:
    """It has one there, which has started."""
    pilot = b.pilot(host=host)
    ((attempt, got),) = b.take(pilot, 1)
    assert got == task
    b.exchange(pilot, started=[attempt])
    return pilot, attempt


def test_no_third_attempt_while_a_late_task_has_one(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewest attempts first, also of those that were too many to be listed."""
    monkeypatch.setattr(candidates, "MOST_PER_CLASS", 4)
    tail(b, [0] * 6)
    b.wait(LATE)
    assert [asks(b, f"idle{n}") for n in range(6)] == [[0], [1], [2], [3], [4], [5]]


def test_a_replica_that_failed_makes_way_for_another(b: Bench) -> None:
    """Who waits is asked (`_steps_back`), and is not left to wait for ever."""
    tail(b, [0])
    b.wait(LATE)
    pilot, attempt = replica(b, "idle", 0)
    waits = b.pilot(host="slow0")  # runs the original: can have none
    assert b.exchange(waits, want=1, wait=HOUR) is None
    other = b.asks(b.pilot(host="another"), want=1, wait=HOUR)
    b.report(pilot, attempt, "failed", wall=10)
    b.step(other)
    seen = b.effects + b.wait(MEAN)
    assert [task for a in seen if getattr(a, "key", 0) == other.key for _, task in granted(a)] == [0]


def test_and_does_so_at_once(b: Bench) -> None:
    tail(b, [0], policy={"replicas-per-task": "2"})
    b.wait(LATE)
    pilot, attempt = replica(b, "idle", 0)
    b.report(pilot, attempt, "failed", wall=10)
    assert asks(b, "another") == [0]


def test_and_those_who_wait_are_fed(b: Bench) -> None:
    tail(b, [0], policy={"replicas-per-task": "2"})
    b.wait(LATE)
    pilot, attempt = replica(b, "idle", 0)
    waits = b.pilot(host="another")
    assert b.exchange(waits, want=1, wait=HOUR) is None
    failed = b.asks(pilot, reports=[e.Report(attempt, "failed", "", wall=10)], want=1, wait=HOUR)
    seen = b.step(failed) + b.wait(MEAN)
    assert [task for a in answers(seen, waits) for _, task in granted(a)] == [0]


def test_who_waits_is_woken_though_an_earlier_timer_was_for_nothing(b: Bench) -> None:
    (first, one), _ = tail(b, [0, 10_000])
    begin = b.now - 10_000
    waits = b.pilot(host="idle")
    assert b.exchange(waits, want=1, wait=HOUR) is None
    b.wait(begin + LATE - 500 - b.now)
    b.report(first, one, wall=MEAN)
    assert asks(b, "big", cores=2) == []  # of another class of pilots: it looks
    seen = b.wait(60_000)
    assert [task for a in answers(seen, waits) for _, task in granted(a)] == [1]


def test_what_is_late_now_goes_before_what_has_more_attempts(b: Bench) -> None:
    slow = tail(b, [0, 40_000, 40_000, 30_000])
    begin, h = b.now - 40_000, b.core.state.hosts
    b.wait(begin + LATE - b.now)
    replica(b, "idle", 0)
    for pilot, _ in slow[1:3]:
        row = b.core.state.pilots[pilot].row
        h.attempts[row], h.losses[row] = 9, 5
    b.wait(begin + 30_000 + LATE - 500 - b.now)
    assert b.exchange(slow[3][0], want=1, wait=HOUR) is None  # it is full, but looks
    b.wait(600)
    assert asks(b, "another") == [3]


def test_an_entry_that_does_not_stand_hides_nothing(b: Bench) -> None:
    slow = tail(b, [0, 0, 0])
    b.wait(LATE)
    replica(b, "idle0", 0)
    b.wait(2_000)
    replica(b, "idle1", 1)
    began = b.now
    b.report(*slow[2], wall=MEAN)
    b.wait(began + LATE - 500 - b.now)
    b.exchange(slow[0][0], want=1, wait=HOUR)  # it is full, but looks
    b.exchange(slow[1][0], bye="stopped", reports=[e.Report(slow[1][1], "lost")])
    assert b.core.state.bags[1].tasks.live[1] == 1
    b.wait(600)
    assert asks(b, "another") == [1], "one attempt, and late"


def test_who_waits_is_woken_when_the_replica_is_late_itself(b: Bench) -> None:
    slow = tail(b, [0])
    b.wait(LATE)
    waits = b.pilot(host="slow0")
    assert b.exchange(waits, want=1, wait=HOUR) is None
    replica(b, "idle", 0)
    b.wait(5_000)
    b.exchange(slow[0][0], bye="stopped", reports=[e.Report(slow[0][1], "lost")])
    seen = b.wait(2 * LATE)
    assert [task for a in answers(seen, waits) for _, task in granted(a)] == [0]


def test_of_thousands_that_are_late_soon_none_is_forgotten(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubted ones stand in the list of those that were late, and must not make it look complete."""
    monkeypatch.setattr(candidates, "MOST_PER_CLASS", 2)
    slow = tail(b, [0, 0, 0, 0, 40_000, 40_000], policy={"replicas-per-task": "2"})
    h = b.core.state.hosts
    for pilot, _ in slow[4:]:
        row = b.core.state.pilots[pilot].row
        h.attempts[row], h.losses[row] = 9, 5
    b.wait(LATE - 40_000)
    assert sorted(asks(b, f"idle{n}") for n in range(6)) == [[0], [1], [2], [3], [4], [5]]


def test_what_waited_for_a_timer_that_averages_moved(b: Bench) -> None:
    """The mean has grown a little since a timer was set: it fires for nothing, and must be set again."""
    b.submit(shape(TASKS, expect=MEAN, retries=9), replicate="tail-safe")
    pilots = [b.pilot(host=f"slow{n}") for n in range(3)]
    held = [b.take(pilot, 1)[0][0] for pilot in pilots]
    quick = b.pilot(host="quick")
    for _ in range(TASKS - 3):
        b.report(quick, b.take(quick, 1)[0][0], wall=MEAN)
    b.exchange(quick, bye="idle")
    for pilot, attempt in zip(pilots, held, strict=True):
        b.exchange(pilot, started=[attempt])
    begin, waits = b.now, b.pilot(host="idle")
    assert b.exchange(waits, want=1, wait=HOUR) is None
    b.wait(LATE - 300)
    b.report(pilots[0], held[0], wall=LATE - 300)
    assert asks(b, "big", cores=2) == []
    seen = b.wait(2 * MEAN)
    assert [task for a in answers(seen, waits) for _, task in granted(a)] == [1], b.now - begin


def test_and_nobody_asks_in_vain_for_ever(b: Bench) -> None:
    """Those who found nothing are turned away until something has changed."""
    tail(b, [0], policy={"replicas-per-task": "2"})
    b.wait(LATE)
    pilot, attempt = replica(b, "idle", 0)
    b.report(pilot, attempt, "failed", wall=10)
    got = []
    for n in range(30):  # half an hour
        got += asks(b, f"another{n}")
        b.wait(MEAN)
    assert got[:1] == [0]


def test_nor_is_asking_again_in_vain(b: Bench) -> None:
    """Pilots that are like those who found nothing are turned away until something has changed."""
    slow = tail(b, [0, 10_000])
    begin, got = b.now - 10_000, []
    assert b.exchange(b.pilot(host="idle"), want=1, wait=20_000) is None
    b.wait(begin + LATE - 500 - b.now)
    b.report(*slow[0], wall=MEAN)
    assert asks(b, "big", cores=2) == asks(b, "usual") == []
    for n in range(30):
        b.wait(20_000)
        got += asks(b, f"idle{n}")
    assert got[:1] == [1]


def test_the_one_that_runs_longest_stays_first_when_its_replica_is_late_too(b: Bench) -> None:
    slow = tail(b, [0, 5_000])
    begin = b.now - 5_000
    b.wait(begin + LATE - b.now)
    replica(b, "idle0", 0)
    began = b.now
    b.wait(begin + 5_000 + LATE - b.now + 1)
    replica(b, "idle1", 1)
    b.wait(began + LATE - 500 - b.now)
    b.exchange(slow[0][0], want=1, wait=HOUR)  # it is full, but looks
    b.wait(600)
    assert asks(b, "third") == [0]


def test_an_attempt_that_comes_back_beside_its_replica_hides_nothing() -> None:
    b = Bench(lease=MEAN, silence=10 * HOUR, park=HOUR, idle=10 * HOUR)
    b.submit(shape(TASKS, expect=MEAN, retries=9, limit=20_000), replicate="tail-safe")
    silent, quick = b.pilot(host="silent"), b.pilot(host="quick")
    ((lost, _),) = b.take(silent, 1)
    for _ in range(TASKS - 1):
        b.report(quick, b.take(quick, 1)[0][0], wall=MEAN)
    b.exchange(quick, bye="idle")
    b.exchange(silent, started=[lost])
    begin, live = b.now, b.core.state.bags[1].tasks.live
    b.wait(LATE)
    pilot, _ = replica(b, "idle", 0)
    b.wait(54_000)
    b.exchange(pilot)
    b.wait(begin + 2 * LATE - 500 - b.now)
    assert live[0] == 1, "it was given up"
    assert b.exchange(b.pilot(host="idle"), want=1, wait=HOUR) is None  # it looks, and runs it already
    b.wait(550)
    b.exchange(silent, started=[lost])
    assert live[0] == 2
    assert asks(b, "third") == [0]


def test_what_fits_nobody_hides_nothing_for_ever(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More are late than are listed, and one of those that are can be had by none of those who wait."""
    monkeypatch.setattr(candidates, "MOST_PER_CLASS", 4)
    b.submit(shape(1, name="big", cores=4, expect=MEAN, retries=9), shape(TASKS, expect=MEAN, retries=9),
             replicate="tail-safe", policy={"replicas-share": "100%"})
    pilots = [b.pilot(cores=4, host="wide"), *[b.pilot(host=f"slow{n}") for n in range(8)]]
    held = [b.take(pilot, 1)[0][0] for pilot in pilots]
    quick = b.pilot(host="quick")
    for _ in range(TASKS - 8):
        b.report(quick, b.take(quick, 1)[0][0], wall=MEAN)
    b.exchange(quick, bye="idle")
    for pilot, attempt in zip(pilots, held, strict=True):
        b.exchange(pilot, started=[attempt])
    for n in range(8):
        assert b.exchange(b.pilot(host=f"idle{n}"), want=1, wait=HOUR) is None
    b.wait(LATE + MEAN)
    assert list(b.core.state.bags[1].tasks.live)[:9] == [1] + [2] * 8


def test_nor_in_the_step_in_which_what_came_back_goes_to_another(b: Bench) -> None:
    """Somebody has looked; then a task fails, and is granted again, and has not started."""
    slow = tail(b, [0, 0])
    b.wait(LATE)
    one, two = b.pilot(host="one"), b.pilot(host="two")
    seen = b.step(
        b.asks(slow[0][0], want=1, wait=HOUR),
        b.asks(slow[1][0], reports=[e.Report(slow[1][1], "failed", "", wall=10)]),
        b.asks(one, want=1), b.asks(two, want=1),
    )
    assert [[task for a in answers(seen, pilot) for _, task in granted(a)] for pilot in (one, two)] == [[1], []]
