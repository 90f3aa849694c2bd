"""Orders of the ready list per kind of host: kept while they hold, mended where a bag has changed, and never stale."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.decide.grant import host_orders
from windfall.core.decide.grant.host_orders import MINUTE, HostOrders
from windfall.core.expressions.rules import Rules
from windfall.core.messages import events as e


@pytest.fixture
def b() -> Bench:
    return Bench()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the bags whose rules the core evaluates."""
    seen: list[int] = []
    plain = Rules.admit

    def admit(self: Rules, subject: Any, published: Any) -> bool:
        seen.append(subject.bag.number)
        return plain(self, subject, published)

    monkeypatch.setattr(Rules, "admit", admit)
    monkeypatch.setattr(Bench, "checking", False)  # the check of waiting pilots evaluates rules, too
    return seen


def asks(b: Bench, pilot: int, made: list[int]) -> list[int]:
    """Let the pilot take one task; return the bags whose rules the core evaluated for it."""
    made.clear()
    assert len(b.take(pilot, 1)) == 1
    return list(made)


def test_expressions_are_evaluated_again_only_after_a_change(b: Bench, made: list[int]) -> None:
    b.submit(shape(100), policy={"requirements": "Host.Memory > 1", "rank": "Host.Cores"})
    pilot = b.pilot(cores=50)
    assert [asks(b, pilot, made) for _ in range(4)] == [[1], [], [], []]
    b.submit(shape(1))
    assert asks(b, pilot, made) == [1]


def test_bag_is_evaluated_again_only_when_its_own_attribute_has_changed(b: Bench, made: list[int]) -> None:
    for rank in (1, 2, 3):
        b.submit(shape(9), policy={"rank": f"{rank} + JobsWaiting / 1000.0"})
    one, other = b.pilot(cores=50), b.pilot(cores=50)
    assert asks(b, one, made) == [1, 2, 3]
    assert asks(b, other, made) == [3], "its hosts are alike: one order for both"
    assert asks(b, one, made) == [3]


def test_order_is_not_sorted_again_when_expressions_yield_the_same(b: Bench) -> None:
    """The core returns one list until it sorts the order again."""
    def order() -> object:
        return b.core.turn.grants.orders.order(b.core.state, b.now, b.core.state.pilots[pilot])

    b.submit(shape(9), policy={"rank": "JobsLeft > 0 ? 7 : 1", "requirements": "JobsWaiting > 0"})
    pilot = b.pilot(cores=50)
    first = order()
    for _ in range(5):
        b.take(pilot, 1)
        assert order() is first
    b.submit(shape(9), policy={"rank": "Host.Running"})
    orders = [order()]
    for _ in range(3):
        b.take(pilot, 1)
        orders.append(order())
        assert all(orders[-1] is not each for each in orders[:-1]), "the moment is another one each time"


def test_published_ad_holds_for_a_minute(b: Bench, made: list[int]) -> None:
    b.submit(shape(100), policy={"rank": "Host.Attempts", "requirements": "JobsLeft >= 0 || Host.ErrorRate < 0.5"})
    pilot = b.pilot(cores=2)
    ((attempt, _),) = b.take(pilot, 1)
    b.report(pilot, attempt)
    b.take(pilot, 1)
    assert {key for (key, _, _) in b.core.turn.grants.orders._orders.kept} == {(None, 0)}
    b.wait(MINUTE)
    b.take(pilot, 1)
    assert {key for (key, _, _) in b.core.turn.grants.orders._orders.kept} == {(None, 0), (0.0, 1)}


def test_waiting_pilots_change_no_order(b: Bench, made: list[int]) -> None:
    b.submit(shape(3), policy={"requirements": 'Host.Name != "odd" && Bag.Tasks > 1'})
    pilot, odd = b.pilot(cores=9), [b.pilot(host="odd") for _ in range(3)]
    b.take(pilot, 1)
    for each in odd:
        b.exchange(each, want=1, wait=20_000)
    version = b.core.state.version
    assert asks(b, pilot, made) == [] and version > 1


def test_order_that_depends_on_the_time_holds_for_a_second(b: Bench, made: list[int]) -> None:
    b.submit(shape(100), policy={"requirements": "Now > 0 && (Host.TimeLeft is undefined || Host.TimeLeft > 1)"})
    pilot = b.pilot(cores=50)
    b.take(pilot, 1)
    b.now += 999
    assert asks(b, pilot, made) == []
    b.now += 1
    assert asks(b, pilot, made) == [1] and len(b.core.turn.grants.orders._orders.kept) == 1


def test_alike_hosts_share_an_order_and_kept_orders_are_bounded(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        b.submit(shape(90), policy={"rank": "Host.Cores"})
    for number in range(5):
        b.take(b.pilot(host=f"h{number}"), 1)
    kept = b.core.turn.grants.orders._orders.kept
    assert len(kept) == 1
    b.do(e.SetPolicy(0, 2, {"requirements": 'Host.Name != "h3"'}, "ann"))
    monkeypatch.setattr(host_orders, "MOST_KEPT", 6)
    for number in range(5):
        b.take(b.pilot(host=f"h{number}"), 1)
        assert 1 <= len(kept) <= 3


# --- against orders made afresh -------------------------------------------------------------------------------------

TEXTS = (
    "Host.Cores", "JobsLeft", "-JobsDone", "Host.Load * 10 + JobsWaiting", "Tail ? 5 : 1", "Bag.Age", "Now % 7",
    "Host.Running", "Host.Attempts - JobsLeft", "Task.Expect", "Queue.Bags", "Host.ErrorRate", "Host.TimeLeft", "3",
)
NEEDS = (
    "Host.Running < 3", "!Tail || Host.Attempts > 2", "JobsDone % 3 != 1", "Now % 5 != 2", "Host.Cores > 1",
    'Host.Name != "h1"', "Task.Expect is undefined || Task.Expect < 50", "true", "Host.TimeLeft > 30",
)


def policy(r: random.Random) -> dict[str, str]:
    made = {"rank": r.choice(TEXTS), "requirements": r.choice(NEEDS), "sites": 'Site.Name == "here"'}
    return {key: text for key, text in made.items() if r.random() < 0.7}


def act(b: Bench, r: random.Random, pilots: list[int], held: list[tuple[int, int]]) -> None:
    state = b.core.state
    bags = [number for number, bag in state.bags.items() if not bag.ended]
    what = r.random()
    if what < 0.08 and len(bags) < 9:
        b.submit(shape(r.randrange(1, 15), priority=r.randrange(3)), owner=r.choice(("ann", "bob")), policy=policy(r))
    elif what < 0.16 and bags:
        b.do(e.SetPolicy(0, r.choice(bags), policy(r), ""))
    elif what < 0.2 and bags:
        b.do(e.Pause(0, r.choice(bags), r.random() < 0.5))
    elif what < 0.6 or not held:
        pilot = r.choice(pilots)
        answer = b.exchange(pilot, want=r.randrange(1, 4), wait=r.choice((0, 0, 500)))
        if answer is not None:
            held += [(pilot, a) for _, groups in answer.grants for group in groups for a in group.attempts]
    elif what < 0.9:
        pilot, attempt = held.pop(r.randrange(len(held)))
        b.report(pilot, attempt, r.choice(("succeeded", "succeeded", "failed")), wall=r.randrange(90_000))
    else:
        b.now += r.choice((10, 300, 900, 2_000, 30_000))
        b.step()


@pytest.mark.parametrize("seed", range(12))
def test_kept_order_equals_a_fresh_one(b: Bench, seed: int) -> None:
    r = random.Random(seed)
    b.do(e.ShareSite(0, "here", ["bob"], [], "ann"))
    pilots = [b.pilot(cores=r.randrange(1, 5), host=f"h{n}", left=r.choice((None, 90_000_000))) for n in range(4)]
    held: list[tuple[int, int]] = []
    compared = 0
    for _ in range(150):
        act(b, r, pilots, held)
        for pilot in pilots:
            there = b.core.state.pilots[pilot]
            if b.core.state.ready_with_expressions and r.random() < 0.3:
                afresh, core = HostOrders(), b.core
                kept = core.turn.grants.orders
                afresh._ads = kept._ads
                assert kept.order(core.state, core.now, there) == afresh.order(core.state, core.now, there)
                compared += 1
    assert compared > 40


@pytest.mark.parametrize("rank", ["Now % {}", "Bag.Age % {}", "Host.Cores + Now % {}"])
def test_many_expressions_of_the_time_are_evaluated_once_in_three_seconds(b: Bench, made: list[int], rank: str) -> None:
    """Otherwise evaluations would grow with bags × hosts every second."""
    many = 3 * host_orders.TIMED_AT_ONCE
    for n in range(many):
        b.submit(shape(9, expect=60_000), policy={"rank": rank.format(n + 2), "requirements": "true"})
    pilot = b.pilot(cores=64)
    b.wait(3_000 - b.now % 3_000)
    counts = []
    for _ in range(6):
        counts.append(len(asks(b, pilot, made)))
        b.wait(1_000)
    assert sum(count >= many for count in counts) == 2, counts


def test_time_left_is_never_taken_for_longer_than_it_is(b: Bench) -> None:
    for n in range(2 * host_orders.TIMED_AT_ONCE):
        b.submit(shape(1, expect=1_000), policy={"requirements": f"Host.TimeLeft > 600 && Now > {n}"})
    assert b.take(b.pilot(left=600_500), 1) == []
    targets = [shape(1, name=f"t{n}", expect=1_000) for n in range(2 * host_orders.TIMED_AT_ONCE)]
    b = Bench()
    b.submit(*targets, policy={"requirements": "Host.TimeLeft >= 600"})
    assert len(b.take(b.pilot(left=600_500), 1)) == 1, "one bag is not many, however many targets it has"
