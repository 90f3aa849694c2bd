"""Why is this not running?"""

from __future__ import annotations

from windfall.core import events as e
from windfall.core.explain import explain

from .conftest import GONE_SILENT, Bench, shape


def test_no_pilot(bench: Bench) -> None:
    assert "no pilot is running there" in bench.explain(bench.submit())


def test_each_clause_that_fails_is_named(bench: Bench) -> None:
    needs = shape(1, cores=9, memory=64 << 30, gpus=2, disk=1 << 60, limit=10_000_000, call=True)
    bag = bench.submit(needs, owner="bob")
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob"]))
    bench.pilot(4, left=1_000)
    told = explain(bench.core.state, bench.now, bag)["sites"][0]["clauses"]
    assert [c["clause"] for c in told if not c["holds"]] == ["owner", "cores", "memory", "gpus", "disk", "time"]


def test_busy(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(4, expect=100_000)), bench.pilot()
    bench.take(pilot)
    assert "busy" in bench.explain(bag, 3)


def test_sizes_and_times_are_said_as_people_say_them(bench: Bench) -> None:
    bag, pilot = bench.submit(shape(1, limit=7_200_000, memory=1 << 30)), bench.pilot(left=3_600_000)
    bench.wait(1_000)
    told = {c["clause"]: c["says"] for c in explain(bench.core.state, bench.now, bag)["sites"][0]["clauses"]}
    assert told["time"] == "needs 2 h, left 59 min" and told["disk"] == "needs none that is known", told
    assert told["memory"] == "needs 1.07 GB, has 4.29 GB" and pilot


def test_ready(bench: Bench) -> None:
    bench.pilot()
    assert "next pilot" in bench.explain(bench.submit())


def test_whereabouts(bench: Bench) -> None:
    bag, pilot = bench.submit(), bench.pilot()
    (attempt, _), = bench.take(pilot)
    assert "not known to have started" in bench.explain(bag)
    bench.exchange(pilot, started=[attempt])
    assert bench.explain(bag) == "running on host (here)"
    bench.wait(GONE_SILENT)
    assert "silent for 65 s" in bench.explain(bag)


def test_ends(bench: Bench) -> None:
    bag = bench.submit(shape(2))
    bench.step(e.Cancel(0, bag, [0]))
    assert bench.explain(bag, 0) == "it has ended: cancelled"
    bench.step(e.Cancel(0, bag, None))
    assert bench.explain(bag) == "all tasks have ended"


def test_quarantine(bench: Bench) -> None:
    bag = bench.submit()
    for _ in range(3):
        pilot = bench.pilot()
        bench.take(pilot)
        bench.step(e.Gone(0, pilot))
    assert "3 deaths of pilots" in bench.explain(bag, 0)


def test_sites_of_others_are_not_spoken_of(bench: Bench) -> None:
    bag = bench.submit(shape(1), owner="bob")
    bench.pilot(4)
    told = explain(bench.core.state, bench.now, bag)
    assert told["sites"] == [] and "ann" not in str(told) and "here" not in str(told)
    bench.step(e.AddSite(0, "here", "ann", "local", ["bob", "carla"]))
    assert "next pilot" in bench.explain(bag) and "carla" not in str(explain(bench.core.state, bench.now, bag))
