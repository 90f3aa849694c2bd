"""`per-host`: how many tasks of a bag one host may hold at once."""

from __future__ import annotations

import random

import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, answers, granted, shape, tasks_by_bag
from windfall.core.decide.grant.per_host import Held, held
from windfall.core.decide.replicas.by_deadline import NEVER, deadline_span
from windfall.core.messages import events as e, facts as f


@pytest.fixture
def b() -> Bench:
    return Bench(lease=3_600_000, silence=36_000_000)


def bags(b: Bench, pilot: int, want: int = 100) -> list[int]:
    state = b.core.state.attempts
    return [state.task[state.row(attempt)] >> 32 for attempt, _ in b.take(pilot, want)]


def test_host_holds_at_most_the_limit_whatever_its_room(b: Bench) -> None:
    bag = b.submit(shape(20), policy={"per-host": "3"})
    pilot = b.pilot(cores=8)
    attempts = b.take(pilot)
    assert len(attempts) == 3
    assert b.take(pilot) == []
    b.report(pilot, attempts[0][0])
    assert len(b.take(pilot)) == 1
    assert "at most 3 of the bag on one host, there are 3" in str(clauses(b, bag))
    assert b.explain(bag).startswith("all suitable pilots are busy")


def clauses(b: Bench, bag: int) -> list[dict[str, object]]:
    from windfall.core.read.explain import explain

    return [clause for site in explain(b.core.state, b.now, bag, 5)["sites"] for clause in site["clauses"]]


def test_limit_counts_all_pilots_of_a_host_together(b: Bench) -> None:
    b.submit(shape(20), policy={"per-host": "3"})
    assert [len(b.take(b.pilot(cores=2, host="one"), 2)) for _ in range(3)] == [2, 1, 0]
    assert len(b.take(b.pilot(cores=8, host="two"))) == 3


def test_limit_counts_all_targets_of_a_bag_in_one_answer(b: Bench) -> None:
    b.submit(shape(2), shape(2, name="more"), policy={"per-host": "3"})
    assert len(b.take(b.pilot(cores=8))) == 3


def test_limited_bag_leaves_the_rest_of_its_host_to_others_without_prefetch(b: Bench) -> None:
    """Without the limit, a pilot prefetches one task of unknown duration per slot."""
    plain = Bench()
    plain.submit(shape(20))
    assert len(plain.take(plain.pilot(cores=4))) == 8
    first = b.submit(shape(20, priority=1), policy={"per-host": "1"})
    second = b.submit(shape(20))
    assert bags(b, b.pilot(cores=4)) == [first, second, second, second]


def test_limit_may_depend_on_the_host_and_the_time(b: Bench) -> None:
    b.submit(shape(50), policy={"per-host": "Bag.Age < 60 ? Host.Cores / 2 : 2 * Host.Cores"})
    pilot = b.pilot(cores=4)
    assert len(b.take(pilot)) == 2
    b.wait(60_000)
    assert len(b.take(pilot)) == 6


@pytest.mark.parametrize(("text", "most"), [("Host.ErrorRate", 8), ("1/0", 8), ("0", 0), ("-3", 0), ("1.9", 1)])
def test_undefined_limit_bounds_nothing_and_a_limit_below_one_admits_nothing(b: Bench, text: str, most: int) -> None:
    b.submit(shape(20), policy={"per-host": text})
    assert len(b.take(b.pilot(cores=4))) == most


def test_replicas_and_overdue_tasks_count_towards_the_limit(b: Bench) -> None:
    policy = {"per-host": "1", "attempt-deadline": "60", "replicate": "true"}
    b.submit(shape(2), policy=policy)
    one, two = b.pilot(cores=4, host="one"), b.pilot(cores=4, host="two")
    assert [len(b.take(pilot)) for pilot in (one, two)] == [1, 1]
    assert [len(b.take(pilot)) for pilot in (one, two)] == [0, 0], "each host could have the other's task"
    b.wait(61_000)
    assert [len(b.take(pilot)) for pilot in (one, two)] == [0, 0]
    assert len(b.take(b.pilot(cores=4, host="three"))) == 1


def test_attempts_of_a_host_are_counted_once_for_an_answer(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a request would cost a pass over all attempts for each bag at its limit."""
    known = [b.submit(shape(9), policy={"per-host": "2"}) for _ in range(20)]
    pilots = [b.pilot(cores=25, host="host") for _ in range(2)]
    assert [bags(b, pilot, 20) for pilot in pilots] == [[bag for bag in half for _ in "ab"] for half in
                                                         (known[:10], known[10:])]
    counted = []
    plain = Held._count
    monkeypatch.setattr(Held, "_count", lambda self: counted.append(1) or plain(self))
    assert bags(b, pilots[0]) == [] and len(counted) == 1


def test_limit_may_change_while_the_bag_runs(b: Bench) -> None:
    bag = b.submit(shape(20))
    pilot = b.pilot(cores=4)
    b.do(e.SetPolicy(0, bag, {"per-host": "2"}))
    assert len(b.take(pilot)) == 2
    b.restart()
    b.do(e.SetPolicy(0, bag, {"per-host": ""}))
    assert len(b.take(pilot)) == 6


def test_attempt_deadline_may_refer_to_the_limit(b: Bench) -> None:
    """The deadline of figure 3 in the GridBot paper."""
    bag = b.submit(shape(9), policy={"attempt-deadline": "Concurrency * 2000", "per-host": "2 * Host.NumCpus"})
    state, pilot = b.core.state, b.pilot(cores=4)
    assert deadline_span(b.core.turn, state.classes[1], state.pilots[pilot]) == 16_000_000
    b.do(e.SetPolicy(0, bag, {"per-host": ""}))
    assert deadline_span(b.core.turn, state.classes[1], state.pilots[pilot]) == NEVER


@pytest.mark.parametrize("seed", range(8))
def test_limit_holds_after_every_step_of_a_random_run(seed: int) -> None:
    b, r = Bench(), random.Random(seed)
    most = {b.submit(shape(60, retries=50), policy={"per-host": str(n)}, replicate="tail-fast"): n for n in (1, 2, 5)}
    b.submit(shape(30))
    pilots = [b.pilot(cores=r.randint(1, 6), host=f"h{n % 3}") for n in range(7)]
    attempts: dict[int, list[int]] = {pilot: [] for pilot in pilots}
    for _ in range(150):
        pilot = r.choice(pilots)
        if attempts[pilot] and r.random() < 0.6:
            b.report(pilot, attempts[pilot].pop(), r.choice(("succeeded", "failed")))
        attempts[pilot] += [attempt for attempt, _ in b.take(pilot, r.randint(1, 9))]
        for bag, limit in most.items():
            assert all(held(b.core.state, bag, row) <= limit for row in b.core.state.on_host)
    b.restart()


def test_bag_at_its_limit_keeps_no_core_of_the_host_free() -> None:
    """The wide bag is at its limit, so the cores that are too few for its tasks go to the narrow one."""
    b = Bench(**PATIENT)
    wide = b.submit(shape(50, cores=2, priority=9, expect=HOUR), policy={"per-host": "1"})
    narrow = b.submit(shape(50, priority=1, expect=HOUR))
    pilot = b.pilot(cores=4)
    answer = b.exchange(pilot, want=9)
    assert tasks_by_bag(answer) == [(wide, 1), (narrow, 2)]
    last = granted(answer)[-1][0]
    again = b.exchange(pilot, reports=[e.Report(last, "succeeded", "", wall=HOUR)], want=9, wait=20_000)
    assert tasks_by_bag(again) == [(narrow, 1)]


def test_bag_that_selects_by_data_keeps_to_its_limit() -> None:
    b = Bench()
    b.do(
        e.Submit(
            0,
            "ann",
            "bag",
            "",
            b"spec",
            [shape(8)],
            False,
            "data-conscious",
            False,
            data_selection=f.DataSelection(),
            policy={"per-host": "1"},
        )
    )
    assert len(granted(b.exchange(b.pilot(cores=4), want=8))) == 1


def is_waiting(b: Bench, pilot: int) -> bool:
    return b.core.state.pilots[pilot].waiting_request is not None


def test_host_at_the_limit_of_a_bag_has_room_for_others() -> None:
    b = Bench()
    first, second = b.pilot(cores=2, host="h"), b.pilot(cores=2, host="h")
    b.submit(shape(1), policy={"rank": "3"})
    b.exchange(first, started=[b.take(first, 1)[0][0]])
    b.submit(shape(2, cores=2, expect=600_000), policy={"rank": "2", "per-host": "1"})
    assert b.exchange(first, want=1, wait=20_000) is None, "the bag with rank 2 needs two cores"
    low = b.submit(shape(2, expect=600_000), policy={"rank": "1", "per-host": "9"})
    b.take(second, 1)
    b.wait(1_000)
    assert b.tasks(low).count("a") == 1 and not is_waiting(b, first)


def test_waiting_pilot_is_woken_when_another_pilot_of_its_host_makes_room() -> None:
    b = Bench(**PATIENT, park=10 * HOUR)
    b.submit(shape(5), policy={"per-host": "1"})
    one, two = b.pilot(host="h"), b.pilot(host="h")
    ((attempt, _),) = b.take(one, 1)
    assert b.exchange(two, want=1, wait=HOUR) is None
    b.exchange(one, reports=[e.Report(attempt, "succeeded", wall=100)], bye="idle")
    assert [task for answer in answers(b.effects, two) for _, task in granted(answer)] == [1]
