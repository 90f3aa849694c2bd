"""The tail of a bag: when it begins, how much a pilot is granted, which hosts go first, and the expected end."""

from __future__ import annotations

import random

import pytest

from tests.core.conftest import HOUR, PATIENT, Bench, answers, granted, shape, tasks_by_bag
from windfall.core.decide.replicas import tail
from windfall.core.decide.replicas.tail import expected_ends
from windfall.core.messages import events as e
from windfall.core.read.views import bag_view

MINUTE = 60_000


@pytest.fixture
def b() -> Bench:
    return Bench(lease=3_600_000, silence=36_000_000, park=3_600_000)


def test_grants_shrink_to_one_task_in_the_tail(b: Bench) -> None:
    b.submit(shape(20, expect=MINUTE), replicate="tail-safe")
    assert [len(b.take(b.pilot(cores=4, host=f"h{n}"))) for n in range(3)] == [4, 4, 4]
    last = b.pilot(cores=4, host="last")
    assert [len(b.take(last)) for _ in range(5)] == [1, 1, 1, 1, 0], "8 wait, 12 are out"


def test_tail_goes_on_when_tasks_are_returned(b: Bench) -> None:
    """The bag has no policy of its own."""
    bag = b.submit(shape(4, expect=MINUTE, retries=9), replicate="tail-safe")
    pilot = b.pilot(cores=4, host="first")
    held = b.take(pilot)
    for attempt, _ in held[:3]:
        b.report(pilot, attempt, "returned", "recall")
    assert b.core.state.bags[bag].in_tail, "three wait, and one is out"
    for made in (b.snapshot(), None):
        b.restart(made)
    assert len(b.take(b.pilot(cores=4, host="second"))) == 1


@pytest.mark.parametrize(("replicate", "expect"), [("none", MINUTE), ("tail-safe", 100)])
def test_grants_do_not_shrink_for_short_tasks_or_without_replicas(b: Bench, replicate: str, expect: int) -> None:
    b.submit(shape(100, expect=expect), replicate=replicate)
    b.take(b.pilot(cores=60, host="first"), 60)
    assert len(b.take(b.pilot(cores=4, host="last"), 4)) == 4


def known(b: Bench, host: str, wall: int, outcomes: str) -> None:
    """Give a host a record of outcomes: s for success, f for failure."""
    pilot = b.pilot(host=host)
    for each in outcomes:
        ((attempt, _),) = b.take(pilot, 1)
        b.report(pilot, attempt, "succeeded" if each == "s" else "failed", wall=wall)
    b.exchange(pilot, bye="idle")


def test_reliable_and_fast_hosts_come_first(b: Bench) -> None:
    b.submit(shape(60, retries=100))
    for _ in range(3):
        known(b, "usual", MINUTE, "ssss")
        known(b, "fast", MINUTE // 4, "ssss")
        known(b, "fickle", MINUTE // 9, "ssf")
    rest = b.pilot(cores=60, host="rest")
    for attempt, _ in b.take(rest):
        b.report(rest, attempt)
    b.exchange(rest, bye="idle")
    bag = b.submit(shape(9, expect=MINUTE, retries=9), replicate="tail-safe")
    busy = b.pilot(cores=9, host="busy")
    held = b.take(busy)
    waiting = {host: b.pilot(host=host) for host in ("fickle", "usual", "fast")}
    for pilot in waiting.values():
        assert b.exchange(pilot, want=1, wait=3_600_000) is None
    order = []
    for attempt, _ in held[:3]:
        b.report(busy, attempt, "returned", "recall")
        order += [host for host, pilot in waiting.items() if any(granted(a) for a in answers(b.effects, pilot))]
    assert order == ["fast", "usual", "fickle"]
    assert b.core.state.bags[bag].in_tail


def test_reliable_hosts_come_first_among_hundreds_that_wait(b: Bench) -> None:
    """The core finds the first few hosts without sorting all; the order is the same."""
    pilots = [b.pilot(host=f"host{n}") for n in range(3 * tail.SORTED_FIRST)]
    for pilot in pilots:
        assert b.exchange(pilot, want=1, wait=3_600_000) is None
    draw, h = random.Random(7), b.core.state.hosts
    for pilot in pilots:
        row = b.core.state.pilots[pilot].row
        h.attempts[row], h.losses[row] = draw.choice((3, 9)), draw.choice((0, 2))
        h.speed[row] = draw.choice((0, 0.5, 3))
    rows = {pilot: b.core.state.pilots[pilot].row for pilot in pilots}
    expected = sorted(pilots, key=lambda pilot: (h.attempts[rows[pilot]] == 9 and h.losses[rows[pilot]] == 2,
                                                 -(h.speed[rows[pilot]] or 1)))
    assert list(tail.reliable_hosts_first(b.core.state, [*b.core.state.pilot_classes.values()])) == expected


def test_expected_end_of_a_bag_is_estimated_and_explained(b: Bench) -> None:
    bag = b.submit(shape(3, expect=10 * MINUTE))
    view = bag_view(b.core.state, b.now, bag)
    assert (view["tail"], view["expected"]) == (False, None)
    pilot = b.pilot(cores=3)
    held = b.take(pilot)
    b.exchange(pilot, started=[held[0][0]])
    began = b.now
    b.wait(4 * MINUTE)
    b.exchange(pilot, started=[held[1][0], held[2][0]])
    assert expected_ends(b.core.state, b.now, b.core.state.bags[bag])[0] == began + 10 * MINUTE
    view = bag_view(b.core.state, b.now, bag)
    assert (view["tail"], view["expected"]) == (True, b.now + 10 * MINUTE)
    assert b.explain(bag, 0) == "running on host (here), expected to end in 6 min"
    b.wait(8 * MINUTE)
    assert b.explain(bag, 0).startswith("running on host (here), expected to have ended 2 min ago; with replicate")
    b.wait(8 * MINUTE)
    assert bag_view(b.core.state, b.now, bag)["expected"] == b.now, "not in the past"
    for attempt, _ in held:
        b.report(pilot, attempt)
    assert (bag_view(b.core.state, b.now, bag)["tail"], bag_view(b.core.state, b.now, bag)["expected"]) == (False, None)


def test_expected_end_is_that_of_the_attempt_on_the_fastest_host(b: Bench) -> None:
    b.submit(shape(4))
    known(b, "slow", MINUTE, "s")
    known(b, "fast", MINUTE // 4, "sss")
    state = b.core.state
    speeds = {host: state.hosts.speed[state.host_rows["here", host]] for host in ("slow", "fast")}
    assert speeds["fast"] > 1.1 > speeds["slow"]
    bag = b.submit(shape(1, expect=10 * MINUTE), replicate="tail-fast")
    pilots = {host: b.pilot(host=host) for host in ("slow", "fast")}
    for pilot in pilots.values():
        b.exchange(pilot, started=[b.take(pilot, 1)[0][0]])
    assert expected_ends(state, b.now, state.bags[bag]) == {0: b.now + round(10 * MINUTE / speeds["fast"])}
    said = b.explain(bag, 0)
    assert said.startswith("running on slow (here), expected to end in 10 min; running on fast (here), expected to end")


def test_bag_without_a_known_duration_has_no_expected_end(b: Bench) -> None:
    bag = b.submit(shape(1))
    pilot = b.pilot()
    b.exchange(pilot, started=[b.take(pilot)[0][0]])
    assert b.explain(bag, 0) == "running on host (here)"
    assert bag_view(b.core.state, b.now, bag)["expected"] is None


def test_pilot_that_ends_the_last_unstarted_task_is_granted_the_late_one(bench: Bench) -> None:
    """Another pilot asked before it in the same step, when no task was late yet."""
    bag = bench.submit(shape(3), replicate="tail-safe")
    bench.step(e.AddSite(0, "there", "ann", "local"))
    stuck, fine = bench.pilot(host="stuck"), bench.pilot(host="fine", site="there")
    [(first, _)] = bench.take(stuck, want=1)
    bench.exchange(stuck, started=[first])
    bench.wait(500)
    [(other, _)] = bench.take(fine, want=1)
    bench.report(fine, other, wall=3)
    [(last, _)] = bench.take(fine, want=1)
    reports = [e.Report(last, "succeeded", "", wall=3)]
    asks = bench.asks(fine, reports=reports, want=9)
    effects = bench.step(bench.asks(stuck, want=9, wait=20_000), asks)
    assert bench.tasks(bag) == "ass"
    assert [task for each in effects if each.key == asks.key for _, task in granted(each)] == [0], "at once"


def test_rest_of_a_tail_is_not_overtaken_by_a_lower_bag() -> None:
    """Each answer brings one task of the tail, and no task of the lower bag before the last of these."""
    b = Bench(**PATIENT)
    high = b.submit(shape(8, priority=9, expect=HOUR), replicate="tail-safe")
    low = b.submit(shape(100, priority=1, expect=10 * HOUR))
    b.take(b.pilot(cores=5, host="first"), 5)
    other = b.pilot(cores=4, host="other")
    grants = [tasks_by_bag(b.exchange(other, want=4)) for _ in range(3)]
    assert grants == [[(high, 1)], [(high, 1)], [(high, 1), (low, 1)]]


def test_poll_waiting_beside_a_report_gets_the_rest_of_a_tail() -> None:
    b = Bench(**PATIENT)
    b.submit(shape(12, priority=9, expect=HOUR), replicate="tail-safe")
    pilot = b.pilot(cores=2, host="a")
    first = b.take(pilot, 2)
    b.take(b.pilot(cores=6, host="b"), 6)
    b.exchange(pilot, want=4, wait=20_000)  # a poll that waits while both cores are busy
    seen = b.step(b.asks(pilot, reports=[e.Report(attempt, "succeeded", "", wall=HOUR) for attempt, _ in first]))
    given = [task for answer in answers(seen, pilot) for _, task in granted(answer)]
    assert set(given) == {8, 9} and b.core.state.pilots[pilot].attempts_held == 2


# --- when the tail begins and ends ----------------------------------------------------------------------------------


def test_tail_begins_when_fewer_tasks_wait_than_run_and_goes_on() -> None:
    b = Bench()
    bag = b.submit(shape(5, retries=9), policy={"rank": "0"})
    state = b.core.state.bags[bag]
    pilots = [b.pilot() for _ in range(5)]
    seen = []
    held = []
    for pilot in pilots:
        seen.append(state.in_tail)
        held += [(pilot, attempt) for attempt, _ in b.take(pilot, 1)]
    assert seen == [False, False, False, True, True]
    for pilot, attempt in held[:4]:
        b.report(pilot, attempt, "failed")
    assert state.in_tail  # four tasks wait and one runs: the tail goes on
    b.report(held[4][0], held[4][1])
    assert state.in_tail


def test_appended_tasks_end_the_tail() -> None:
    b = Bench()
    bag = b.submit(shape(2), open=True, policy={"rank": "0"})
    state = b.core.state.bags[bag]
    b.take(b.pilot(cores=2), 2)
    assert not state.in_tail  # an open bag may get more tasks
    b.do(e.Close(0, bag))
    assert state.in_tail
    b.do(e.Append(0, "ann", bag, 0, 10, "", b"source", extends=True, seen=0))
    assert not state.in_tail
