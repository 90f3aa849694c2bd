"""Replicas by deadline: a task whose attempt is overdue goes to another host, and the first success wins."""

from __future__ import annotations

import pytest

from tests.core.conftest import GONE_SILENT, HOUR, PATIENT, Bench, answers, bags_of, granted, shape
from windfall.core.decide.replicas.by_deadline import MOST_PER_TASK, MOST_SEEN, SHORTEST
from windfall.core.messages import events as e

DUE = {"attempt-deadline": "60"}


@pytest.fixture
def b() -> Bench:
    """Return a bench whose leases outlast the test, so that no slow host is given up."""
    return Bench(lease=3_600_000, silence=36_000_000)


def running(b: Bench, *hosts: str, **more: object) -> tuple[int, list[tuple[int, int]]]:
    """Submit a bag and start one task on each host; return the bag and (pilot, attempt) of each."""
    more.setdefault("policy", DUE)
    bag = b.submit(shape(len(hosts) + int(str(more.pop("spare", 0)))), **more)
    held = []
    for host in hosts:
        pilot = b.pilot(host=host)
        ((attempt, _),) = b.take(pilot, 1)
        b.exchange(pilot, started=[attempt])
        held.append((pilot, attempt))
    return bag, held


def test_overdue_task_is_granted_to_another_host(b: Bench) -> None:
    bag, ((slow, first),) = running(b, "slow")
    idle = b.pilot(host="idle")
    assert b.take(idle) == [], "the attempt has time yet"
    b.wait(61_000)
    ((second, task),) = b.take(idle)
    assert (task, second != first) == (0, True)
    b.report(idle, second)
    assert b.task(bag) == "succeeded"
    assert b.exchange(slow).cancel == [first]


def test_overdue_attempt_may_still_win(b: Bench) -> None:
    bag, ((slow, first),) = running(b, "slow")
    b.wait(61_000)
    idle = b.pilot(host="idle")
    ((second, _),) = b.take(idle)
    b.report(slow, first)
    assert b.task(bag) == "succeeded"
    assert b.exchange(idle).cancel == [second]


def test_waiting_pilot_is_granted_the_task_when_it_falls_due(b: Bench) -> None:
    running(b, "slow")
    idle = b.pilot(host="idle")
    assert b.exchange(idle, want=1, wait=20_000) is None
    b.wait(41_000)
    assert b.exchange(idle, want=1, wait=20_000) is None
    (answer,) = answers(b.wait(21_000), idle)
    assert granted(answer)


def test_overdue_task_is_not_granted_to_the_host_that_runs_it(b: Bench) -> None:
    running(b, "slow")
    b.wait(61_000)
    assert b.take(b.pilot(host="slow")) == []


def test_pilot_prefers_an_overdue_task_of_another_site(b: Bench) -> None:
    b.step(e.AddSite(0, "there", "ann", "local"))
    b.submit(shape(3), policy=DUE)
    for host, site in (("a", "here"), ("b", "there"), ("c", "here")):
        b.take(b.pilot(host=host, site=site), 1)
    b.wait(61_000)
    asking = [b.pilot(host=f"i{n}", site=site) for n, site in enumerate(("here", "here", "there"))]
    assert [[task for _, task in b.take(pilot, 1)] for pilot in asking] == [[1], [0], [2]]


def test_task_that_has_a_replica_is_not_overdue_any_more(b: Bench) -> None:
    n = MOST_SEEN + 1
    bag = b.submit(shape(n + 1), policy={**DUE, "replicate": "true"})
    for host, cores in (("most", n), ("one", 1)):
        pilot = b.pilot(host=host, cores=cores)
        b.exchange(pilot, started=[attempt for attempt, _ in b.take(pilot, cores)])
    b.wait(61_000)
    (cls,) = b.core.state.bags[bag].classes.values()
    assert n in cls.overdue, "the task is behind so many that it is not seen"
    assert [task for _, task in b.take(b.pilot(host="most"))] == [n]
    assert n not in cls.overdue and 0 in cls.overdue


def test_overdue_task_goes_before_ready_ones_of_its_bag_and_after_a_higher_bag(b: Bench) -> None:
    bag, _ = running(b, "slow", spare=3)
    higher = b.submit(shape(1, priority=1))
    b.wait(61_000)
    tasks = [b.take(b.pilot(host=f"h{n}"), 1)[0] for n in range(3)]
    state = b.core.state.attempts
    bags = [state.task[state.row(attempt)] >> 32 for attempt, _ in tasks]
    assert bags == [higher, bag, bag] and [task for _, task in tasks] == [0, 0, 1]


def test_replica_has_a_deadline_of_its_own_up_to_the_cap_of_its_task(b: Bench) -> None:
    bag, _ = running(b, "h0")
    for n in range(1, MOST_PER_TASK):
        b.wait(61_000)
        assert len(b.take(b.pilot(host=f"h{n}"))) == 1
        assert b.take(b.pilot(host=f"i{n}")) == [], "the newest has time yet"
    b.wait(61_000)
    assert b.take(b.pilot(host="last")) == []
    assert b.core.state.bags[bag].tasks.live[0] == MOST_PER_TASK


def test_task_is_overdue_again_when_its_newest_attempt_is_lost(b: Bench) -> None:
    running(b, "slow")
    b.wait(61_000)
    second = b.pilot(host="second")
    b.take(second)
    b.exchange(second, bye="idle")
    b.wait(SHORTEST)
    assert len(b.take(b.pilot(host="third"))) == 1


def test_deadline_may_depend_on_the_host(b: Bench) -> None:
    policy = {"attempt-deadline": 'Host.Name == "slow" ? 600 : 60 * Host.Cores'}
    running(b, "slow", "other", policy=policy)
    b.wait(61_000)
    ((_, task),) = b.take(b.pilot(host="idle", cores=4))
    assert task == 1
    b.wait(540_000)
    ((_, task),) = b.take(b.pilot(host="idle too"))
    assert task == 0
    again = b.take(b.pilot(host="and another", cores=2))
    assert [task for _, task in again] == [1], "four times as long, on four cores"


@pytest.mark.parametrize("text", ["Host.ErrorRate", "1/0", "-5", "0"])
def test_undefined_or_nonpositive_deadline_makes_no_task_overdue(b: Bench, text: str) -> None:
    running(b, "slow", policy={"attempt-deadline": text})
    b.wait(600_000)
    assert b.take(b.pilot(host="idle")) == []


def test_preset_sets_the_deadline_at_three_times_the_mean(b: Bench) -> None:
    """The deadline is 3 × 40 s; no duration is known when the tasks start."""
    bag, ((slow, _), (quick, second)) = running(b, "slow", "quick", replicate="deadline", policy={})
    idle = b.pilot(host="idle")
    b.wait(40_000)
    b.report(quick, second, wall=40_000)
    b.wait(75_000)
    assert b.take(idle) == []
    b.wait(SHORTEST)
    assert [task for _, task in b.take(idle)] == [0]


def test_deadline_may_be_set_and_removed_while_the_bag_runs(b: Bench) -> None:
    bag, _ = running(b, "slow", policy={})
    b.wait(61_000)
    idle = b.pilot(host="idle")
    b.do(e.SetPolicy(0, bag, DUE))
    b.do(e.SetPolicy(0, bag, {"attempt-deadline": ""}))
    assert b.take(idle) == []
    b.do(e.SetPolicy(0, bag, {"attempt-deadline": "600"}))
    assert b.take(idle) == []
    b.do(e.SetPolicy(0, bag, DUE))
    assert len(b.take(idle)) == 1


def test_task_with_external_effects_is_never_overdue(b: Bench) -> None:
    running(b, "slow", external=True)
    b.wait(61_000)
    assert b.take(b.pilot(host="idle")) == []


def test_overdue_task_is_granted_to_matching_hosts_only(b: Bench) -> None:
    running(b, "slow", policy={**DUE, "requirements": 'Host.Name != "bad"'})
    b.wait(61_000)
    assert b.take(b.pilot(host="bad")) == []
    assert len(b.take(b.pilot(host="good"))) == 1


def test_paused_bag_grants_no_overdue_task(b: Bench) -> None:
    bag, _ = running(b, "slow")
    b.wait(61_000)
    b.do(e.Pause(0, bag, True))
    idle = b.pilot(host="idle")
    assert b.take(idle) == []
    b.do(e.Pause(0, bag, False))
    assert len(b.take(idle)) == 1


def test_restarted_core_takes_no_task_for_overdue_before_a_lease_has_passed() -> None:
    b = Bench()
    bag, ((slow, first),) = running(b, "slow")
    b.wait(61_000)
    b.restart()
    idle = b.pilot(host="idle")
    assert b.take(idle) == []
    b.exchange(slow, held=[first])
    b.wait(60_000)
    b.exchange(slow, held=[first])
    b.wait(6_000)
    assert len(b.take(b.pilot(host="new"))) == 1
    b.restart(b.snapshot())
    assert b.core.state.deadlines == {bag: None}


@pytest.mark.parametrize("sets", [False, True])
def test_restarted_core_waits_for_a_lease_although_it_grants_another_task_of_the_bag(sets: bool) -> None:
    b = Bench()
    bag, ((slow, first),) = running(b, "slow", spare=1)
    b.wait(61_000)
    b.restart()
    b.exchange(slow, held=[first])
    b.wait(1_000)
    assert [task for _, task in b.take(b.pilot(host="new"), 1)] == [1]
    if sets:
        b.do(e.SetPolicy(0, bag, {"attempt-deadline": "2"}))
    b.wait(61_000)
    assert [task for _, task in b.take(b.pilot(host="idle"), 1)] == [1], "the second task was granted after the restart"
    b.wait(6_000)
    assert [task for _, task in b.take(b.pilot(host="other"), 1)] == [0]


@pytest.mark.parametrize("own", [1, 63, 64, 200])
def test_overdue_tasks_of_the_asking_host_do_not_hide_others(own: int) -> None:
    b = Bench(lease=36_000_000, silence=360_000_000)
    b.submit(shape(own + 4), policy={"attempt-deadline": "60"})
    large, small = b.pilot(cores=256, host="large"), b.pilot(cores=4, host="small")
    b.exchange(large, started=[attempt for attempt, _ in b.take(large, own)])
    b.exchange(small, started=[attempt for attempt, _ in b.take(small, 4)])
    b.wait(61_000)
    assert sorted(task for _, task in b.take(large, 8)) == [*range(own, own + 4)]


def test_overdue_task_keeps_no_core_of_its_own_host_idle() -> None:
    b = Bench(lease=3_600_000, silence=36_000_000)
    b.submit(shape(1, cores=8, expect=3_600_000), policy={"attempt-deadline": "60"})
    pilot = b.pilot(cores=16)
    b.exchange(pilot, started=[attempt for attempt, _ in b.take(pilot, 1)])
    b.submit(shape(100, expect=3_600_000))
    others = [attempt for attempt, _ in b.take(pilot, 8)]
    b.exchange(pilot, started=others)
    b.wait(61_000)
    for attempt in others:
        b.report(pilot, attempt)
        assert len(b.take(pilot, 1)) == 1


@pytest.mark.parametrize("policy", [{}, {"per-host": "1"}], ids=["as many as it wants", "one of a bag"])
def test_pilot_that_holds_more_than_its_slots_is_granted_no_overdue_task(policy: dict[str, str]) -> None:
    b = Bench(**PATIENT)
    bag = b.submit(shape(60, retries=9), policy={"attempt-deadline": "300"})
    slow = b.pilot(cores=60, host="slow")
    b.exchange(slow, started=[attempt for attempt, _ in b.take(slow, 60)])
    b.do(e.SetPolicy(0, bag, policy))
    b.submit(shape(5, retries=9))  # no duration is known, so the pilot prefetches one task
    fast = b.pilot(cores=4, host="fast")
    assert len(b.take(fast, 5)) == 5
    b.wait(301_000)
    assert b.exchange(fast, want=3, wait=20_000) is None
    assert b.core.state.pilots[fast].load == 5_000


def test_request_costs_the_same_however_many_tasks_are_overdue() -> None:
    def calls(overdue: int) -> int:
        b = Bench(**PATIENT)
        bag = b.submit(shape(overdue, retries=9), policy={"attempt-deadline": "300", "requirements": "Host.Cores > 4"})
        slow = b.pilot(cores=overdue, host="slow")
        b.exchange(slow, started=[attempt for attempt, _ in b.take(slow, overdue)])
        small = b.pilot(host="small")
        b.wait(301_000)
        assert len(next(iter(b.core.state.bags[bag].classes.values())).overdue) == overdue
        b.counting = True
        b.exchange(small, want=1)
        return b.calls

    assert calls(500) < calls(20) + 10


def test_task_is_not_overdue_after_its_deadline_was_removed() -> None:
    b = Bench(**PATIENT)
    bag = b.submit(shape(9, retries=9), policy={"attempt-deadline": "300", "replicate": "none"})
    slow = b.pilot(cores=5, host="slow")
    b.exchange(slow, started=[attempt for attempt, _ in b.take(slow, 5)])
    b.wait(301_000)
    assert b.core.state.overdue
    b.do(e.SetPolicy(0, bag, {"attempt-deadline": ""}))
    assert sorted(task for _, task in b.take(b.pilot(cores=9, host="fast"), 9)) == [5, 6, 7, 8]


def test_returned_task_granted_again_is_not_overdue() -> None:
    b = Bench(**PATIENT)
    b.submit(shape(3, retries=9), policy={"attempt-deadline": "300"})
    slow = b.pilot(cores=3, host="slow")
    held = b.take(slow, 3)
    b.exchange(slow, started=[attempt for attempt, _ in held])
    b.wait(301_000)
    b.exchange(slow, reports=[e.Report(held[1][0], "returned", "stop")])
    assert [task for _, task in b.take(slow, 1)] == [1]  # the pilot runs the others itself
    given = [task for _, task in b.take(b.pilot(cores=9, host="third"), 9)]
    assert sorted(given) == [0, 2]


def pass_time(bench: Bench, ms: int, *alive: int) -> None:
    for _ in range(0, ms, 10_000):
        bench.wait(10_000)
        for pilot in alive:
            bench.exchange(pilot)


@pytest.mark.parametrize(("most", "live"), [(2, 2), (3, 3)])
def test_lost_attempt_that_comes_back_counts_towards_the_cap(bench: Bench, most: int, live: int) -> None:
    """`replicas-per-task` holds for overdue tasks, too, and counts the attempt that comes back."""
    bag = bench.submit(shape(1), policy={"attempt-deadline": "30", "replicas-per-task": str(most)})
    lost, busy, idle = (bench.pilot(host=name) for name in ("lost", "busy", "idle"))
    [(first, _)] = bench.take(lost)
    pass_time(bench, GONE_SILENT, busy, idle)
    [(second, _)] = bench.take(busy)
    bench.exchange(busy, started=[second])
    pass_time(bench, 40_000, busy, idle)
    assert bench.core.state.overdue
    bench.exchange(lost, held=[first], started=[first])
    bench.exchange(idle, want=1)
    assert bench.core.state.bags[bag].tasks.live[0] == live


# --- the order of bags ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expect", [600_000, 0])
def test_overdue_task_is_not_overtaken_by_a_lower_bag(expect: int) -> None:
    """The rule holds also where the pilot might prefetch short tasks, or tasks of unknown duration."""
    b = Bench(lease=HOUR)
    high = b.submit(shape(1, cores=2, expect=expect), policy={"rank": "2", "attempt-deadline": "60"})
    first, second = (b.pilot(cores=2, host=host) for host in "ab")
    b.exchange(first, started=[b.take(first, 1)[0][0]])
    b.submit(shape(50, expect=30_000), policy={"rank": "1"})
    ((held, _),) = b.take(second, 1)
    b.exchange(second, started=[held])
    b.wait(61_000)
    assert not granted(b.exchange(second, want=1)), "one core is free, and the overdue task needs two"
    b.report(second, held, wall=60_000)
    b.take(second, 1)
    assert b.core.state.bags[high].tasks.live[0] == 2


def test_prefetch_of_a_lower_bag_does_not_overtake_one_with_an_overdue_task() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    high = b.submit(shape(5, expect=60_000, priority=1), policy={"attempt-deadline": "60"})
    b.take(b.pilot(host="slow"), 1)
    b.submit(shape(99, expect=10))
    b.wait(61_000)
    assert bags_of(b.exchange(b.pilot(host="other"), want=100)) == [high]


def test_overdue_task_does_not_let_a_lower_bag_overtake_in_the_tail() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    policy = {"rank": "2", "attempt-deadline": "60"}
    b.submit(shape(5, expect=60_000, retries=9), replicate="tail-safe", policy=policy)
    held = [b.start(f"slow{n}")[:2] for n in range(5)]
    b.report(*held[4], "returned")
    low = b.submit(shape(9, expect=60_000), policy={"rank": "1"})
    b.wait(61_000)
    for pilot, attempt in held[:3]:
        b.report(pilot, attempt, wall=60_000)
    assert low not in bags_of(b.exchange(b.pilot(host="big", cores=2), want=2))


def test_overdue_task_does_not_count_as_ready_where_owners_share() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    b.step(e.AddSite(0, "all", "ann", "local", ["bob"]))
    b.submit(shape(2, expect=60_000), owner="bob", policy={"rank": "3", "attempt-deadline": "60"})
    b.take(b.pilot(host="slow", site="all"), 1)
    low = b.submit(shape(2, expect=60_000), owner="bob", policy={"rank": "2"})
    b.submit(shape(1, expect=60_000), owner="ann")
    b.wait(61_000)
    assert low not in bags_of(b.exchange(b.pilot(host="big", site="all", cores=3), want=3))


def test_overdue_task_with_the_fewest_attempts_comes_first() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(2), policy={"attempt-deadline": "60"})
    b.start("a")
    b.start("b")
    b.wait(61_000)
    ((_, first),) = b.take(b.pilot(host="c"), 1)
    b.wait(200_000)
    ((_, second),) = b.take(b.pilot(host="d"), 1)
    assert (first, second) == (0, 1)


def test_overdue_task_of_the_asking_host_does_not_shrink_its_grant() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(4, expect=HOUR), replicate="tail-safe", policy={"attempt-deadline": "60", "rank": "2"})
    big = b.pilot(cores=8, host="big")
    for _ in range(3):
        b.take(big, 1)
    b.wait(61_000)
    low = b.submit(shape(9, expect=HOUR), policy={"rank": "1"})
    assert low in bags_of(b.exchange(big, want=8))


def test_explain_allows_an_overdue_task_a_replica_despite_a_share_of_0() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    bag = b.submit(shape(1), replicate="tail-safe", policy={"attempt-deadline": "60", "replicas-share": "0%"})
    b.start("slow")
    assert "no replica of it will be made unless it is overdue: the bag has had 0" in b.explain(bag, 0)
    b.wait(61_000)
    assert b.take(b.pilot(host="idle"), 1)


# --- deadlines that move --------------------------------------------------------------------------------------------


def test_presets_deadline_follows_the_mean() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(3, expect=HOUR), replicate="deadline")
    first, second, _ = b.start("a"), b.start("b"), b.start("slow")
    b.wait(60_000)
    for pilot, attempt, _ in (first, second):
        b.report(pilot, attempt, wall=60_000)
    idle = b.pilot(host="idle")
    got: list[tuple[int, int]] = []
    for _ in range(60):
        b.wait(20_000)
        got += b.take(idle, 1)
    assert [task for _, task in got] == [2]


@pytest.mark.parametrize("text", ["3 * Task.Expect", "Bag.JobsLeft < 2 ? 60 : 36000"])
def test_waiting_pilot_is_granted_the_task_when_its_deadline_moves_earlier(text: str) -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(3), policy={"attempt-deadline": text})
    first, second, _ = b.start("a"), b.start("b"), b.start("slow")
    b.wait(100_000)
    for pilot, attempt, _ in (first, second):
        b.report(pilot, attempt, wall=100_000)
    idle = b.pilot(host="idle")
    assert b.exchange(idle, want=1, wait=10 * HOUR) is None
    seen = b.wait(9 * HOUR)
    assert [task for answer in answers(seen, idle) for _, task in granted(answer)] == [2]
