"""Demand: how many pilots each provisioning policy wants at which site."""

from __future__ import annotations

import pytest

from tests.core.conftest import GONE_SILENT, HOUR, Bench, shape
from tests.core.provision.tender import Tender, bag, site, states
from windfall.core.messages import events as e
from windfall.core.messages.facts import Shape

# --- swarm ----------------------------------------------------------------------------------------------------------


def test_bag_without_a_batch_site_makes_no_intent(bench: Bench) -> None:
    bag(bench, shape(5))
    assert not bench.core.state.intents and bench.wait(HOUR) == []


def test_every_site_gets_a_slot_for_every_unstarted_task(bench: Bench) -> None:
    site(bench)
    site(bench, "c2", shapes=[Shape(4, 4 << 30, 0, 1 << 40, HOUR)])
    bag(bench, shape(6, limit=60_000))
    assert states(bench) == "iiiiii" and states(bench, "c2") == "ii"


def test_site_gets_its_share_of_pilots_after_its_delay(bench: Bench) -> None:
    site(bench, share=700)
    site(bench, "slow", delay=5_000)
    bag(bench, shape(10))
    assert states(bench) == "i" * 7 and states(bench, "slow") == ""
    bench.wait(5_000)
    assert states(bench, "slow") == "i" * 10


def test_failed_task_is_sent_new_pilots_at_all_sites(bench: Bench) -> None:
    site(bench)
    site(bench, "c2")
    bag(bench, shape(1))
    here, there = Tender(bench), Tender(bench, "c2")
    here.work()
    there.work()
    pilot = here.begin("intent-1")
    (attempt, _), = bench.take(pilot, left=HOUR)
    bench.wait(1_000)
    there.work()
    assert (states(bench), states(bench, "c2")) == ("r", "")
    bench.report(pilot, attempt, "failed", "exit")
    bench.wait(1_000)
    assert states(bench) == "ri" and states(bench, "c2") == "i"


def test_batch_needs_one_slot_of_a_pilot(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(10, batch=4))
    assert states(bench) == "iii"


# --- msr and broker -------------------------------------------------------------------------------------------------


def test_msr_sends_a_pilot_per_task_everywhere_and_stops_the_rest(bench: Bench) -> None:
    site(bench)
    site(bench, "c2")
    number = bag(bench, shape(2, expect=HOUR), provision="msr")
    here, there = Tender(bench), Tender(bench, "c2")
    here.work()
    there.work()
    assert states(bench) == "qq" and states(bench, "c2") == "qq"
    second = next(i for i in bench.core.state.intents.values() if i.site == "c2" and i.task == 1)
    assert [task for _, task in bench.take(there.begin(second.nonce), left=HOUR)] == [1]
    bench.wait(1_000)
    assert states(bench) == "qs" and bench.tasks(number) == "ra"
    late = bench.exchange(here.begin("intent-3"), want=1, left=HOUR)  # the pilot started before its job was stopped
    assert late is not None and late.stop == "drain"


def test_msr_sends_pilots_to_the_k_shortest_queues(bench: Bench) -> None:
    for name in ("c1", "c2", "c3"):
        site(bench, name)
        Tender(bench, name)
    bench.step(e.SiteReport(0, "c1", "t1", info=e.SiteInfo(0, 9)))
    bag(bench, shape(1), provision="msr", k=2)
    bench.wait(1_000)
    assert [states(bench, name) for name in ("c1", "c2", "c3")] == ["", "i", "i"]


def test_task_with_pilots_of_its_own_is_granted_to_these_only(bench: Bench) -> None:
    site(bench)
    named = bag(bench, shape(1, expect=HOUR), provision="msr")
    stranger = bench.pilot(left=HOUR)
    assert bench.take(stranger, left=HOUR) == []
    plain = bench.submit(shape(1, expect=HOUR))
    assert len(bench.take(stranger, left=HOUR)) == 1
    assert bench.tasks(plain) == "a" and bench.tasks(named) == "r"


@pytest.mark.parametrize(("own", "expected"), [(0, ["", "iiii"]), (1, ["i", "iii"])])
def test_broker_goes_by_free_slots_and_queues_of_the_sites(bench: Bench, own: int, expected: list[str]) -> None:
    for name, info in (("c1", e.SiteInfo(2, 0)), ("c2", e.SiteInfo(4, 0))):
        site(bench, name)
        Tender(bench, name).tell(info=info)
    bench.wait(1_000)
    bag(bench, shape(4), provision="broker", own=own)
    bench.wait(1_000)
    assert [states(bench, "c1"), states(bench, "c2")] == expected


def test_broker_takes_the_shortest_queue_when_no_site_has_free_slots(bench: Bench) -> None:
    for name, info in (("c1", e.SiteInfo(9, 5)), ("c2", e.SiteInfo(0, 3))):
        site(bench, name)
        Tender(bench, name).tell(info=info)
    bag(bench, shape(2), provision="broker")
    bench.wait(1_000)
    assert [states(bench, "c1"), states(bench, "c2")] == ["", "ii"]


# --- demand ---------------------------------------------------------------------------------------------------------


def test_demand_sends_one_slot_per_task_within_what_each_site_has_room_for(bench: Bench) -> None:
    site(bench, pilots=3)
    site(bench, "c2", pilots=4)
    bag(bench, shape(5), provision="demand")
    assert len(states(bench)) + len(states(bench, "c2")) == 5


def test_demand_leaves_room_for_tasks_that_fit_nowhere_else(bench: Bench) -> None:
    site(bench, pilots=4, shapes=[Shape(1, 64 << 30, 0, 1 << 40, HOUR)])
    site(bench, "c2", pilots=4)
    events = [e.Submit(0, "ann", "bag", "", b"spec", [target], False, "fcfs", False, b"", "demand")
             for target in (shape(4), shape(4, memory=32 << 30))]
    bench.step(*events)
    bench.wait(1_000)
    assert states(bench, "c2") == "iiii" and states(bench) == "iiii"


def test_demand_serves_a_higher_priority_first(bench: Bench) -> None:
    site(bench, pilots=2, shapes=[Shape(8, 8 << 30, 0, 1 << 40, HOUR)])
    events = [e.Submit(0, "ann", "bag", "", b"spec", [target], False, "fcfs", False, b"", "demand")
              for target in (shape(16), shape(2, cores=8, priority=5))]
    bench.step(*events)
    bench.wait(1_000)
    tender = Tender(bench)
    tender.work()
    granted = [bench.take(tender.begin(nonce), left=HOUR) for nonce in list(tender.jobs)]
    assert len(granted) == 2 and bench.tasks(2) in ("rr", "ar", "aa")


def test_demand_does_not_move_queued_pilots_to_a_new_site(bench: Bench) -> None:
    site(bench, "c2")
    bag(bench, shape(3), provision="demand")
    site(bench)
    bench.wait(5_000)
    assert states(bench, "c2") == "iii" and states(bench) == ""


def test_unknown_provisioning_policy_is_refused(bench: Bench) -> None:
    event = e.Submit(0, "ann", "bag", "", b"spec", [shape()], False, "fcfs", False, b"", "magic")
    assert bench.do(event).error == "bad-input"


# --- what the work is worth ------------------------------------------------------------------------------------------


def test_short_tasks_share_slots_and_long_ones_get_one_each(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(40, expect=200))
    assert states(bench) == "iiii"
    bag(bench, shape(3, expect=2_000))
    assert states(bench) == "i" * 7


def test_tasks_of_unknown_duration_get_a_slot_each(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(4))
    assert states(bench) == "iiii"


def test_queued_pilots_are_withdrawn_when_tasks_prove_short(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(10))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    attempt, _ = bench.take(pilot, left=HOUR)[0]
    bench.report(pilot, attempt, wall=200)
    bench.take(pilot, left=HOUR)
    bench.wait(1_000)
    assert "q" not in states(bench)


def test_slots_that_run_short_tasks_of_a_class_count_for_its_other_tasks(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(60, expect=200))
    tender = Tender(bench)
    tender.work()
    assert states(bench) == "q" * 6
    for number in range(1, 5):
        bench.take(tender.begin(f"intent-{number}"), want=1, left=HOUR)
    bench.wait(1_000)
    assert states(bench) == "rrrrqq"


def test_slots_of_silent_pilots_do_not_count_for_short_tasks(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(3, expect=200), external=True)
    tender = Tender(bench)
    tender.work()
    assert states(bench) == "q"
    pilot = tender.begin("intent-1")
    (attempt, _), = bench.take(pilot, want=1, left=HOUR)
    bench.exchange(pilot, started=[attempt])
    bench.wait(GONE_SILENT)
    assert states(bench).count("i") == 1, "another pilot for the two tasks that no pilot holds"


def test_slot_that_is_stuck_does_not_count_for_short_tasks(bench: Bench) -> None:
    site(bench)
    bag(bench, shape(3, expect=200))
    tender = Tender(bench)
    tender.work()
    pilot = tender.begin("intent-1")
    (attempt, _), = bench.take(pilot, want=1, left=HOUR)
    bench.exchange(pilot, started=[attempt])
    bench.wait(1_500)
    assert states(bench) == "r", "the task may end at any moment"
    bench.wait(2_000)
    assert states(bench) == "ri"


def test_long_tasks_of_another_class_take_no_slot_from_short_ones(bench: Bench) -> None:
    site(bench, pilots=10)
    bag(bench, shape(4, expect=HOUR))
    tender = Tender(bench)
    tender.work()
    for number in range(1, 5):
        bench.take(tender.begin(f"intent-{number}"), left=2 * HOUR)
    bag(bench, shape(20, expect=200))
    assert states(bench) == "rrrrii"
