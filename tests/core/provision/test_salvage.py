"""Salvage: results that a vanished pilot left behind are looked for before its tasks run again."""

from __future__ import annotations

from typing import Any

from tests.core.conftest import HOUR, Bench, shape
from tests.core.provision.tender import LANDING, Tender, bag, site, states


def vanish(bench: Bench, tasks: int = 3, **hello: Any) -> tuple[Tender, int, list[tuple[int, int]]]:
    """Start tasks on a pilot and drop its job from the listings; return the tender, the pilot and its attempts."""
    site(bench)
    bag(bench, shape(tasks, expect=HOUR))
    tender = Tender(bench)
    tender.tell(hello=True, **{"can_salvage": True, **hello})
    bench.wait(LANDING)
    tender.tell()
    tender.list_twice()
    tender.work()
    pilot = tender.begin("intent-1")
    held = bench.take(pilot, left=HOUR)
    bench.exchange(pilot, started=[attempt for attempt, _ in held])
    bench.wait(60_000)
    tender.tell()
    del tender.jobs["intent-1"]
    tender.list_twice()
    return tender, pilot, held


def test_results_that_a_vanished_pilot_left_are_salvaged_before_its_tasks_run_again(bench: Bench) -> None:
    tender, pilot, held = vanish(bench)
    assert bench.attempt(held[0][0]) == "started" and tender.tell().salvage == ["intent-1"]
    assert "salvaging: its job is gone from c1's batch system" in bench.explain(1, held[0][1])
    bench.report(pilot, held[0][0])  # the tender found the report and sends it as its pilot would have
    assert bench.task(1, held[0][1]) == "succeeded"
    tender.tell(salvaged=[("intent-1", 1)])
    assert states(bench)[0] != "r" and tender.tell().salvage == []
    assert bench.core.state.sites["c1"].history[-1][2] == (
        "the job of intent-1 is gone: 1 results were found there; 0 tasks run again")


def test_tasks_without_salvaged_results_run_again(bench: Bench) -> None:
    tender, _, held = vanish(bench)
    tender.tell(salvaged=[("intent-1", 0)])
    assert bench.attempt(held[0][0]) == "lost" and bench.task(1, held[0][1]) == "ready"


def test_salvage_is_given_up_after_two_minutes(bench: Bench) -> None:
    tender, _, held = vanish(bench)
    tender.tell()
    bench.wait(119_000)
    assert bench.attempt(held[0][0]) == "started"
    bench.wait(2_000)
    assert bench.attempt(held[0][0]) == "lost"
    assert "took too long" in bench.core.state.sites["c1"].history[-1][2]


def test_pilot_that_speaks_during_its_salvage_is_not_lost(bench: Bench) -> None:
    tender, pilot, held = vanish(bench)
    bench.wait(1_000)
    bench.exchange(pilot)
    tender.tell(salvaged=[("intent-1", 0)])
    assert bench.attempt(held[0][0]) == "started" and states(bench)[0] == "r"


def test_pilot_whose_outbox_is_in_use_is_not_lost(bench: Bench) -> None:
    tender, _, held = vanish(bench)
    tender.tell(salvaged=[("intent-1", -1)])
    assert bench.attempt(held[0][0]) == "started"


def test_tender_that_cannot_salvage_is_not_waited_for(bench: Bench) -> None:
    _, _, held = vanish(bench, can_salvage=False)
    assert bench.attempt(held[0][0]) == "lost"


def test_salvage_is_ordered_again_after_a_restart(bench: Bench) -> None:
    tender, _, held = vanish(bench)
    bench.restart()
    tender = Tender(bench, name="t2")
    tender.tell(hello=True, can_salvage=True)
    bench.wait(LANDING)
    tender.tell()
    tender.list_twice()
    assert tender.tell().salvage == ["intent-1"] and bench.attempt(held[0][0]) == "started"


def test_tender_that_outlives_its_server_is_ordered_to_salvage_without_a_hello(bench: Bench) -> None:
    tender, _, held = vanish(bench)
    bench.restart()
    bench.wait(LANDING)
    tender.tell(can_salvage=True)  # the same tender, which knows of no restart
    tender.list_twice()
    assert tender.tell().salvage == ["intent-1"] and bench.attempt(held[0][0]) == "started"


def test_intent_ends_after_its_wall_time_and_its_salvage(bench: Bench) -> None:
    tender, pilot, _ = vanish(bench)
    tender.tell(salvaged=[("intent-1", -1)])
    intents = bench.core.state.intents
    bench.wait(intents[1].running_since + HOUR + 60_000 - bench.now)
    bench.exchange(pilot)
    bench.wait(1_000)
    tender.tell()
    tender.list_twice()  # the job is still missing
    assert intents[1].salvage_until
    bench.wait(10_000)  # the wall time is over, but the salvage goes on
    tender.tell(salvaged=[("intent-1", -1)])
    assert 1 in intents
    bench.wait(120_000)
    assert 1 not in intents, "nothing is reserved for it any more, though nobody has listed since"
