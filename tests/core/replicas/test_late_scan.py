"""The scan for late tasks: its order, whom it wakes, and that a kept scan hides nothing that has changed since."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, answers, granted, shape
from windfall.core.decide.replicas import scan
from windfall.core.messages import events as e
from windfall.core.messages.lifecycle import READY

MEAN = 64_000  # a scan is kept for a second
LATE = 3 * MEAN // 2
TASKS = 40


@pytest.fixture
def b() -> Bench:
    return Bench(lease=HOUR, silence=10 * HOUR, park=HOUR, idle=10 * HOUR)


def tail(b: Bench, starts: list[int], **more: object) -> list[tuple[int, int]]:
    """Run all but the last tasks of a bag, and start task n of these at starts[n]; return (pilot, attempt) of each."""
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
    """Start a replica of the task on that host; return its pilot and attempt."""
    pilot = b.pilot(host=host)
    ((attempt, got),) = b.take(pilot, 1)
    assert got == task
    b.exchange(pilot, started=[attempt])
    return pilot, attempt


def test_late_task_gets_no_third_attempt_while_another_has_one(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks with the fewest attempts go first, also those that were too many for the list."""
    monkeypatch.setattr(scan, "MOST_PER_CLASS", 4)
    tail(b, [0] * 6)
    b.wait(LATE)
    assert [asks(b, f"idle{n}") for n in range(6)] == [[0], [1], [2], [3], [4], [5]]


def test_task_whose_replica_failed_is_replicated_again(b: Bench) -> None:
    """A pilot that waits is asked, and does not wait for ever."""
    tail(b, [0])
    b.wait(LATE)
    pilot, attempt = replica(b, "idle", 0)
    waits = b.pilot(host="slow0")  # this host runs the original
    assert b.exchange(waits, want=1, wait=HOUR) is None
    other = b.asks(b.pilot(host="another"), want=1, wait=HOUR)
    b.report(pilot, attempt, "failed", wall=10)
    b.step(other)
    seen = b.effects + b.wait(MEAN)
    assert [task for a in seen if getattr(a, "key", 0) == other.key for _, task in granted(a)] == [0]


def test_task_whose_replica_failed_is_granted_to_the_next_host_at_once(b: Bench) -> None:
    tail(b, [0], policy={"replicas-per-task": "2"})
    b.wait(LATE)
    pilot, attempt = replica(b, "idle", 0)
    b.report(pilot, attempt, "failed", wall=10)
    assert asks(b, "another") == [0]


def test_waiting_pilot_is_granted_the_task_whose_replica_failed(b: Bench) -> None:
    tail(b, [0], policy={"replicas-per-task": "2"})
    b.wait(LATE)
    pilot, attempt = replica(b, "idle", 0)
    waits = b.pilot(host="another")
    assert b.exchange(waits, want=1, wait=HOUR) is None
    failed = b.asks(pilot, reports=[e.Report(attempt, "failed", "", wall=10)], want=1, wait=HOUR)
    seen = b.step(failed) + b.wait(MEAN)
    assert [task for a in answers(seen, waits) for _, task in granted(a)] == [0]


def test_waiting_pilot_is_woken_although_an_earlier_timer_found_nothing(b: Bench) -> None:
    (first, one), _ = tail(b, [0, 10_000])
    begin = b.now - 10_000
    waits = b.pilot(host="idle")
    assert b.exchange(waits, want=1, wait=HOUR) is None
    b.wait(begin + LATE - 500 - b.now)
    b.report(first, one, wall=MEAN)
    assert asks(b, "big", cores=2) == []  # a pilot of another class makes the core scan
    seen = b.wait(60_000)
    assert [task for a in answers(seen, waits) for _, task in granted(a)] == [1]


def test_late_task_with_one_attempt_goes_before_one_with_two(b: Bench) -> None:
    slow = tail(b, [0, 40_000, 40_000, 30_000])
    begin, h = b.now - 40_000, b.core.state.hosts
    b.wait(begin + LATE - b.now)
    replica(b, "idle", 0)
    for pilot, _ in slow[1:3]:
        row = b.core.state.pilots[pilot].row
        h.attempts[row], h.losses[row] = 9, 5
    b.wait(begin + 30_000 + LATE - 500 - b.now)
    assert b.exchange(slow[3][0], want=1, wait=HOUR) is None  # a full pilot makes the core scan
    b.wait(600)
    assert asks(b, "another") == [3]


def test_outdated_entry_of_a_scan_hides_no_late_task(b: Bench) -> None:
    slow = tail(b, [0, 0, 0])
    b.wait(LATE)
    replica(b, "idle0", 0)
    b.wait(2_000)
    replica(b, "idle1", 1)
    began = b.now
    b.report(*slow[2], wall=MEAN)
    b.wait(began + LATE - 500 - b.now)
    b.exchange(slow[0][0], want=1, wait=HOUR)  # a full pilot makes the core scan
    b.exchange(slow[1][0], bye="stopped", reports=[e.Report(slow[1][1], "lost")])
    assert b.core.state.bags[1].tasks.live[1] == 1
    b.wait(600)
    assert asks(b, "another") == [1], "one attempt, and late"


def test_waiting_pilot_is_woken_when_the_replica_is_late_too(b: Bench) -> None:
    slow = tail(b, [0])
    b.wait(LATE)
    waits = b.pilot(host="slow0")
    assert b.exchange(waits, want=1, wait=HOUR) is None
    replica(b, "idle", 0)
    b.wait(5_000)
    b.exchange(slow[0][0], bye="stopped", reports=[e.Report(slow[0][1], "lost")])
    seen = b.wait(2 * LATE)
    assert [task for a in answers(seen, waits) for _, task in granted(a)] == [0]


def test_tasks_of_doubted_hosts_do_not_hide_late_ones(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of unreliable hosts stand in the list of late tasks, and must not make it look complete."""
    monkeypatch.setattr(scan, "MOST_PER_CLASS", 2)
    slow = tail(b, [0, 0, 0, 0, 40_000, 40_000], policy={"replicas-per-task": "2"})
    h = b.core.state.hosts
    for pilot, _ in slow[4:]:
        row = b.core.state.pilots[pilot].row
        h.attempts[row], h.losses[row] = 9, 5
    b.wait(LATE - 40_000)
    assert sorted(asks(b, f"idle{n}") for n in range(6)) == [[0], [1], [2], [3], [4], [5]]


def test_timer_is_set_again_when_the_mean_has_grown(b: Bench) -> None:
    """The mean has grown since the timer was set, so the timer finds nothing and must be set again."""
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


def test_task_whose_replica_failed_is_granted_to_the_first_pilot_that_asks(b: Bench) -> None:
    """The core turns away pilots like one refused before, until something has changed."""
    tail(b, [0], policy={"replicas-per-task": "2"})
    b.wait(LATE)
    pilot, attempt = replica(b, "idle", 0)
    b.report(pilot, attempt, "failed", wall=10)
    got = []
    for n in range(30):  # half an hour
        got += asks(b, f"another{n}")
        b.wait(MEAN)
    assert got[:1] == [0]


def test_task_that_becomes_late_is_granted_to_a_pilot_like_one_refused_before(b: Bench) -> None:
    """The core turns away pilots like one refused before, until something has changed."""
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


def test_task_that_runs_longest_goes_first_when_its_replica_is_late_too(b: Bench) -> None:
    slow = tail(b, [0, 5_000])
    begin = b.now - 5_000
    b.wait(begin + LATE - b.now)
    replica(b, "idle0", 0)
    began = b.now
    b.wait(begin + 5_000 + LATE - b.now + 1)
    replica(b, "idle1", 1)
    b.wait(began + LATE - 500 - b.now)
    b.exchange(slow[0][0], want=1, wait=HOUR)  # a full pilot makes the core scan
    b.wait(600)
    assert asks(b, "third") == [0]


def test_attempt_that_comes_back_beside_its_late_replica_hides_no_late_task() -> None:
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
    assert live[0] == 1, "the first attempt was given up"
    assert b.exchange(b.pilot(host="idle"), want=1, wait=HOUR) is None  # the core scans; this host runs it
    b.wait(550)
    b.exchange(silent, started=[lost])
    assert live[0] == 2
    assert asks(b, "third") == [0]


def test_late_task_that_fits_no_pilot_hides_no_other(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """More tasks are late than the scan lists, and no waiting pilot can take one of those listed."""
    monkeypatch.setattr(scan, "MOST_PER_CLASS", 4)
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


def test_failed_task_granted_again_in_the_same_step_forbids_replicas(b: Bench) -> None:
    """In one step a pilot asks, a task fails, and another pilot is granted that task and has not started it."""
    slow = tail(b, [0, 0])
    b.wait(LATE)
    one, two = b.pilot(host="one"), b.pilot(host="two")
    seen = b.step(
        b.asks(slow[0][0], want=1, wait=HOUR),
        b.asks(slow[1][0], reports=[e.Report(slow[1][1], "failed", "", wall=10)]),
        b.asks(one, want=1), b.asks(two, want=1),
    )
    assert [[task for a in answers(seen, pilot) for _, task in granted(a)] for pilot in (one, two)] == [[1], []]


def test_tasks_become_late_when_the_mean_falls() -> None:
    b = Bench(**PATIENT)
    b.submit(shape(40, retries=9), replicate="tail-safe")
    pilots = [b.pilot(host=f"t{n}") for n in range(20)]
    held = [b.take(pilot, 1)[0][0] for pilot in pilots]
    quick = b.pilot(host="quick")
    for _ in range(20):
        b.report(quick, b.take(quick, 1)[0][0], wall=600_000)
    b.exchange(quick, bye="idle")
    for pilot, attempt in zip(pilots, held, strict=True):
        b.exchange(pilot, started=[attempt])
    idle = b.pilot(host="idle")
    b.wait(10_000)
    assert b.exchange(idle, want=1, wait=20_000) is None
    for pilot, attempt in list(zip(pilots, held, strict=True))[:18]:
        b.exchange(pilot, reports=[e.Report(attempt, "succeeded", "", wall=10_000)])
    given: list[object] = []
    for _ in range(50):  # not only after fifteen minutes
        given += [each for answer in answers(b.wait(1_000), idle) for each in granted(answer)]
        if (
            b.core.state.pilots[idle].waiting_request is None
            and (answer := b.exchange(idle, want=1, wait=20_000)) is not None
        ):
            given += granted(answer)
        if given:
            return
    pytest.fail("nobody was seen to be late")


def test_task_is_late_sooner_when_its_host_turns_bad() -> None:
    """Tasks of another bag fail on the host; a waiting pilot then gets the replica sooner."""
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(40, expect=MEAN, retries=9), replicate="tail-safe")
    bad = b.pilot(host="bad", cores=3)
    ((attempt, task),) = b.take(bad, 1)
    b.finish("quick", 39, MEAN)
    b.exchange(bad, started=[attempt])
    idle, began = b.pilot(host="idle"), b.now
    assert b.exchange(idle, want=1, wait=10 * HOUR) is None
    other = b.submit(shape(6, cores=2, retries=0))
    while b.core.state.bags[other].counts[READY]:
        ((held, _),) = b.take(bad, 1)
        b.exchange(bad, started=[held])
        b.report(bad, held, "failed", "exit", wall=20_000)
    seen = b.wait(began + LATE // 2 - b.now)
    assert [each for answer in answers(seen, idle) for _, each in granted(answer)] == [task]


def test_fast_pilots_of_the_host_that_runs_a_late_task_hide_no_other_pilot() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(40, expect=MEAN, retries=9), replicate="tail-safe")
    slow, _, task = b.start("slow")
    b.finish("quick", 39, MEAN)
    b.core.state.hosts.speed[b.core.state.pilots[slow].row] = 5.0
    for _ in range(70):
        assert b.exchange(b.pilot(host="slow"), want=1, wait=10 * HOUR) is None
    other = b.pilot(host="other")
    assert b.exchange(other, want=1, wait=10 * HOUR) is None
    seen = b.wait(LATE)
    assert [each for answer in answers(seen, other) for _, each in granted(answer)] == [task]


# --- scans kept from one request to the next ------------------------------------------------------------------------


def late(b: Bench, running: int, **more: Any) -> tuple[int, list[tuple[int, int]]]:
    """Submit a bag of which so many tasks run and are late; return the bag and (pilot, attempt) of each."""
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


def one_after_the_other(b: Bench, apart: int, running: int) -> dict[int, tuple[int, int]]:
    """Start the last tasks of a bag so many ms apart; return when each started → (pilot, attempt)."""
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
    """Return (task, when it was granted) of the attempts of all other pilots."""
    attempts = b.core.state.attempts
    return sorted((attempts.task[row] & 0xFFFFFFFF, attempts.granted[row]) for row in attempts.of_bag(1).tolist()
                  if attempts.pilot[row] not in ran)


def test_scan_serves_many_requests(bench: Bench) -> None:
    bag, slow = late(bench, 5)
    assert asks(bench, "idle0") == [0]
    scans = bench.core.turn.replicas.kept_scans
    scan = scans[bag]
    for n in range(1, 5):
        assert asks(bench, f"idle{n}") == [n] and scans[bag] is scan
    bench.wait(MEAN)
    asks(bench, "another")
    assert scans[bag] is scan, "nothing has ended since"
    bench.report(*slow[0], wall=MEAN)
    bench.wait(MEAN)
    asks(bench, "another")
    assert scans[bag] is not scan, "averages move"


@pytest.mark.parametrize("most", [256, 3])
def test_scan_foresees_the_tasks_that_become_late_next(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has its replica when it becomes late, without another scan; a task that has ended meanwhile has
    none."""
    monkeypatch.setattr(scan, "MOST_LATE", most)
    bench = Bench(lease=3_600_000, silence=36_000_000)
    looks, real = [], scan.scan_attempts
    began = one_after_the_other(bench, 100, 8)
    ran = {pilot for pilot, _ in began.values()}
    bench.wait(min(began) + 3 * MEAN // 2 - bench.now - 10)
    for n in range(8):
        assert bench.exchange(bench.pilot(host=f"idle{n}"), want=1, wait=20_000) is None
    monkeypatch.setattr(scan, "scan_attempts", lambda *each: looks.append(1) or real(*each))
    ended = [*began][5]
    bench.report(*began.pop(ended), wall=MEAN)
    bench.wait(900)
    tasks = [n for n in range(72, 80) if n != 77]
    assert replicas(bench, ran) == [(n, at + 3 * MEAN // 2) for n, at in zip(tasks, began, strict=True)]
    assert len(looks) <= (2 if most > 8 else 8)


def test_task_that_ended_since_the_scan_has_no_replica(bench: Bench) -> None:
    _, slow = late(bench, 3)
    assert asks(bench, "idle") == [0]
    bench.report(*slow[1], wall=MEAN)
    assert asks(bench, "idler") == [2]


def test_tail_safe_makes_no_replica_while_a_lost_task_has_not_started_again(bench: Bench) -> None:
    _, slow = late(bench, 3)
    assert asks(bench, "idle") == [0]
    bench.exchange(slow[2][0], bye="stopped", reports=[e.Report(slow[2][1], "lost")])
    again = bench.pilot(host="again")
    ((attempt, task),) = bench.take(again, 1)
    assert task == 2
    assert asks(bench, "idler") == []
    bench.exchange(again, started=[attempt])
    assert asks(bench, "idlest") == [1]


def test_changed_policy_holds_from_the_next_request(bench: Bench) -> None:
    bag, _ = late(bench, 3)
    assert asks(bench, "idle") == [0]
    bench.do(e.SetPolicy(0, bag, {"replicas-per-task": "1"}, "ann"))
    assert asks(bench, "idler") == []
    bench.do(e.SetPolicy(0, bag, {"replicas-per-task": "2"}, "ann"))
    assert asks(bench, "idlest") == [1]


def test_late_tasks_that_do_not_fit_a_pilot_hide_no_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_PER_CLASS", 2)
    bench.submit(shape(4, expect=MEAN, gpus=1), shape(TASKS, expect=MEAN), replicate="tail-safe")
    for n in range(4):
        pilot = bench.pilot(host=f"gpu{n}", gpus=1)
        ((attempt, task),) = bench.take(pilot, 1)
        bench.exchange(pilot, started=[attempt])
        assert task < 4
    bench.wait(MEAN // 4)  # so that the tasks on GPUs are late first
    last = bench.pilot(host="last")
    ((attempt, task),) = bench.take(last, 1)
    bench.exchange(last, started=[attempt])
    quick = bench.pilot(host="quick")
    for _ in range(TASKS - 1):
        ((done, _),) = bench.take(quick, 1)
        bench.report(quick, done, wall=MEAN)
    bench.wait(2 * MEAN)
    assert asks(bench, "idle") == [task]


def test_scan_of_an_ended_bag_is_forgotten(bench: Bench) -> None:
    first, slow = late(bench, 1)
    assert asks(bench, "idle") == [0] and first in bench.core.turn.replicas.kept_scans
    bench.report(*slow[0], wall=MEAN)
    second, _ = late(bench, 2)
    assert asks(bench, "idler") == [0] and list(bench.core.turn.replicas.kept_scans) == [second]
