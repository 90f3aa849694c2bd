"""Whose task goes first where several share a site, and that no bag waits for ever (A11)."""

from __future__ import annotations

import random

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.decide.grant.fair_share import _parts
from windfall.core.messages import events as e

DAY = 24_000  # ms, here


@pytest.fixture
def b() -> Bench:
    return shared()


def shared(*others: str, **config: int) -> Bench:
    b = Bench(lease=3_600_000, silence=36_000_000, **config)
    b.step(e.AddSite(0, "here", "ann", "local", list(others or ("bob",))))
    return b


def owners(b: Bench, pilot: int, want: int = 1_000) -> str:
    return "".join(b.core.state.bags[bag].owner[0] for bag in bags(b, pilot, want))


def bags(b: Bench, pilot: int, want: int = 1_000) -> list[int]:
    state = b.core.state.attempts
    return [state.task[state.row(attempt)] >> 32 for attempt, _ in b.take(pilot, want)]


# --- between owners -----------------------------------------------------------------------------------------------


def test_a_large_pilot_is_shared(b: Bench) -> None:
    b.submit(shape(100, priority=9))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("aaaabbbb")


def test_by_weight(b: Bench) -> None:
    b.do(e.SetWeight(0, "bob", 3))
    b.submit(shape(100))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("aabbbbbb")
    b.restart()
    b.restart(b.snapshot())
    assert sorted(owners(b, b.pilot(cores=4, host="other"))) == list("abbb")


def test_who_has_less_in_use_goes_first_whenever_a_slot_falls_free(b: Bench) -> None:
    b.submit(shape(100))
    assert owners(b, b.pilot(cores=3)) == "aaa" * 2, "she was alone; some are sent ahead"
    b.submit(shape(100), owner="bob")
    assert [owners(b, b.pilot(host=f"h{n}")) for n in range(8)] == list("bbbbbbab")


def test_what_one_cannot_use_goes_to_the_others(b: Bench) -> None:
    b.submit(shape(2))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("aabbbbbb")
    b.submit(shape(3, memory=1 << 40))
    assert set(owners(b, b.pilot(cores=2, host="other"))) == {"b"}


def test_what_is_used_elsewhere_counts_for_nothing(b: Bench) -> None:
    b.step(e.AddSite(0, "hers", "ann", "local"))
    b.submit(shape(100))
    b.take(b.pilot(cores=8, site="hers", host="own"))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("aaaabbbb")


def test_wide_tasks_count_by_their_cores(b: Bench) -> None:
    b.submit(shape(100, cores=4))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("abbbb")


def test_nothing_is_sent_ahead_while_another_has_something_to_do(b: Bench) -> None:
    b.submit(shape(1_000, expect=1))
    b.submit(shape(1_000, expect=3_600_000), owner="bob")
    pilot = b.pilot(cores=2)
    assert len(b.take(pilot)) == 2


def test_shared_later_or_no_more(b: Bench) -> None:
    lone = Bench(lease=3_600_000)
    lone.submit(shape(100))
    lone.take(lone.pilot(cores=2), 2)
    lone.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    lone.submit(shape(100), owner="bob")
    assert lone.core.state.sites["here"].cores_in_use == {"ann": 2_000}
    assert [owners(lone, lone.pilot(host=f"h{n}")) for n in range(3)] == list("bba")
    lone.step(e.AddSite(0, "here", "ann", "local", []))
    assert lone.core.state.sites["here"].cores_in_use == {}
    lone.restart()


@pytest.mark.parametrize(("have", "more", "parts"), [
    ([(0, 1), (0, 1)], 10, [5, 5]), ([(0, 1), (4, 1)], 10, [7, 3]), ([(0, 1), (20, 1)], 10, [10, 0]),
    ([(0, 3), (0, 1)], 8, [6, 2]), ([(0, 1), (2, 1), (90, 1)], 4, [3, 1, 0]), ([(5, 1)], 3, [3]),
])  # fmt: skip
def test_parts(have: list[tuple[int, int]], more: int, parts: list[int]) -> None:
    assert _parts(have, more) == parts


@pytest.mark.parametrize("seed", range(12))
def test_every_slot_goes_to_who_has_the_least_for_his_weight(seed: int) -> None:
    """The property itself, over random weights, bags, ranks, ends and losses."""
    b, r = shared("bob", "cat"), random.Random(seed)
    weights = {owner: r.choice((1, 1, 2, 5)) for owner in ("ann", "bob", "cat")}
    for owner, weight in weights.items():
        b.do(e.SetWeight(0, owner, weight))
    for owner in weights:
        for _ in range(2):
            tasks = shape(150, retries=100, priority=r.randrange(5))
            b.submit(tasks, owner=owner, policy={"rank": str(r.randrange(9))})
    pilots = [b.pilot(host=f"h{n}") for n in range(12)]
    holds: dict[int, int] = {}
    for _ in range(250):
        pilot = r.choice(pilots)
        if pilot in holds:
            b.report(pilot, holds.pop(pilot), r.choice(("succeeded", "succeeded", "failed")))
        before = dict(b.core.state.sites["here"].cores_in_use)
        got = b.take(pilot, 1)
        if got:
            holds[pilot] = got[0][0]
            state = b.core.state
            mine = state.bags[state.attempts.task[state.attempts.row(got[0][0])] >> 32].owner
            ready = [o for o in weights if any(c.on_ready_list for x in state.bags.values() if x.owner == o
                                               for c in x.classes.values())]
            least = min(before.get(owner, 0) / weights[owner] for owner in {*ready, mine})
            assert before.get(mine, 0) / weights[mine] == least


@pytest.mark.parametrize("seed", range(6))
def test_within_one_owner_rank_is_strict(seed: int) -> None:
    """No task of a lower bag goes anywhere while one of a higher bag is ready that could."""
    b, r = shared(), random.Random(seed)
    ranks = {b.submit(shape(30, retries=100), owner=owner, policy={"rank": str(rank)}): (owner, rank)
             for owner in ("ann", "bob") for rank in r.sample(range(100), 4)}
    pilots = [b.pilot(host=f"h{n}", cores=r.randint(1, 4)) for n in range(6)]
    for _ in range(120):
        pilot = r.choice(pilots)
        for attempt in [a for a in b.core.state.attempts.of_pilot(pilot).tolist() if r.random() < 0.5]:
            number = b.core.state.attempts.number[attempt]
            b.report(pilot, number, r.choice(("succeeded", "failed")))
        ready = {bag: b.core.state.bags[bag].counts[0] for bag in ranks}
        for bag in bags(b, pilot, 4):
            owner, rank = ranks[bag]
            higher = [other for other, (o, each) in ranks.items() if o == owner and each > rank and ready[other]]
            assert higher == []
            ready[bag] -= 1


# --- ageing ---------------------------------------------------------------------------------------------------------


def feed(b: Bench, pilot: int, rounds: int, step: int = 1_000) -> list[int]:
    """One task after the other: bags in the order in which they are served."""
    seen = []
    for _ in range(rounds):
        seen += bags(b, pilot, 1)
        for row in b.core.state.attempts.of_pilot(pilot).tolist():
            b.report(pilot, b.core.state.attempts.number[row])
        b.wait(step)
    return seen


def test_a_bag_that_was_passed_over_for_long_goes_first_until_it_has_nothing_ready() -> None:
    b = Bench(ageing=DAY, lease=3_600_000, idle=1 << 40)
    high = b.submit(shape(500), policy={"rank": "9e300"})
    low = b.submit(shape(5), policy={"rank": "-5"})
    seen = feed(b, b.pilot(), 60)
    first = seen.index(low)
    assert DAY / 1_000 <= first <= DAY / 1_000 * (1 + 1 / 24) + 2
    assert seen[first : first + 5] == [low] * 5 and seen.count(low) == 5 and seen[first + 5] == high


def test_lifted_ones_go_in_the_order_in_which_they_came_and_that_survives_a_restart() -> None:
    b = Bench(ageing=DAY, lease=3_600_000)
    b.submit(shape(500, priority=5))
    lows = [b.submit(shape(3, priority=-n)) for n in range(3)]
    pilot = b.pilot()
    seen = feed(b, pilot, 26)
    assert lows[0] in seen and lows[1] not in seen
    b.restart(b.snapshot())
    b.restart()
    b.exchange(pilot, held=[])
    seen += feed(b, pilot, 12)
    assert [bag for bag in seen if bag in lows] == [bag for bag in lows for _ in range(3)]
    assert seen[-1] == 1


def test_served_meanwhile_it_has_not_waited() -> None:
    b = Bench(ageing=DAY, lease=3_600_000)
    b.submit(shape(500, priority=5))
    low = b.submit(shape(50))
    pilot = b.pilot()
    feed(b, pilot, 20)
    b.do(e.Pause(0, 1, True))
    assert feed(b, pilot, 1) == [low]
    b.do(e.Pause(0, 1, False))
    assert low not in feed(b, pilot, 20)
    assert low in feed(b, pilot, 10)


def test_back_in_its_place_it_waits_like_any_other() -> None:
    b = Bench(ageing=DAY, lease=3_600_000)
    b.submit(shape(500, priority=5))
    low = b.submit(shape(2), open=True)
    pilot = b.pilot()
    assert low in feed(b, pilot, 40)
    assert not b.core.state.bags[low].aged_since
    b.append(low, 2)
    assert low not in feed(b, pilot, 20)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_starves(seed: int) -> None:
    """More comes than one pilot can do, the newest ranks highest: every bag is begun within a day and a bit, and what
    came before it."""
    b, r = Bench(ageing=DAY, lease=3_600_000), random.Random(seed)
    pilot, ticks, work = b.pilot(), 160, 0
    begun: dict[int, int] = {}
    latest: dict[int, float] = {}  # by when each is to be begun
    for tick in range(ticks):
        if tick % 4 == 0:
            size = r.randint(3, 7)
            latest[b.submit(shape(size), policy={"rank": str(tick)})] = tick + DAY / 1_000 * (1 + 1 / 24) + 2 + work
            work += size
        for bag in feed(b, pilot, 1):
            begun.setdefault(bag, tick)
    due = [bag for bag, by in latest.items() if by < ticks]
    assert len(due) > 10 and all(begun.get(bag, ticks) <= latest[bag] for bag in due)


def test_a_weight_that_cannot_be(b: Bench) -> None:
    for weight in (0, -1, 1_001):
        assert b.do(e.SetWeight(0, "bob", weight)).error == "bad-input"


def test_what_one_cannot_use_is_shared_by_the_others() -> None:
    b = shared("bob", "cid")
    b.submit(shape(1))
    for owner in ("bob", "cid"):
        b.submit(shape(1_000), owner=owner)
    b.take(b.pilot(cores=64), 64)
    assert b.core.state.sites["here"].cores_in_use == {"ann": 1_000, "bob": 32_000, "cid": 31_000}


def test_who_uses_more_already_waits_while_others_catch_up() -> None:
    """And is not forgotten when it is found that one of them has little to do."""
    b = shared("bob", "cid")
    b.submit(shape(8), owner="bob")
    b.take(b.pilot(cores=8), 8)
    b.submit(shape(1))
    for owner in ("bob", "cid"):
        b.submit(shape(100), owner=owner)
    b.take(b.pilot(cores=17), 17)
    assert b.core.state.sites["here"].cores_in_use == {"ann": 1_000, "bob": 12_000, "cid": 12_000}


def wide_behind_narrow(b: Bench, **wide: int) -> int:
    """Bob's tasks of one core end one by one; hers wants all four.  How many of his were handed out meanwhile."""
    b.submit(shape(1_000), owner="bob")
    pilot = b.pilot(cores=4)
    run = [attempt for attempt, _ in b.take(pilot, 4)]
    bag = b.submit(shape(1, cores=4, **wide))
    for turn in range(200):
        b.wait(DAY // 8)
        if not run or b.task(bag) != "ready":
            return turn
        b.report(pilot, run.pop(0))
        run += [attempt for attempt, _ in b.take(pilot, 4)]
    return 200


def test_a_wide_task_does_not_wait_for_ever_behind_anothers_narrow_ones() -> None:
    b = shared(ageing=DAY)
    assert 8 <= wide_behind_narrow(b) < 16
    assert b.core.state.sites["here"].cores_in_use == {"ann": 4_000, "bob": 0}


def test_nobody_runs_empty_for_what_could_not_run_there_anyway() -> None:
    b = shared(ageing=DAY)
    assert wide_behind_narrow(b, memory=1 << 60) == 200
