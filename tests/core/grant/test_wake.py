"""Who among the waiting is asked, when what there is does not fit everybody: in turn, so that nobody is passed over."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.core.conftest import Bench, shape
from windfall.core.decide.grant import wake
from windfall.core.messages import events as e

ONE_HOST = 'Host.Name == "able" && Bag.Age >= 0'


@pytest.fixture
def b() -> Bench:
    return Bench(lease=3_600_000, silence=36_000_000, park=3_600_000)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pilots, in the order in which those who wait were asked."""
    seen: list[int] = []
    plain = wake.grant

    def noted(core: Any, pilot: Any, *more: Any) -> bool:
        seen.append(pilot.number)
        return plain(core, pilot, *more)

    monkeypatch.setattr(wake, "grant", noted)
    return seen


def one_running(b: Bench, policy: dict[str, str]) -> int:
    """A bag, not in its tail for it is open, of which one task runs, on `busy`."""
    bag = b.submit(shape(1), policy=policy, open=True)
    pilot = b.pilot(host="busy")
    ((attempt, _),) = b.take(pilot, 1)
    b.exchange(pilot, started=[attempt])
    return bag


def one_replica(b: Bench) -> int:
    """It may have a replica elsewhere."""
    return one_running(b, {"replicate": "NumberOfReplicas < 2"})


def one_overdue(b: Bench) -> int:
    """It is past its deadline."""
    bag = one_running(b, {"attempt-deadline": "5"})
    b.wait(10_000)
    return bag


def one_choosy(b: Bench) -> int:
    """A bag that only `able` may run, by an expression that might change its mind at any moment."""
    return b.submit(shape(1), policy={"requirements": ONE_HOST})


def waits(b: Bench, host: str) -> int:
    pilot = b.pilot(host=host)
    assert b.exchange(pilot, want=1, wait=3_600_000) is None
    return pilot


def stir(b: Bench, bag: int) -> None:
    """Something happens for which all who wait may be asked again."""
    policy = b.core.state.bags[bag].policy
    limit = 50 + (policy.get("per-host") == "50")
    b.do(e.SetPolicy(0, bag, {**policy, "per-host": str(limit)}, "ann"))


@pytest.mark.parametrize("make", [one_replica, one_overdue, one_choosy])
def test_the_last_in_line_has_its_turn(b: Bench, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    """Five before it cannot take what there is, for their host has it already, or may not; three are asked at
    a time."""
    monkeypatch.setattr(wake, "MOST_IN_VAIN", 3)
    bag = make(b)
    b.do(e.Pause(0, bag, True))
    for _ in range(5):
        waits(b, "busy")
    able = waits(b, "able")
    b.do(e.Pause(0, bag, False))
    for _ in range(2):
        stir(b, bag)
    assert b.core.state.pilots[able].attempts_held == 1


@pytest.mark.parametrize("make", [one_replica, one_overdue, one_choosy])
@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_asked_twice_before_everybody_was_asked_once(
    b: Bench, monkeypatch: pytest.MonkeyPatch, asked: list[int], make: Any, seed: int
) -> None:
    """Whoever waits all the time, while others come and go."""
    draw = random.Random(seed)
    monkeypatch.setattr(wake, "MOST_IN_VAIN", draw.randint(2, 6))
    bag = make(b)
    lasting = [waits(b, "busy") for _ in range(draw.randint(5, 20))]
    passing: list[int] = []
    asked.clear()
    for _ in range(120):
        if draw.random() < 0.2:
            passing.append(waits(b, "busy"))
        if passing and draw.random() < 0.2:
            b.exchange(passing.pop(draw.randrange(len(passing))), bye="idle")
        before = len(asked)
        stir(b, bag)
        assert len(asked) - before <= wake.MOST_IN_VAIN
    times = Counter(pilot for pilot in asked if pilot in lasting)
    assert set(times) == set(lasting) and max(times.values()) - min(times.values()) <= 2, times
    assert min(times.values()) > 5, "they were, many times"


def test_who_is_given_something_was_first_in_line(b: Bench) -> None:
    """Where everybody could take it: first come, first served."""
    pilots = [waits(b, f"h{number}") for number in range(6)]
    bag = b.submit(shape(0), open=True)
    for number, pilot in enumerate(pilots):
        b.append(bag, 1)
        held = [b.core.state.pilots[each].attempts_held for each in pilots]
        assert held == [1] * (number + 1) + [0] * (5 - number), pilot


@pytest.mark.parametrize("make", [one_replica, one_overdue, one_choosy])
def test_who_asked_while_the_bag_was_paused_is_given_something_when_it_goes_on(b: Bench, make: Any) -> None:
    bag = make(b)
    b.do(e.Pause(0, bag, True))
    able = waits(b, "able")
    b.do(e.Pause(0, bag, False))
    assert b.core.state.pilots[able].attempts_held == 1


@pytest.mark.parametrize(("policy", "limit"), [({"per-host": 'Host.Name == "rich" ? 100 : 0'}, 0), ({}, 3_600_000)])
def test_nothing_is_asked_back_for_who_could_not_have_it(policy: dict[str, str], limit: int) -> None:
    b = Bench(lease=3_600_000, silence=36_000_000)
    b.submit(shape(4, limit=limit), policy=policy)
    rich, poor = b.pilot(cores=2, host="rich"), b.pilot(cores=2, host="poor")
    held = b.take(rich)
    assert len(held) == 4
    b.exchange(rich, started=[attempt for attempt, _ in held[:2]])
    b.exchange(poor, want=2, wait=20_000, left=60_000)
    assert not b.exchange(rich).recall


def beside_what_nobody_may_have(b: Bench, many: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Many wait beside a bag that none of them may have; of another one, which may have replicas, all tasks are out."""
    b.submit(shape(3, expect=60_000), replicate="tail-safe")
    busy = [b.pilot(host=f"busy{number}") for number in range(3)]
    held = [(pilot, attempt) for pilot in busy for attempt, _ in b.take(pilot, 1)]
    b.submit(shape(1), policy={"requirements": 'Host.Name == "nowhere" && Host.Cores > 1'})
    return [waits(b, f"h{number % 7}") for number in range(many)], held


def test_what_starts_has_nobody_look_at_what_is_ready_again(b: Bench, asked: list[int]) -> None:
    _, held = beside_what_nobody_may_have(b, 100)
    asked.clear()
    for pilot, attempt in held:
        b.exchange(pilot, started=[attempt])
    assert not asked
    b.wait(100_000)
    assert [b.core.state.pilots[pilot].attempts_held for pilot in asked] == [1], (
        "of three that are late one may have a replica"
    )


def test_one_is_asked_for_all_that_are_alike(b: Bench, asked: list[int]) -> None:
    """Seven hosts, and so seven to ask, however many pilots wait there: before somebody has what came back, and when
    it is gone."""
    waiting, held = beside_what_nobody_may_have(b, 100)
    pilot, attempt = held[0]
    asked.clear()
    b.report(pilot, attempt, "failed", "exit", wall=10)
    assert sum(b.core.state.pilots[each].attempts_held for each in waiting) == 1
    assert len(asked) <= 1 + 7 + 7, asked
    able = waits(b, "nowhere")
    b.submit(shape(1), policy={"requirements": 'Host.Name == "nowhere"'})
    assert b.core.state.pilots[able].attempts_held == 1, "it is not like them"
