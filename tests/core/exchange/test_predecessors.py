"""Evidence from a host: what a later pilot there can tell of the pilots in doubt that ran before it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.conftest import GONE_SILENT, HOUR, Bench, shape
from windfall.core.messages import events as e

HOST = {"host": "node7", "boot": "b1", "hardware": "cards"}


def silent(bench: Bench, *, external: bool = True, **more: Any) -> tuple[int, int]:
    """Start a task on a pilot that falls silent; return the bag and the pilot."""
    bag = bench.submit(shape(nodes=more.get("nodes", 1)), external=external)
    pilot = bench.pilot(**{**HOST, "life": "1:old", **more})
    bench.exchange(pilot, started=[attempt for attempt, _ in bench.take(pilot)])
    bench.wait(GONE_SILENT)
    assert bench.task(bag) == "active"
    return bag, pilot


def later(bench: Bench, **more: Any) -> int:
    return bench.pilot(**{**HOST, "life": "1:new", **more})


def test_later_pilot_on_the_host_is_asked_to_look_and_its_word_frees_the_task(bench: Bench) -> None:
    bag, old = silent(bench)
    new = later(bench)
    assert bench.exchange(new).look == ["1:old"] and bench.task(bag) == "active"
    answer = bench.exchange(new, dead=["1:old"], want=1)
    assert answer.look == [] and answer.grants and bench.core.state.pilots[old].why == "gone"


def test_word_of_a_later_pilot_frees_tasks_without_external_effects_before_their_time(bench: Bench) -> None:
    bag, _ = silent(bench, external=False)
    bench.exchange(later(bench), dead=["1:old"])
    assert bench.task(bag) == "ready"


def test_pilot_after_another_boot_of_the_machine_frees_the_task(bench: Bench) -> None:
    bag, _ = silent(bench)
    bench.exchange(later(bench, boot="b2"))
    assert bench.task(bag) == "ready"


@pytest.mark.parametrize("other", [
    {"boot": "b2", "hardware": "other"}, {"boot": "b2", "hardware": ""}, {"boot": ""}, {"host": "node8"},
    {"name": "node8"}, {"site": "c1"},
], ids=["copy of the image", "unknown machine", "unknown boot", "other host", "other name", "other site"])
def test_pilot_elsewhere_cannot_tell(bench: Bench, other: dict[str, Any]) -> None:
    bench.step(e.AddSite(0, "c1", "ann", "slurm"))
    bag, _ = silent(bench)
    new = later(bench, **other)
    assert bench.exchange(new).look == []
    bench.exchange(new, dead=["1:old"])
    assert bench.task(bag) == "active"


def test_pilot_of_another_owner_cannot_end_a_pilot(bench: Bench) -> None:
    bag, _ = silent(bench)
    bench.step(e.RemoveSite(0, "here", "ann"))
    bench.step(e.AddSite(0, "theirs", "bob", "local"))
    new = later(bench, site="theirs")
    assert bench.exchange(new).look == []
    bench.exchange(new, dead=["1:old"])
    assert bench.task(bag) == "active"


def test_pilot_that_is_not_in_doubt_cannot_be_ended(bench: Bench) -> None:
    bag, old = bench.submit(external=True), bench.pilot(**HOST, life="1:old")
    bench.take(old)
    new = later(bench)
    bench.exchange(new, dead=["1:old"])
    bench.exchange(later(bench, boot="b2"))
    assert bench.task(bag) == "active"


def test_pilot_that_comes_back_from_doubt_is_sought_no_more(bench: Bench) -> None:
    bag, old = silent(bench)
    new = later(bench)
    assert bench.exchange(new).look == ["1:old"]
    attempts = bench.core.state.attempts
    bench.exchange(old, held=[attempts.number[row] for row in attempts.of_pilot(old).tolist()])
    assert bench.exchange(new, dead=["1:old"]).look == [] and bench.task(bag) == "active"


def test_pilot_of_several_nodes_is_not_proven_dead_by_one_host(bench: Bench) -> None:
    bag, _ = silent(bench, nodes=2)
    new = later(bench)
    assert bench.exchange(new).look == []
    bench.exchange(later(bench, boot="b2"), dead=["1:old"])
    assert bench.task(bag) == "active"


def test_pilot_whose_life_is_not_known_waits_for_its_user_or_a_boot(bench: Bench) -> None:
    bag, _ = silent(bench, life="")
    new = later(bench)
    assert bench.exchange(new, dead=[""]).look == [] and bench.task(bag) == "active"
    bench.exchange(later(bench, boot="b2"))
    assert bench.task(bag) == "ready"


def test_process_that_enrols_again_tells_of_what_its_older_epoch_never_received(bench: Bench) -> None:
    bag, pilot = bench.submit(external=True), bench.pilot(nonce="n", **HOST, life="1:old")
    bench.take(pilot)  # the answer is lost, and the token with the next one
    again = bench.pilot(nonce="n", **HOST, life="1:old")
    bench.wait(GONE_SILENT)
    assert bench.exchange(again).look == [] and bench.task(bag) == "active"
    bench.exchange(again, held=[])
    assert bench.task(bag) == "ready"


def test_job_that_began_again_on_its_node_looks_for_its_own_predecessor(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1), external=True), bench.pilot(nonce="n", **HOST, life="1:old")
    bench.exchange(pilot, started=[attempt for attempt, _ in bench.take(pilot)])
    again = bench.pilot(nonce="n", **HOST, life="1:new")
    bench.wait(GONE_SILENT)
    assert bench.exchange(again, held=[]).look == ["1:old"] and bench.task(bag) == "active"
    bench.exchange(again, dead=["1:old"])
    assert bench.task(bag) == "ready"


def test_doubt_and_what_is_known_of_the_host_outlive_a_restart(bench: Bench) -> None:
    bag, _ = silent(bench)
    bench.restart()
    new = later(bench)
    assert bench.exchange(new).look == [], "the server was away: silence means nothing yet"
    bench.wait(GONE_SILENT)
    assert bench.exchange(new).look == ["1:old"]
    bench.exchange(new, dead=["1:old"])
    assert bench.task(bag) == "ready"
    bench.wait(HOUR)


@pytest.mark.parametrize("returns", [True, False], ids=["it comes back", "its user ends it"])
def test_host_is_forgotten_when_none_of_its_pilots_is_in_doubt(bench: Bench, returns: bool) -> None:
    _, old = silent(bench)
    assert bench.core.turn.exchange.in_doubt
    if returns:
        bench.exchange(old)
        bench.exchange(old, held=[])
        bench.exchange(later(bench))
    else:
        bench.step(e.Gone(0, old))
    assert not bench.core.turn.exchange.in_doubt
