"""Replicas of late tasks (speculative execution): when, where, how many, and which attempt wins."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, answers, granted, shape
from windfall.core.decide.replicas import scan
from windfall.core.decide.requests.intake import submission
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import STARTED
from windfall.model.spec import Bag, Policy, Sweep, Target

MEAN = 10_000
LONG_MEAN = 64_000
LATE = 3 * LONG_MEAN // 2


def tail(bench: Bench, replicate: str = "tail-safe", tasks: int = 20, **more: object) -> tuple[int, int, int]:
    """Submit a bag and run all but one task, which a slow pilot runs; return the bag, that pilot and its attempt."""
    bag = bench.submit(shape(tasks, expect=MEAN), replicate=replicate, **more)
    slow = bench.pilot(1, host="slow")
    ((attempt, _),) = bench.take(slow, 1)
    bench.exchange(slow, started=[attempt])
    quick = bench.pilot(1, host="quick")
    for _ in range(tasks - 1):
        for each, _ in bench.take(quick, 1):
            bench.report(quick, each, wall=MEAN)
    return bag, slow, attempt


def running(bench: Bench, tasks: int, replicate: str = "tail-fast", spare: int = 0, **more: Any
            ) -> tuple[int, list[tuple[int, int]]]:
    """Submit a bag and start so many tasks, each on a host of its own; return the bag and (pilot, attempt) of each."""
    wanted = shape(tasks + spare, expect=more.pop("expect", MEAN), priority=more.pop("priority", 0))
    bag = bench.submit(wanted, replicate=replicate, **more)
    held = []
    for _ in range(tasks):
        pilot = bench.pilot(host=f"own{bench.core.state.next_pilot}")
        ((attempt, _),) = bench.take(pilot, 1)
        bench.exchange(pilot, started=[attempt])
        held.append((pilot, attempt))
    return bag, held


def test_late_task_has_a_replica_on_another_host(bench: Bench) -> None:
    bag, slow, first = tail(bench)
    idle = bench.pilot(1, host="idle")
    assert not granted(bench.exchange(idle, want=1)), "the task is not late yet"
    bench.wait(2 * MEAN)
    ((second, task),) = granted(bench.exchange(idle, want=1))
    assert (second != first, task) == (True, 0)
    bench.report(idle, second)
    assert bench.task(bag) == "succeeded"
    assert bench.exchange(slow).cancel == [first], "the other attempt is cancelled"


def test_waiting_pilot_is_granted_a_replica_when_a_task_becomes_late(bench: Bench) -> None:
    tail(bench)
    idle = bench.pilot(1, host="idle")
    assert bench.exchange(idle, want=1, wait=60_000) is None, "the request waits"
    (answer,) = answers(bench.wait(2 * MEAN), idle)
    assert granted(answer)


def test_task_of_an_unreliable_host_is_late_sooner(bench: Bench) -> None:
    """On such a host a task is late after a part of the usual time, and a waiting pilot need not ask again."""
    bench.submit(shape(6, retries=9))
    bad = bench.pilot(host="bad")
    for _ in range(6):
        ((attempt, _),) = bench.take(bad, 1)
        bench.report(bad, attempt, wall=MEAN)
    row = bench.core.state.pilots[bad].row
    bench.core.state.hosts.losses[row] = 2
    bag = bench.submit(shape(1, expect=MEAN), replicate="tail-safe")
    bench.exchange(bad, started=[bench.take(bad, 1)[0][0]])
    began, idle = bench.now, bench.pilot(host="idle")
    assert bench.exchange(idle, want=1, wait=20_000) is None
    bench.wait(3 * MEAN)
    attempts = bench.core.state.attempts
    (when,) = [attempts.granted[row] - began for row in attempts.of_bag(bag).tolist() if attempts.pilot[row] == idle]
    assert when == 1.5 * MEAN / scan.DOUBT_PART


def test_replica_never_goes_to_the_host_of_the_original(bench: Bench) -> None:
    tail(bench)
    bench.wait(2 * MEAN)
    again = bench.pilot(1, host="slow")
    assert not granted(bench.exchange(again, want=1))


@pytest.mark.parametrize("replicate", ["tail-fast", "true"])
def test_pilot_prefers_a_late_task_of_another_site(bench: Bench, replicate: str) -> None:
    bench.step(e.AddSite(0, "there", "ann", "local"))
    bench.submit(shape(3, expect=MEAN), policy={"replicate": replicate})
    for host, site in (("a", "here"), ("b", "there"), ("c", "here")):
        pilot = bench.pilot(host=host, site=site)
        bench.exchange(pilot, started=[bench.take(pilot, 1)[0][0]])
        bench.wait(1)
    asking = [bench.pilot(host=f"i{n}", site=site) for n, site in enumerate(("here", "here", "there"))]
    assert [[task for _, task in bench.take(pilot, 1)] for pilot in asking] == [[1], [0], [2]]


def test_tail_safe_makes_no_replica_before_the_last_task_has_started(bench: Bench) -> None:
    bench.submit(shape(20, expect=MEAN), replicate="tail-safe")
    slow, holds = bench.pilot(1, host="slow"), bench.pilot(1, host="holds")
    ((first, _),) = bench.take(slow, 1)
    bench.exchange(slow, started=[first])
    for _ in range(18):
        ((attempt, _),) = bench.take(holds, 1)
        bench.report(holds, attempt, wall=MEAN)
    ((last, _),) = bench.take(holds, 1)
    idle = bench.pilot(1, host="idle")
    bench.wait(2 * MEAN)
    assert not granted(bench.exchange(idle, want=1))
    bench.exchange(holds, started=[last])
    assert granted(bench.exchange(idle, want=1))


@pytest.mark.parametrize("replicate", ["none", "tail-safe"])
def test_preset_caps_the_replicas_of_a_task(bench: Bench, replicate: str) -> None:
    tail(bench, replicate)
    bench.wait(2 * MEAN)
    got = [granted(bench.exchange(bench.pilot(1, host=f"h{n}"), want=1)) for n in range(4)]
    assert [bool(each) for each in got] == 2 * [replicate == "tail-safe"] + [False, False]


def test_tail_safe_replicates_15_percent_of_a_bag(bench: Bench) -> None:
    """15 % of 20 tasks are 3 replicas."""
    bag = bench.submit(shape(20, expect=MEAN), replicate="tail-safe")
    for n in range(20):
        pilot = bench.pilot(1, host=f"h{n}")
        ((attempt, _),) = bench.take(pilot, 1)
        bench.exchange(pilot, started=[attempt])
    bench.wait(2 * MEAN)
    got = [granted(bench.exchange(bench.pilot(1, host=f"i{n}"), want=1)) for n in range(6)]
    assert [bool(each) for each in got] == [True] * 3 + [False] * 3
    assert bench.core.state.bags[bag].replicas_granted == 3


def test_late_task_with_external_effects_has_no_replica(bench: Bench) -> None:
    tail(bench, "tail-fast", external=True)
    bench.wait(2 * MEAN)
    assert not granted(bench.exchange(bench.pilot(1, host="idle"), want=1))


def test_tail_safe_makes_no_replica_while_a_task_waits_for_another(bench: Bench) -> None:
    edges = np.array([[0, 2]], dtype="<i4").tobytes()
    bench.submit(shape(3, expect=MEAN), replicate="tail-safe", edges=edges)
    slow, quick, idle = [bench.pilot(host=host) for host in ("slow", "quick", "idle")]
    ((first, _),) = bench.take(slow, 1)
    bench.exchange(slow, started=[first])
    for attempt, _ in bench.take(quick, 1):
        bench.report(quick, attempt, wall=MEAN)
    bench.wait(2 * MEAN)
    assert not granted(bench.exchange(idle, want=1))
    bench.report(slow, first, wall=MEAN)
    ((last, task),) = bench.take(slow, 1)
    bench.exchange(slow, started=[last])
    bench.wait(2 * MEAN)
    assert task == 2 and [task for _, task in bench.take(idle, 1)] == [2]


@pytest.mark.parametrize("more", [{"provision": "msr"}, {"batch": 2}])
def test_batches_and_tasks_with_pilots_of_their_own_have_no_replicas(bench: Bench, more: dict[str, Any]) -> None:
    batch = more.pop("batch", 0)
    policy = {"replicate": "true", "attempt-deadline": "10"}
    bag = bench.submit(shape(2, expect=MEAN, batch=batch), policy=policy, **more)
    pilot = bench.pilot(cores=2, host="busy")
    if not batch:  # only pilots of its own get such a task: this pilot stands for one
        bench.core.state.bags_with_task_pilots.clear()
    bench.exchange(pilot, started=[attempt for attempt, _ in bench.take(pilot, 2)])
    assert bench.tasks(bag) == "aa"
    bench.wait(2 * MEAN)
    assert bench.take(bench.pilot(cores=2, host="idle"), 2) == []


def test_paused_bag_has_no_replicas(bench: Bench) -> None:
    bag, _ = running(bench, 1)
    bench.do(e.Pause(0, bag, True))
    idle = bench.pilot(host="idle")
    assert bench.exchange(idle, want=1, wait=20_000) is None
    bench.do(e.Pause(0, bag, False))
    assert bench.core.state.pilots[idle].attempts_held == 1


def test_replica_needs_a_slot_time_and_budget_like_any_attempt(bench: Bench) -> None:
    """A replica takes a slot, needs its time limit of the time left, and pledges its part of the budget."""
    wanted = shape(3, cores=2, expect=MEAN, limit=60_000, grace=1_000)
    event = e.Submit(0, "ann", "bag", "", b"spec", [wanted], False, "fcfs", False, replicate="tail-fast",
                     budget=5 * 2 * (60_000 + 1_000))
    bag = int(bench.do(event).value)
    busy = bench.pilot(cores=6, host="busy")
    bench.exchange(busy, started=[attempt for attempt, _ in bench.take(busy)])
    assert bench.tasks(bag) == "aaa"
    assert bench.take(bench.pilot(cores=8, host="brief", left=59_000), left=59_000) == []
    assert len(bench.take(bench.pilot(cores=3, host="narrow"))) == 1, "the pilot has room for one"
    assert len(bench.take(bench.pilot(cores=8, host="wide"))) == 1, "the budget has room for one"


def test_waiting_poll_is_answered_at_once_when_the_replica_succeeds(bench: Bench) -> None:
    _, ((slow, first),) = running(bench, 1)
    assert bench.exchange(slow, want=0, wait=20_000) is None, "the pilot is busy, and its poll waits"
    idle = bench.pilot(host="idle")
    ((second, _),) = bench.take(idle, 1)
    bench.report(idle, second)
    assert [answer.cancel for answer in answers(bench.effects, slow)] == [[first]]


def test_running_replica_survives_a_restart(bench: Bench) -> None:
    bag, _, _ = tail(bench)
    bench.wait(2 * MEAN)
    idle = bench.pilot(1, host="idle")
    ((second, _),) = granted(bench.exchange(idle, want=1))
    bench.restart()
    assert bench.core.state.bags[bag].replicas_granted == 1
    bench.report(idle, second)
    assert bench.task(bag) == "succeeded"


def test_restarted_core_takes_no_task_for_late_before_a_lease_has_passed(bench: Bench) -> None:
    """The attempt may have ended while the server was down, and its pilot may be about to report it."""
    _, slow, first = tail(bench)
    bench.now += 2 * MEAN
    bench.restart()
    bench.exchange(slow, held=[first])
    idle = bench.pilot(host="idle")
    for _ in range(6):
        assert not granted(bench.exchange(idle, want=1))
        bench.wait(10_000)
        bench.exchange(slow, held=[first])
    bench.wait(6_000)
    assert granted(bench.exchange(idle, want=1))


def test_unknown_preset_is_refused_at_submission(bench: Bench) -> None:
    refused = bench.do(e.Submit(0, "user", "bag", "", b"", [shape(1)], False, "fcfs", False, replicate="twice"))
    assert "no way of replicating called 'twice'" in refused.message


def test_bag_is_scanned_for_replicas_only_while_it_has_not_ended(bench: Bench) -> None:
    bag, _, _ = tail(bench)
    assert list(bench.core.state.replicating) == [bag]
    bench.step(e.Cancel(0, bag, None))
    for snapshot in (bench.snapshot(), None):
        assert bench.core.state.bags[bag].ended and not bench.core.state.replicating
        bench.restart(snapshot)
    bench.step(e.Retry(0, bag, None))
    assert not bench.core.state.bags[bag].ended and list(bench.core.state.replicating) == [bag]
    bench.step(e.Cancel(0, bag, None))
    bench.step(e.Append(0, "ann", bag, 0, 1, "", b"source", extends=True, seen=0))
    assert not bench.core.state.bags[bag].ended and list(bench.core.state.replicating) == [bag]


def test_started_tasks_make_no_pilot_ask_again_while_others_are_ready(bench: Bench) -> None:
    bench.submit(shape(4, expect=MEAN), replicate="tail-safe")
    pilot = bench.pilot(4)
    held = [attempt for attempt, _ in bench.take(pilot, 3)]
    version = bench.core.state.version
    bench.exchange(pilot, started=held)
    assert bench.core.state.version == version
    held = [attempt for attempt, _ in bench.take(pilot, 1)]
    version = bench.core.state.version
    bench.exchange(pilot, started=held)
    assert bench.core.state.version > version, "all have started: some may be late"


def test_open_bag_has_no_replicas_until_it_is_closed(bench: Bench) -> None:
    bag, _, _ = tail(bench, open=True)
    bench.wait(2 * MEAN)
    assert not granted(bench.exchange(bench.pilot(1, host="idle"), want=1))
    bench.step(e.Close(0, bag))
    assert granted(bench.exchange(bench.pilot(1, host="idle"), want=1))


def test_attempts_are_not_scanned_while_no_duration_is_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    plain = scan.late_times
    monkeypatch.setattr(scan, "late_times", lambda *args: looked.append(1) or plain(*args))
    for _ in range(3):
        bench.submit(shape(1), replicate="tail-safe")
        pilot = bench.pilot()
        bench.exchange(pilot, started=[attempt for attempt, _ in bench.take(pilot, 1)])
    assert not granted(bench.exchange(bench.pilot(1, host="idle"), want=1)) and not looked
    bench.submit(shape(1, expect=MEAN), replicate="tail-safe")
    pilot = bench.pilot()
    bench.exchange(pilot, started=[attempt for attempt, _ in bench.take(pilot, 1)])
    assert not granted(bench.exchange(bench.pilot(1, host="idle"), want=1)) and looked


@pytest.mark.parametrize("together", [1, 2])
def test_first_success_says_when_the_others_are_late(bench: Bench, together: int) -> None:
    """Before the first success no duration was known, and a pilot that asked was turned away; one success and several
    are different facts.
    """
    running(bench, 1, "tail-safe", expect=0, spare=together)
    quick, idle = bench.pilot(cores=2, host="quick"), bench.pilot(host="idle")
    held = [attempt for attempt, _ in bench.take(quick, together)]
    bench.exchange(quick, started=held)
    assert bench.exchange(idle, want=1, wait=20_000) is None
    bench.now += MEAN
    bench.exchange(quick, reports=[e.Report(attempt, wall=MEAN) for attempt in held])
    assert bench.core.state.pilots[idle].attempts_held == 0, "the task is not late yet"
    bench.wait(MEAN)
    assert bench.core.state.pilots[idle].attempts_held == 1


def test_first_success_corrects_a_wrong_estimate_of_the_bag(bench: Bench) -> None:
    _, held = running(bench, 2, "tail-safe", expect=1_000 * MEAN)
    idle = bench.pilot(host="idle")
    assert bench.exchange(idle, want=1, wait=20_000) is None
    bench.now += MEAN
    bench.report(*held[1], wall=MEAN)
    bench.wait(MEAN)
    assert bench.core.state.pilots[idle].attempts_held == 1


@pytest.mark.parametrize("replicate", ["tail-safe", "tail-fast"])
def test_cancelling_a_task_that_no_pilot_can_run_lets_the_rest_have_replicas(bench: Bench, replicate: str) -> None:
    bag = bench.submit(shape(1, expect=MEAN), shape(1, name="wide", cores=64), replicate=replicate)
    slow, idle = bench.pilot(host="slow"), bench.pilot(host="idle")
    bench.exchange(slow, started=[bench.take(slow, 1)[0][0]])
    bench.wait(2 * MEAN)
    assert bench.exchange(idle, want=1, wait=20_000) is None
    bench.do(e.Cancel(0, bag, [1]))
    assert bench.core.state.pilots[idle].attempts_held == 1


@pytest.mark.parametrize(("replicate", "replicas"), [("tail-fast", 1), ("tail-safe", 0)])
def test_target_behind_a_late_task_forbids_tail_safe_replicas(bench: Bench, replicate: str, replicas: int) -> None:
    """`tail-safe` waits until the last task of the bag has started, `tail-fast` does not."""
    bench.submit(shape(2, expect=MEAN), shape(5, name="merge", after=[0]), replicate=replicate)
    slow, quick, idle = [bench.pilot(host=host) for host in ("slow", "quick", "idle")]
    bench.exchange(slow, started=[bench.take(slow, 1)[0][0]])
    assert bench.task(1, 2) == "ready" and bench.explain(1, 2) == "its target waits for main"
    ((attempt, task),) = bench.take(quick, 1)
    assert task == 1, "ready tasks go before replicas"
    bench.exchange(quick, started=[attempt])
    bench.report(quick, attempt, wall=MEAN)
    assert bench.exchange(idle, want=1, wait=20_000) is None or replicas
    bench.wait(2 * MEAN)
    assert bench.core.state.pilots[idle].attempts_held == replicas


@pytest.mark.parametrize(("policy", "preset"), [
    (Policy(), "tail-safe"), (Policy(replicate="none"), "none"), (Policy(replicate="tail-fast"), "tail-fast"),
    (Policy(replicate="NumberOfReplicas < 3"), "none"),
])  # fmt: skip
def test_new_bag_has_tail_safe_unless_its_policy_says_otherwise(policy: Policy, preset: str) -> None:
    bag = Bag(name="bag", targets=[Target(command=["true"], source=Sweep())], policy=policy)
    event = submission(0, "ann", bag)
    assert event.replicate == preset and event.policy.get("replicate", preset) == policy.replicate


def test_journaled_bag_without_a_preset_has_no_replicas() -> None:
    assert {field.default for field in msgspec.structs.fields(f.BagSubmitted) if field.name == "replicate"} == {"none"}


# --- of several bags ------------------------------------------------------------------------------------------------


def bags(bench: Bench, pilot: int, want: int = 1) -> list[int]:
    attempts = bench.core.state.attempts
    return [attempts.task[attempts.row(attempt)] >> 32 for attempt, _ in bench.take(pilot, want)]


def test_replica_of_the_bag_with_the_highest_rank_goes_first(bench: Bench) -> None:
    plain, _ = running(bench, 2)
    mine, _ = running(bench, 2, policy={"rank": 'Host.Name == "mine" ? 5 : -5'})
    urgent, _ = running(bench, 2, priority=1)
    bench.wait(MEAN)
    assert bags(bench, bench.pilot(cores=6, host="mine"), 6) == [mine, mine, urgent, urgent, plain, plain]


def test_replica_at_a_shared_site_goes_to_the_owner_with_the_least_in_use(bench: Bench) -> None:
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    first, _ = running(bench, 3)
    his, _ = running(bench, 1, owner="bob")
    bench.wait(MEAN)
    assert [bags(bench, bench.pilot(host=f"i{n}")) for n in range(3)] == [[his], [first], [first]]


def test_each_bag_has_a_share_of_replicas_of_its_own(bench: Bench) -> None:
    """15 % of 3 tasks are one replica; the replica of the other bag does not count against it."""
    known = [running(bench, 3, "tail-safe")[0] for _ in range(2)]
    bench.wait(2 * MEAN)
    assert bags(bench, bench.pilot(cores=4), 4) == known


# --- several requests in one step -----------------------------------------------------------------------------------


def test_task_that_ends_in_the_same_step_has_no_replica(bench: Bench) -> None:
    _, held = running(bench, 4)
    bench.report(*held[3], wall=MEAN)  # the first success would bump the version
    one, two = bench.pilot(host="one"), bench.pilot(host="two")
    bench.wait(2 * MEAN)
    effects = bench.step(
        bench.asks(one, want=1),  # the scan of late tasks is made here
        bench.asks(held[1][0], reports=[e.Report(held[1][1])]),
        bench.asks(two, want=1),
    )
    tasks = [[task for _, task in granted(answer)] for pilot in (one, two) for answer in answers(effects, pilot)]
    assert tasks == [[0], [2]]


def test_last_start_allows_a_replica_in_the_same_step(bench: Bench) -> None:
    bench.submit(shape(2, expect=MEAN), replicate="tail-safe")
    slow, holds, idle = [bench.pilot(host=host) for host in ("slow", "holds", "idle")]
    bench.exchange(slow, started=[bench.take(slow, 1)[0][0]])
    ((last, _),) = bench.take(holds, 1)
    bench.wait(2 * MEAN)
    bench.step(bench.asks(idle, want=1, wait=20_000), bench.asks(holds, started=[last]))
    assert bench.core.state.pilots[idle].attempts_held == 1


def test_changed_policy_is_obeyed_from_the_next_request_of_the_same_step(bench: Bench) -> None:
    bag, _ = running(bench, 2, policy={"replicate": "true"})
    one, two = bench.pilot(host="one"), bench.pilot(host="two")
    bench.step(
        bench.asks(one, want=1), e.SetPolicy(0, bag, {"replicate": "NumberOfReplicas > 5"}), bench.asks(two, want=1)
    )
    assert [bench.core.state.pilots[pilot].attempts_held for pilot in (one, two)] == [1, 0]


@pytest.mark.parametrize("own", [63, 64, 200])
def test_late_tasks_of_the_asking_host_do_not_hide_others(own: int) -> None:
    b = Bench(lease=36_000_000, silence=360_000_000)
    b.submit(shape(own + 4, expect=MEAN), replicate="tail-fast")
    large, small = b.pilot(cores=256, host="large"), b.pilot(cores=4, host="small")
    b.exchange(large, started=[attempt for attempt, _ in b.take(large, own)])
    b.wait(10)
    b.exchange(small, started=[attempt for attempt, _ in b.take(small, 4)])
    b.wait(4 * MEAN)
    found: list[int] = []
    while more := b.take(large, 8):
        found += [task for _, task in more]
    assert sorted(found) == [*range(own, own + 4)]


def test_tail_safe_waits_for_a_last_task_of_whose_two_attempts_none_has_started() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    bag = b.submit(shape(40, expect=LONG_MEAN, retries=9), replicate="tail-safe", policy={"attempt-deadline": "60"})
    b.start("slow")
    ((_, task),) = b.take(b.pilot(host="mute"), 1)  # the pilot never reports the start
    b.finish("quick", 38, LONG_MEAN)
    b.wait(61_000)
    assert sorted(b.take(b.pilot(host=f"again{n}"), 1)[0][1] for n in range(2)) == [0, 1]
    b.wait(LATE - 60_000)
    attempts = b.core.state.attempts
    assert STARTED not in [attempts.state[row] for row in attempts.of_task(bag << 32 | task)]
    assert b.take(b.pilot(host="third"), 1) == []


def test_task_with_the_fewest_attempts_comes_first_even_at_its_own_site() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    for site in ("there", "third"):
        b.step(e.AddSite(0, site, "ann", "local"))
    b.submit(shape(40, expect=LONG_MEAN, retries=9), replicate="tail-safe")
    b.start("t1", site="there")
    b.start("h1", site="here")
    b.finish("quick", 38, LONG_MEAN)
    b.wait(LATE + 1_000)
    assert b.start("t2", site="third")[2] == 0, "task 0 has two attempts now"
    assert [task for _, task in b.take(b.pilot(host="h2", site="here"), 1)] == [1]


@pytest.mark.parametrize("mode", ["tail-fast", "tail-safe"])
def test_waiting_pilots_are_granted_as_many_replicas_as_the_preset_allows(mode: str) -> None:
    b = Bench(park=HOUR, lease=10 * HOUR, silence=20 * HOUR)
    bag = b.submit(shape(2, expect=1_000), policy={"replicate": mode, "replicas-share": "300%"})
    slow, quick, *idle = (b.pilot(host=host) for host in "abcd")
    ((held, _),) = b.take(slow, 1)
    b.report(quick, b.take(quick, 1)[0][0], wall=1_000)
    for pilot in idle:
        assert b.exchange(pilot, want=1, wait=HOUR) is None
    b.exchange(slow, started=[held])
    b.wait(600_000)
    assert b.core.state.bags[bag].tasks.live[0] == 3
    assert all(b.core.state.pilots[pilot].waiting_request is None for pilot in idle)


def test_replicas_go_to_matching_hosts_only() -> None:
    b = Bench()
    bag, _, _ = tail(b, policy={"requirements": 'Host.Name != "bad"'})
    bad, good = b.pilot(host="bad"), b.pilot(host="good")
    b.wait(2 * MEAN)
    assert bags(b, bad) == []
    assert bags(b, good) == [bag]
