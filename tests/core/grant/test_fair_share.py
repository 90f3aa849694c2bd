"""Fair share between the owners at a shared site, and the ageing that keeps a bag from starving (A11)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.core.conftest import HOUR, Bench, granted, shape, tasks_by_bag
from windfall.core.messages import events as e

AGEING = 24_000  # ms after which a bag ages, in these tests
DAY = 24 * HOUR


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


# --- between owners -------------------------------------------------------------------------------------------------


def test_slots_of_a_large_pilot_are_divided_between_owners(b: Bench) -> None:
    b.submit(shape(100, priority=9))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("aaaabbbb")


def test_slots_are_divided_by_weight(b: Bench) -> None:
    b.do(e.SetWeight(0, "bob", 3))
    b.submit(shape(100))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("aabbbbbb")
    b.restart()
    b.restart(b.snapshot())
    assert sorted(owners(b, b.pilot(cores=4, host="other"))) == list("abbb")


def test_owner_with_the_least_in_use_gets_the_next_free_slot(b: Bench) -> None:
    b.submit(shape(100))
    assert owners(b, b.pilot(cores=3)) == "aaa" * 2, "Ann is alone, so the pilot prefetches"
    b.submit(shape(100), owner="bob")
    assert [owners(b, b.pilot(host=f"h{n}")) for n in range(8)] == list("bbbbbbab")


def test_share_that_an_owner_cannot_use_goes_to_the_other(b: Bench) -> None:
    b.submit(shape(2))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("aabbbbbb")
    b.submit(shape(3, memory=1 << 40))
    assert set(owners(b, b.pilot(cores=2, host="other"))) == {"b"}


def test_cores_in_use_at_another_site_do_not_count(b: Bench) -> None:
    b.step(e.AddSite(0, "hers", "ann", "local"))
    b.submit(shape(100))
    b.take(b.pilot(cores=8, site="hers", host="own"))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("aaaabbbb")


def test_wide_tasks_count_by_their_cores(b: Bench) -> None:
    b.submit(shape(100, cores=4))
    b.submit(shape(100), owner="bob")
    assert sorted(owners(b, b.pilot(cores=8))) == list("abbbb")


def test_prefetch_stops_while_another_owner_has_ready_tasks(b: Bench) -> None:
    b.submit(shape(1_000, expect=1))
    b.submit(shape(1_000, expect=3_600_000), owner="bob")
    pilot = b.pilot(cores=2)
    assert len(b.take(pilot)) == 2


def test_cores_in_use_are_counted_only_while_a_site_is_shared(b: Bench) -> None:
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
def test_slots_level_what_owners_have_in_use(have: list[tuple[int, int]], more: int, parts: list[int]) -> None:
    """`have`: cores in use and weight of each owner; `parts`: how many of `more` slots each owner gets."""
    b, names = shared("bob", "cid"), ("ann", "bob", "cid")[: len(have)]
    for owner, (use, weight) in zip(names, have, strict=True):
        b.do(e.SetWeight(0, owner, weight))
        b.submit(shape(use), owner=owner)
        assert owners(b, b.pilot(cores=max(use, 1), host=owner), use) == owner[0] * use
    for owner in names:
        b.submit(shape(100), owner=owner)
    given = owners(b, b.pilot(cores=more, host="new"), more)
    assert [given.count(owner[0]) for owner in names] == parts


@pytest.mark.parametrize("seed", range(12))
def test_every_slot_goes_to_the_owner_with_the_least_in_use_for_the_weight(seed: int) -> None:
    """Check the property over random weights, bags, ranks and outcomes."""
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
    """Check that no task of a bag is granted while a bag of the same owner with a higher rank has a ready task."""
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


def serve(b: Bench, pilot: int, rounds: int, step: int = 1_000) -> list[int]:
    """Let the pilot run one task after the other; return the bags in the order in which they were served."""
    seen = []
    for _ in range(rounds):
        seen += bags(b, pilot, 1)
        for row in b.core.state.attempts.of_pilot(pilot).tolist():
            b.report(pilot, b.core.state.attempts.number[row])
        b.wait(step)
    return seen


def test_bag_passed_over_for_a_day_goes_first_until_it_has_nothing_ready() -> None:
    b = Bench(ageing=AGEING, lease=3_600_000, idle=1 << 40)
    high = b.submit(shape(500), policy={"rank": "9e300"})
    low = b.submit(shape(5), policy={"rank": "-5"})
    seen = serve(b, b.pilot(), 60)
    first = seen.index(low)
    assert AGEING / 1_000 <= first <= AGEING / 1_000 * (1 + 1 / 24) + 2
    assert seen[first : first + 5] == [low] * 5 and seen.count(low) == 5 and seen[first + 5] == high


def test_aged_bags_are_served_in_the_order_of_submission_also_after_a_restart() -> None:
    b = Bench(ageing=AGEING, lease=3_600_000)
    b.submit(shape(500, priority=5))
    lows = [b.submit(shape(3, priority=-n)) for n in range(3)]
    pilot = b.pilot()
    seen = serve(b, pilot, 26)
    assert lows[0] in seen and lows[1] not in seen
    b.restart(b.snapshot())
    b.restart()
    b.exchange(pilot, held=[])
    seen += serve(b, pilot, 12)
    assert [bag for bag in seen if bag in lows] == [bag for bag in lows for _ in range(3)]
    assert seen[-1] == 1


def test_bag_ages_anew_from_its_last_grant() -> None:
    b = Bench(ageing=AGEING, lease=3_600_000)
    b.submit(shape(500, priority=5))
    low = b.submit(shape(50))
    pilot = b.pilot()
    serve(b, pilot, 20)
    b.do(e.Pause(0, 1, True))
    assert serve(b, pilot, 1) == [low]
    b.do(e.Pause(0, 1, False))
    assert low not in serve(b, pilot, 20)
    assert low in serve(b, pilot, 10)


def test_bag_that_has_aged_waits_like_any_other_afterwards() -> None:
    b = Bench(ageing=AGEING, lease=3_600_000)
    b.submit(shape(500, priority=5))
    low = b.submit(shape(2), open=True)
    pilot = b.pilot()
    assert low in serve(b, pilot, 40)
    assert not b.core.state.bags[low].aged_since
    b.append(low, 2)
    assert low not in serve(b, pilot, 20)


@pytest.mark.parametrize("seed", range(5))
def test_every_bag_starts_within_a_day_and_the_time_of_the_work_before_it(seed: int) -> None:
    """Submit more than one pilot can run, the newest bag with the highest rank: every bag starts within a little more
    than the ageing time and the time of the work submitted before it."""
    b, r = Bench(ageing=AGEING, lease=3_600_000), random.Random(seed)
    pilot, ticks, work = b.pilot(), 160, 0
    begun: dict[int, int] = {}
    latest: dict[int, float] = {}  # bag → the tick by which it must start
    for tick in range(ticks):
        if tick % 4 == 0:
            size = r.randint(3, 7)
            latest[b.submit(shape(size), policy={"rank": str(tick)})] = tick + AGEING / 1_000 * (1 + 1 / 24) + 2 + work
            work += size
        for bag in serve(b, pilot, 1):
            begun.setdefault(bag, tick)
    due = [bag for bag, by in latest.items() if by < ticks]
    assert len(due) > 10 and all(begun.get(bag, ticks) <= latest[bag] for bag in due)


def test_weight_out_of_range_is_refused(b: Bench) -> None:
    for weight in (0, -1, 1_001):
        assert b.do(e.SetWeight(0, "bob", weight)).error == "bad-input"


def test_share_that_an_owner_cannot_use_is_divided_between_the_others() -> None:
    b = shared("bob", "cid")
    b.submit(shape(1))
    for owner in ("bob", "cid"):
        b.submit(shape(1_000), owner=owner)
    b.take(b.pilot(cores=64), 64)
    assert b.core.state.sites["here"].cores_in_use == {"ann": 1_000, "bob": 32_000, "cid": 31_000}


def test_owner_with_the_most_in_use_waits_while_the_others_catch_up() -> None:
    """The owner with the most in use still gets the slots that an owner with few tasks leaves."""
    b = shared("bob", "cid")
    b.submit(shape(8), owner="bob")
    b.take(b.pilot(cores=8), 8)
    b.submit(shape(1))
    for owner in ("bob", "cid"):
        b.submit(shape(100), owner=owner)
    b.take(b.pilot(cores=17), 17)
    assert b.core.state.sites["here"].cores_in_use == {"ann": 1_000, "bob": 12_000, "cid": 12_000}


def test_wide_task_without_room_is_not_overtaken_by_a_lower_bag_where_owners_share() -> None:
    b = Bench()
    b.do(e.AddSite(0, "pool", "ann", "local", shared=["bob"]))
    wide = b.submit(shape(10, cores=2, priority=9, expect=30_000))
    b.submit(shape(10, priority=1, expect=30_000))
    his = b.submit(shape(1, expect=30_000), owner="bob")
    assert tasks_by_bag(b.exchange(b.pilot(cores=4, site="pool"), want=9)) == [(wide, 1), (his, 1)]


def test_answer_divided_between_owners_holds_a_retried_task_once(bench: Bench) -> None:
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    bag = bench.submit(shape(3), external=True)
    small, large = bench.pilot(1, host="small"), bench.pilot(2, host="large")
    [(attempt, task)] = bench.take(small, want=1)
    bench.report(small, attempt, "returned", "stop")
    bench.do(e.Cancel(0, bag, [task]))
    bench.do(e.Retry(0, bag, [task]))
    bench.submit(shape(1, cores=2), owner="bob")
    given = [task for _, task in bench.take(large)]
    assert len(given) == 2 and len(set(given)) == 2, given


def rounds_until_wide_task_starts(b: Bench, **wide: int) -> int:
    """End Bob's narrow tasks one by one while Ann's task wants all four cores; return how many rounds her task
    waited."""
    b.submit(shape(1_000), owner="bob")
    pilot = b.pilot(cores=4)
    run = [attempt for attempt, _ in b.take(pilot, 4)]
    bag = b.submit(shape(1, cores=4, **wide))
    for turn in range(200):
        b.wait(AGEING // 8)
        if not run or b.task(bag) != "ready":
            return turn
        b.report(pilot, run.pop(0))
        run += [attempt for attempt, _ in b.take(pilot, 4)]
    return 200


def test_wide_task_starts_within_two_days_behind_anothers_narrow_ones() -> None:
    b = shared(ageing=AGEING)
    assert 8 <= rounds_until_wide_task_starts(b) < 16
    assert b.core.state.sites["here"].cores_in_use == {"ann": 4_000, "bob": 0}


def test_pilot_keeps_no_core_free_for_an_aged_task_that_cannot_run_there() -> None:
    b = shared(ageing=AGEING)
    assert rounds_until_wide_task_starts(b, memory=1 << 60) == 200


def test_aged_wide_task_is_granted_behind_one_of_its_bag_that_does_not_fit() -> None:
    """The pilot drains for the wide task although the task before it in the bag does not fit the time left."""
    b = Bench(lease=100 * DAY, silence=1_000 * DAY, idle=1_000 * DAY)
    b.do(e.AddSite(0, "pool", "ann", "local", shared=["bob"]))
    b.submit(shape(3_000, limit=2 * HOUR, expect=HOUR), owner="bob")
    end = b.now + 50 * DAY
    pilot = b.pilot(cores=4, site="pool", left=50 * DAY)
    runs = [(b.now + HOUR, attempt) for attempt, _ in b.take(pilot, 1, left=50 * DAY)]
    bag = b.submit(shape(1, name="long", limit=100 * DAY, expect=HOUR),
                   shape(1, name="wide", cores=4, limit=HOUR, expect=HOUR))
    for _ in range(2 * 24 * 4):
        b.wait(HOUR // 4)
        reports = [e.Report(attempt, "succeeded", "", wall=HOUR) for at, attempt in runs if at <= b.now]
        answer = b.exchange(pilot, reports=reports, want=1, left=end - b.now)
        if bag in dict(tasks_by_bag(answer)):
            return
        new = [attempt for attempt, _ in granted(answer)] if answer is not None else []
        b.exchange(pilot, started=new)
        runs = [each for each in runs if each[0] > b.now] + [(b.now + HOUR, attempt) for attempt in new]
    pytest.fail("it was not granted in two days")


def test_ended_bag_that_had_aged_is_the_same_after_a_restart() -> None:
    b = Bench(idle=100 * DAY)
    b.submit(shape(3_000, priority=9))
    low = b.submit(shape(1, priority=1))
    pilot = b.pilot()
    while not b.core.state.bags[low].aged_since:
        b.wait(HOUR)
        b.exchange(pilot, held=[])
        for attempt, _ in b.take(pilot, 1):
            b.report(pilot, attempt, wall=5)
    b.report(pilot, b.take(pilot, 1)[0][0], wall=5)
    assert b.core.state.bags[low].ended and b.core.state.bags[low].aged_since
    b.restart(b.snapshot())  # compares fingerprints
    assert b.core.state.bags[low].aged_since


def test_aged_bag_that_is_refilled_takes_turns_with_a_higher_one() -> None:
    b = Bench(ageing=24_000, prefetch=0)
    low = b.submit(shape(3, expect=1_000), policy={"rank": "1"}, open=True)
    high = b.submit(shape(5_000, expect=1_000), policy={"rank": "2"})
    pilot, seen = b.pilot(), []
    for _ in range(200):
        answer = b.exchange(pilot, want=1, wait=0)
        assert answer is not None
        ((bag, attempt),) = [(group.bag, group.attempts[0]) for _, groups in answer.grants for group in groups]
        b.wait(1_000)
        b.report(pilot, attempt, wall=1_000)
        seen.append(bag)
        if bag == low:
            b.append(low, 1)
    assert min(Counter(seen[20:]).values()) > 60, "each bag has its turn, again and again"
    longest = max(len(run) for run in "".join("l" if bag == low else "h" for bag in seen).replace("lh", "l h").replace(
        "hl", "h l").split())
    assert longest <= 60 and {low, high} == {*seen}


def test_retried_bags_age_again_after_all_bags_had_ended() -> None:
    b = Bench(ageing=24_000, lease=HOUR, silence=10 * HOUR)
    low, high = b.submit(shape(1, retries=0)), b.submit(shape(2_000, priority=5))
    pilot = b.pilot()
    for bag in (low, high):
        b.step(e.Cancel(0, bag, None))
    b.wait(100_000)
    for bag in (low, high):
        b.step(e.Retry(0, bag, None))
    served: list[int] = []
    while low not in served and len(served) < 200:
        for _, groups in b.exchange(pilot, want=1).grants:
            served.append(groups[0].bag)
            b.report(pilot, groups[0].attempts[0], wall=1_000)
        b.wait(1_000)
    assert low in served


def test_bag_does_not_age_while_it_has_no_ready_task_before_an_append() -> None:
    b = Bench(ageing=24_000, lease=HOUR, silence=10 * HOUR)
    low = b.submit(shape(1), open=True)
    b.start("long")
    b.wait(100_000)
    b.submit(shape(2_000, priority=5))
    b.append(low, 5)
    b.wait(1_100)
    assert not b.core.state.bags[low].aged_since


def test_bag_does_not_age_while_it_has_no_ready_task_before_a_retry() -> None:
    b = Bench(ageing=24_000, lease=HOUR, silence=10 * HOUR)
    low = b.submit(shape(2))
    b.start("long")
    b.step(e.Cancel(0, low, [1]))
    b.wait(100_000)
    b.submit(shape(2_000, priority=5))
    b.step(e.Retry(0, low, [1]))
    b.wait(1_100)
    assert not b.core.state.bags[low].aged_since
