"""Replicas by expression: which tasks, in which order, how many, and what the expression may refer to."""

from __future__ import annotations

import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, answers, granted, shape
from windfall.core.decide.replicas import by_expression
from windfall.core.decide.replicas.by_expression import CYCLE, MOST_EVALUATED
from windfall.core.messages import events as e
from windfall.model.policies.presets import BY_EXPRESSION

MINUTE = 60_000


@pytest.fixture
def b() -> Bench:
    return Bench(lease=3_600_000, silence=36_000_000, park=3_600_000)


def running(b: Bench, text: str, *hosts: str, **more: object) -> tuple[int, list[tuple[int, int]]]:
    """Submit a bag and start one task on each host; return the bag and (pilot, attempt) of each."""
    bag = b.submit(shape(len(hosts)), policy={"replicate": text}, **more)
    held = []
    for host in hosts:
        pilot = b.pilot(host=host)
        ((attempt, _),) = b.take(pilot, 1)
        b.exchange(pilot, started=[attempt])
        held.append((pilot, attempt))
        b.wait(1_000)
    return bag, held


def tasks(b: Bench, host: str, cores: int = 1) -> list[int]:
    return [task for _, task in b.take(b.pilot(host=host, cores=cores))]


def test_tasks_for_which_the_expression_is_true_are_replicated(b: Bench) -> None:
    running(b, 'Task.Replica1.Host.Name == "bad"', "good", "bad", "fine")
    assert tasks(b, "idle", 4) == [1]


def test_bag_with_ready_tasks_has_no_replicas(b: Bench) -> None:
    bag = b.submit(shape(3), policy={"replicate": "true"})
    b.take(b.pilot(host="a"), 1)
    assert tasks(b, "b", 1) == [1, 2]
    assert tasks(b, "c", 1) == [0]
    assert b.core.state.bags[bag].replicas_granted == 1


def test_fewest_replicas_first_and_then_the_oldest(b: Bench) -> None:
    running(b, "NumberOfReplicas <= 2", "a", "b", "c")
    assert [tasks(b, f"i{n}") for n in range(3)] == [[0], [1], [2]]
    b.wait(CYCLE)
    assert [tasks(b, f"j{n}") for n in range(4)] == [[0], [1], [2], []]


def test_the_number_of_replicas_is_bounded_by_the_expression(b: Bench) -> None:
    running(b, "NumberOfReplicas < 3", "a")
    got = []
    for n in range(4):
        got.append(tasks(b, f"i{n}"))
        b.wait(CYCLE)
    assert got == [[0], [0], [], []]


def test_replicas_by_expression_stay_within_300_percent_of_a_bag(b: Bench) -> None:
    bag = b.submit(shape(9), policy={"replicate": "true"})
    b.take(b.pilot(host="most", cores=8), 8)
    for attempt, _ in b.take(pilot := b.pilot(host="a"), 1):
        b.exchange(pilot, started=[attempt])
    live = b.core.state.bags[bag].tasks.np_live
    for n in range(80):
        b.take(b.pilot(host=f"i{n}"))
        b.wait(CYCLE)
    assert max(live[:9]) == min(live[:9]) == 1 + 27 // 9 <= BY_EXPRESSION.per_task, "at most 300 % of the bag"
    running(b, "true", *(f"h{n}" for n in range(20)))


def test_expression_may_refer_to_the_time_a_replica_was_sent(b: Bench) -> None:
    """Policy R3 of GridBot: a replica once in 15 minutes."""
    running(b, "Now - Task.Replica1.SentTime > 900 * NumberOfReplicas", "a")
    got = []
    for _ in range(4):
        got.append(tasks(b, f"i{len(got)}"))
        b.wait(9 * MINUTE)
    assert got == [[], [], [0], []]


def test_expression_may_refer_to_a_replica_that_does_not_exist(b: Bench) -> None:
    running(b, 'Task.Replica2.Host.Name is undefined || Task.Replica2.Host.Name == "second"', "a")
    assert tasks(b, "second") == [0]
    b.wait(CYCLE)
    assert tasks(b, "third") == [0], "the second replica runs on host second"
    b.wait(CYCLE)
    assert tasks(b, "fourth") == [0]


def test_expression_may_refer_to_the_error_rate_of_a_host(b: Bench) -> None:
    b.submit(shape(5, retries=100))
    for host, outcome in (("bad", "failed"), ("good", "succeeded")):
        pilot = b.pilot(host=host)
        for _ in range(2):
            ((attempt, _),) = b.take(pilot, 1)
            b.report(pilot, attempt, outcome, wall=90_000)
    rest = b.pilot(cores=9, host="rest")
    for attempt, _ in b.take(rest):
        b.report(rest, attempt)
    b.wait(3_600_000)
    running(b, "Task.Replica1.Host.ErrorRate > 0.1 && NumberOfReplicas < 3", "bad", "good")
    assert tasks(b, "idle", 3) == [0]


def test_expression_may_refer_to_the_bag_and_its_tail(b: Bench) -> None:
    bag = b.submit(shape(4), policy={"replicate": "Tail && JobsLeft < 3"})
    pilot = b.pilot(host="a", cores=4)
    held = b.take(pilot, 4)
    assert tasks(b, "idle") == []
    for attempt, _ in held[:2]:
        b.report(pilot, attempt)
    b.wait(CYCLE)
    assert tasks(b, "idle") == [2]
    assert b.core.state.bags[bag].replicas_granted == 1


def test_waiting_pilot_is_woken_when_the_expression_becomes_true(b: Bench) -> None:
    running(b, "Bag.Age > 60", "a")
    idle = b.pilot(host="idle")
    assert b.exchange(idle, want=1, wait=10 * MINUTE) is None
    assert answers(b.wait(50_000), idle) == []
    (answer,) = answers(b.wait(MINUTE), idle)
    assert granted(answer)


def test_expression_is_evaluated_for_many_tasks_in_parts(b: Bench) -> None:
    n = MOST_EVALUATED + 10
    b.submit(shape(n), policy={"replicate": f"NumberOfReplicas < 2 && Tasks == {n} && Task.Replica1.SentTime > 1000"})
    pilot = b.pilot(host="a", cores=n - 1)
    b.take(pilot, n - 1)
    b.wait(1_000)
    late = b.pilot(host="b")
    b.take(late, 1)
    idle = b.pilot(host="idle", cores=1)
    b.exchange(idle, want=1, wait=20_000)
    b.wait(1_000)
    assert len(b.core.turn.replicas.cycles) == 1 and b.core.state.pilots[idle].attempts_held == 1


@pytest.mark.parametrize("text", ["Task.Replica1.Host.ErrorRate > 0.1", "1/0 > 1", "false"])
def test_expression_that_is_not_true_makes_no_replica(b: Bench, text: str) -> None:
    running(b, text, "a")
    b.wait(MINUTE)
    assert tasks(b, "idle") == []


def test_policy_may_change_between_expression_and_preset_while_the_bag_runs(b: Bench) -> None:
    bag, _ = running(b, "false", "a", "b")
    b.do(e.SetPolicy(0, bag, {"replicate": "NumberOfReplicas < 2"}))
    assert tasks(b, "idle") == [0]
    b.do(e.SetPolicy(0, bag, {"replicate": "none"}))
    assert tasks(b, "idle too") == []
    b.do(e.SetPolicy(0, bag, {"replicate": "tail-fast"}))
    assert tasks(b, "idle too") == [1]
    b.restart()


def test_removed_policy_makes_no_replica(b: Bench) -> None:
    bag = b.submit(shape(1), replicate="tail-fast")
    b.exchange(pilot := b.pilot(host="a"), started=[b.take(pilot, 1)[0][0]])
    b.do(e.SetPolicy(0, bag, {"replicate": ""}))
    assert tasks(b, "idle") == []
    b.restart(b.snapshot())
    assert bag not in b.core.state.replicating


def test_task_with_external_effects_has_no_replica_by_expression(b: Bench) -> None:
    running(b, "true", "a", external=True)
    assert tasks(b, "idle") == []


# --- who has a task is found by an index ----------------------------------------------------------------------------


def test_attempts_are_indexed_while_a_bag_is_scanned_for_replicas(b: Bench) -> None:
    """`check_all` compares the index with a pass over all attempts after every step."""
    bag, held = running(b, "NumberOfReplicas < 3", "a", "b", "c", "d")
    attempts = b.core.state.attempts
    assert not attempts.indexed
    assert tasks(b, "idle") == [0] and list(attempts.indexed) == [bag]
    (pilot, first), (other, second), (third, _), _ = held
    b.report(pilot, first)  # the replica is dropped
    b.report(other, second, "failed", "exit")
    b.step(e.Gone(0, third))
    assert sorted(tasks(b, "e") + tasks(b, "f")) == [1, 2]
    b.step(e.Cancel(0, bag, None))
    b.wait(24 * 3_600_000)
    assert not attempts.indexed, "nothing of the bag is in play"


def test_large_grant_drops_the_index_of_attempts(b: Bench) -> None:
    bag = b.submit(shape(1), policy={"replicate": "true"}, open=True)
    b.take(b.pilot(host="a"), 1)
    assert tasks(b, "b") == [0] and bag in b.core.state.attempts.indexed
    b.append(bag, 40)
    assert len(b.take(b.pilot(host="c", cores=40))) == 40
    assert not b.core.state.attempts.indexed
    b.wait(CYCLE)
    assert tasks(b, "d") == [1], "fewest attempts first"
    assert bag in b.core.state.attempts.indexed


def test_index_of_attempts_is_made_again_after_a_restart(b: Bench) -> None:
    bag, _ = running(b, "NumberOfReplicas < 3", "a", "b")
    assert tasks(b, "c") == [0]
    b.restart()
    assert not b.core.state.attempts.indexed
    assert tasks(b, "d") == [1] and bag in b.core.state.attempts.indexed


@pytest.mark.parametrize("own", [255, 256, 400])
def test_tasks_of_the_asking_host_do_not_hide_others(own: int) -> None:
    b = Bench(lease=36_000_000, silence=360_000_000)
    b.submit(shape(own + 4), policy={"replicate": "NumberOfReplicas < 2"})
    large, small = b.pilot(cores=512, host="large"), b.pilot(cores=4, host="small")
    while len(held := b.core.state.attempts.of_pilot(large)) < own:
        b.take(large, own - len(held))
    b.wait(10)
    b.take(small, 4)
    found: list[int] = []
    for _ in range(5):
        b.wait(61_000)
        found += [task for _, task in b.take(large, 8)]
    assert sorted(found) == [*range(own, own + 4)]


def test_tasks_that_no_pilot_takes_do_not_hide_others() -> None:
    """More tasks that no pilot takes are wanted than the core lists."""
    b, wide = Bench(**PATIENT), by_expression.MOST_WANTED + 40
    b.submit(shape(wide, name="wide", cores=4, expect=HOUR), shape(4, name="narrow", expect=HOUR),
             policy={"replicate": "Task.NumberOfReplicas < 2"})
    for n in range(wide):
        large = b.pilot(cores=4, host=f"large{n}")
        b.exchange(large, started=[b.take(large, 1)[0][0]])
    small = b.pilot(cores=4, host="small")
    b.exchange(small, started=[attempt for attempt, _ in b.take(small, 4)])
    idle = [b.pilot(host=f"idle{n}") for n in range(4)]
    given = [granted(answer) for pilot in idle if (answer := b.exchange(pilot, want=1, wait=HOUR)) is not None]
    for _ in range(6):
        seen = b.wait(5_000)
        given += [granted(answer) for pilot in idle for answer in answers(seen, pilot)]
    assert sorted(task for each in given for _, task in each) == list(range(wide, wide + 4))


def test_cycles_of_evaluation_are_forgotten_with_their_bags() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    for _ in range(5):
        bag = b.submit(shape(1), policy={"replicate": "NumberOfReplicas < 3"})
        pilot, attempt, _ = b.start("h")
        b.take(b.pilot(host="i"), 1)
        b.report(pilot, attempt)
        b.step(e.Remove(0, bag))
    assert len(b.core.turn.replicas.cycles) <= 1
