"""How many tasks of a bag one host may hold at once."""

from __future__ import annotations

import random

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.decide.grant.per_host import Held, held
from windfall.core.decide.replicas.by_deadline import NEVER, deadline_span
from windfall.core.messages import events as e


@pytest.fixture
def b() -> Bench:
    return Bench(lease=3_600_000, silence=36_000_000)


def bags(b: Bench, pilot: int, want: int = 100) -> list[int]:
    state = b.core.state.attempts
    return [state.task[state.row(attempt)] >> 32 for attempt, _ in b.take(pilot, want)]


def test_no_more_than_so_many_on_a_host_whatever_it_has_room_for(b: Bench) -> None:
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


def test_of_all_pilots_of_the_host_together(b: Bench) -> None:
    b.submit(shape(20), policy={"per-host": "3"})
    assert [len(b.take(b.pilot(cores=2, host="one"), 2)) for _ in range(3)] == [2, 1, 0]
    assert len(b.take(b.pilot(cores=8, host="two"))) == 3


def test_of_all_targets_of_the_bag_in_one_answer(b: Bench) -> None:
    b.submit(shape(2), shape(2, name="more"), policy={"per-host": "3"})
    assert len(b.take(b.pilot(cores=8))) == 3


def test_others_have_the_rest_but_nothing_ahead(b: Bench) -> None:
    """Tasks of which nobody knows how long they take are sent one ahead for each slot."""
    plain = Bench()
    plain.submit(shape(20))
    assert len(plain.take(plain.pilot(cores=4))) == 8
    first = b.submit(shape(20, priority=1), policy={"per-host": "1"})
    second = b.submit(shape(20))
    assert bags(b, b.pilot(cores=4)) == [first, second, second, second]


def test_it_may_depend_on_the_host_and_the_time(b: Bench) -> None:
    b.submit(shape(50), policy={"per-host": "Bag.Age < 60 ? Host.Cores / 2 : 2 * Host.Cores"})
    pilot = b.pilot(cores=4)
    assert len(b.take(pilot)) == 2
    b.wait(60_000)
    assert len(b.take(pilot)) == 6


@pytest.mark.parametrize(("text", "most"), [("Host.ErrorRate", 8), ("1/0", 8), ("0", 0), ("-3", 0), ("1.9", 1)])
def test_what_is_undefined_is_no_limit_and_none_are_none(b: Bench, text: str, most: int) -> None:
    b.submit(shape(20), policy={"per-host": text})
    assert len(b.take(b.pilot(cores=4))) == most


def test_replicas_and_what_is_overdue_count_too(b: Bench) -> None:
    policy = {"per-host": "1", "attempt-deadline": "60", "replicate": "true"}
    b.submit(shape(2), policy=policy)
    one, two = b.pilot(cores=4, host="one"), b.pilot(cores=4, host="two")
    assert [len(b.take(pilot)) for pilot in (one, two)] == [1, 1]
    assert [len(b.take(pilot)) for pilot in (one, two)] == [0, 0], "each could have the other's"
    b.wait(61_000)
    assert [len(b.take(pilot)) for pilot in (one, two)] == [0, 0]
    assert len(b.take(b.pilot(cores=4, host="three"))) == 1


def test_what_a_host_holds_is_counted_once_for_an_answer(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many bags have had their part: a request must not cost a pass over all attempts for each."""
    known = [b.submit(shape(9), policy={"per-host": "2"}) for _ in range(20)]
    pilots = [b.pilot(cores=25, host="host") for _ in range(2)]
    assert [bags(b, pilot, 20) for pilot in pilots] == [[bag for bag in half for _ in "ab"] for half in
                                                         (known[:10], known[10:])]
    counted = []
    plain = Held._count
    monkeypatch.setattr(Held, "_count", lambda self: counted.append(1) or plain(self))
    assert bags(b, pilots[0]) == [] and len(counted) == 1


def test_changed_while_the_bag_runs(b: Bench) -> None:
    bag = b.submit(shape(20))
    pilot = b.pilot(cores=4)
    b.do(e.SetPolicy(0, bag, {"per-host": "2"}))
    assert len(b.take(pilot)) == 2
    b.restart()
    b.do(e.SetPolicy(0, bag, {"per-host": ""}))
    assert len(b.take(pilot)) == 6


def test_a_deadline_may_speak_of_it(b: Bench) -> None:
    """Figure 3 of GridBot."""
    bag = b.submit(shape(9), policy={"attempt-deadline": "Concurrency * 2000", "per-host": "2 * Host.NumCpus"})
    state, pilot = b.core.state, b.pilot(cores=4)
    assert deadline_span(b.core.turn, state.classes[1], state.pilots[pilot]) == 16_000_000
    b.do(e.SetPolicy(0, bag, {"per-host": ""}))
    assert deadline_span(b.core.turn, state.classes[1], state.pilots[pilot]) == NEVER


@pytest.mark.parametrize("seed", range(8))
def test_it_holds_after_every_step_whatever_happens(seed: int) -> None:
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
