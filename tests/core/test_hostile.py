"""Words that make no sense, come twice, or come from somebody else: nothing of it stops the core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.conftest import Bench, shape
from tests.core.provision.test_provisioning import HOUR, LANDING, ONE, Tender, bag, site, states
from windfall.core.decide.provision.demand import MOST_PILOTS
from windfall.core.decide.provision.reconcile import AT_ONCE
from windfall.core.messages import events as e
from windfall.core.messages.facts import DataSelection, DataShape, Limits, Shape
from windfall.core.messages.lifecycle import CANCELLED, SUCCEEDED
from windfall.core.state.copies import missing

# --- whoever starts pilots -------------------------------------------------------------------------------------------


def test_a_refusal_said_twice_in_one_breath_counts_once(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(2))
    tender = Tender(bench)
    tender.tell(refused=[("intent-1", "full"), ("intent-1", "full")])
    assert states(bench) == "i"


def test_an_end_said_twice_in_one_breath_counts_once(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(2))
    tender = Tender(bench)
    tender.work()
    tender.begin("intent-1")
    bench.do(e.Cancel(0, number, None))
    bench.wait(1_000)
    tender.tell(stopped=[("intent-2", "job-intent-2"), ("intent-2", "job-intent-2"), ("intent-2", "")])
    assert states(bench) == "r"


def test_a_pilot_stopped_twice_in_one_breath_is_lost_once(bench: Bench) -> None:
    site(bench)
    number = bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    bench.do(e.Cancel(0, number, None))
    bench.wait(1_000)
    assert states(bench) == "s"
    tender.begin("intent-1")  # it started before it could be stopped
    tender.tell(stopped=[("intent-1", "job-intent-1"), ("intent-1", "job-intent-1")])
    assert states(bench) == ""


@pytest.mark.parametrize("running", [(False, False), (True, False), (False, True)])
def test_a_job_listed_twice_is_taken_off_once(bench: Bench, running: tuple[bool, bool]) -> None:
    site(bench)
    bag(bench, shape(1, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    assert bench.take(pilot)
    bench.wait(1)
    tender.tell()
    bench.wait(1)
    tender.tell(listed=[e.ListedJob("intent-1", "job-intent-1", each) for each in running], began=tender.now)


def test_jobs_that_are_not_ours_are_left_alone(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(1))
    tender = Tender(bench)
    tender.work()
    bench.wait(LANDING)
    foreign = [e.ListedJob(f"thesis-{n}", str(n), True) for n in range(3)]
    ours = [e.ListedJob("intent-1", "job-intent-1", False), e.ListedJob("intent-77", "77", True)]
    tender.tell(listed=foreign + ours, began=tender.now)
    assert tender.orders.stop == [("intent-77", "77")]


def test_a_listing_from_the_future_is_one_of_now(bench: Bench) -> None:
    """What an earlier tender may have submitted is not ordered again before it can have landed."""
    site(bench)
    bag(bench, shape(2))
    Tender(bench)
    tender = Tender(bench, name="t2")
    tender.tell(listed=[], began=1 << 62)
    assert tender.orders.start == []


# --- pilots ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nonce", ["intent-²", "intent-" + "9" * 5_000, "intent-", "-1", "intent--1", "intent-٣"])
def test_a_pilot_may_call_itself_what_it_likes(bench: Bench, nonce: str) -> None:
    assert bench.pilot(nonce=nonce)


# --- users and sites -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [
    {"pilots": -1}, {"queued": -1}, {"flight": 0}, {"flight": -1}, {"share": -1}, {"share": 1001}, {"delay": -1},
    {"budget": -1}, {"pilots": 1 << 63}, {"budget": 1 << 64}, {"shapes": [Shape(0)]}, {"shapes": [Shape(-1)]},
    {"shapes": [Shape(1, -1)]}, {"shapes": [Shape(1, 0, -1)]}, {"shapes": [Shape(1, 0, 0, -1)]},
    {"shapes": [Shape(1, 0, 0, 0, -1)]}, {"shapes": [Shape(1 << 62, 0, 0, 0, 1 << 62)]},
    {"shapes": [Shape(1 << 20, 0, 0, 0, 1 << 31)]}, {"shapes": [Shape(1 << 19, 0, 0, 0, HOUR, 4)]},
    {"shapes": [Shape(1, 0, 0, 0, HOUR + n) for n in range(65)]}, {"shapes": [Shape(1, nodes=0)]},
], ids=str)  # fmt: skip
def test_limits_that_mean_nothing_are_refused(bench: Bench, limits: dict[str, Any]) -> None:
    site(bench)
    bag(bench, shape(3))
    limits.setdefault("shapes", [ONE])
    answer = bench.do(e.AddSite(0, "c1", "ann", "slurm", limits=Limits(**limits)))
    assert answer.error == "bad-input" and "c1" in answer.message
    assert states(bench) == "iii"


def test_a_site_without_limits_does_not_keep_the_others_waiting(bench: Bench) -> None:
    """One user's bag is as large as he likes, and his site may say that it takes everything."""
    site(bench)
    bag(bench, shape(300_000))
    for _ in range(40):
        before = len(bench.core.state.intents)
        bench.wait(1_000)
        assert len(bench.core.state.intents) - before <= AT_ONCE
    assert len(bench.core.state.intents) == MOST_PILOTS


@pytest.mark.parametrize("wrong", [
    DataSelection(latency=0), DataSelection(unit=0), DataSelection(penalty=float("nan")),
    DataSelection(penalty=float("inf")), DataSelection(penalty=-1.0), DataSelection(arrivals=0),
    DataSelection(candidates=0),
], ids=str)  # fmt: skip
def test_selection_by_data_with_parameters_that_mean_nothing_is_refused(bench: Bench, wrong: DataSelection) -> None:
    event = e.Submit(0, "ann", "bag", "", b"spec", [shape(2)], False, "data-conscious", False, data=DataShape(),
                     data_selection=wrong)
    assert bench.do(event).error == "bad-input"


# --- long lives ------------------------------------------------------------------------------------------------------


def test_a_host_that_never_comes_back_is_forgotten_with_its_pilot(bench: Bench) -> None:
    bench.do(
        e.Submit(
            0, "ann", "bag", "", b"spec", [shape(9)], False, "data-conscious", False, data_selection=DataSelection()
        )
    )
    pilot = bench.pilot()
    bench.take(pilot)
    bench.exchange(pilot, bye="idle")
    assert bench.core.state.arrivals
    bench.wait(2 * 86_400_000)
    assert not bench.core.state.arrivals


def test_what_a_long_chain_has_lost_is_found_in_one_pass(bench: Bench) -> None:
    n = 200_000
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1).astype("<i4").tobytes()
    files = DataShape(leaves=np.ones(n, "<i8").tobytes(), leave_files=np.ones(n, "<i4").tobytes())
    event = e.Submit(9, "ann", "bag", "", b"", [shape(n)], False, "fcfs", False, edges, data=files)
    bench.core.step(bench.now, [event])
    found = bench.core.state.bags[1]
    found.tasks.np_state[: n - 1] = SUCCEEDED
    found.tasks.np_state[n // 2] = CANCELLED  # nobody needs what lies before it
    assert missing(found).tolist() == list(range(n // 2 + 1, n - 1))
