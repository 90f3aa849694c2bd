"""A recorded run, exported as a server would export it, and played again."""

from __future__ import annotations

import random

import pytest

from windfall.core.messages.lifecycle import OUTCOMES
from windfall.errors import BadInput
from windfall.model.bagfile import reader
from windfall.sim import scenario, whatif
from windfall.sim.play import Run
from windfall.sim.record import Record

LAB = """
    [hosts.slow]
    count = 3
    cores = 2
    latency = "10ms"
    [hosts.fast]
    count = 2
    cores = 4
    speed = 2
    latency = "10ms"
    [bags.main]
    tasks = 600
    duration = "lognormal(3min, 0.4)"
    [bags.main.targets.then]
    after = ["main"]
    duration = "2min"
"""
BAG = '[bag]\nname = "lab"\ncommand = "x {n}"\n[sweep]\nn = "1..600"\n[targets.then]\nafter = ["main"]\ncommand = "y"\n'


def exported(record: Record, bag: str = BAG) -> whatif.Export:
    """Return the export of a run, as the public API would give it."""
    spec = reader.parse(bag).bag
    first = record.bags[1].targets
    tasks = {}
    for each in record.attempts():
        life = record.pilots[each.pilot]
        target = next(name for name, start, _ in reversed(first) if start <= each.task)
        state = "succeeded" if each.counts else OUTCOMES[each.outcome]
        tasks[each.task] = whatif.EndedTask(target, state, life.site, life.host, each.start, each.end - each.start)
    found = record.summary(1)
    pilots = [whatif.PilotStay(life.site, life.host, life.cores, 0, life.enrolled, life.ended)
              for life in record.pilots.values()]
    return whatif.Export(whatif.FORMAT, 1, spec, found["wall_clock"], found, [tasks[n] for n in sorted(tasks)], pilots)


@pytest.fixture(scope="module")
def lab() -> whatif.Export:
    return exported(Run(scenario.parse(LAB), 3).play())


def test_host_speeds_are_estimated_from_enough_tasks(lab: whatif.Export) -> None:
    found = whatif.speeds(lab.tasks)
    slow = [speed for (site, _), speed in found.items() if site == "slow"]
    fast = [speed for (site, _), speed in found.items() if site == "fast"]
    assert len(slow) == 3 and len(fast) == 2
    assert min(fast) / max(slow) == pytest.approx(2, rel=0.15)
    assert whatif.speeds(lab.tasks[:30]) == {}


def test_chance_alone_makes_no_host_faster() -> None:
    draw = random.Random(4)
    tasks = [whatif.EndedTask("main", "succeeded", "s", f"h{n % 8}", 0, round(draw.expovariate(1e-5)) + 1)
             for n in range(4_000)]
    assert len(whatif.speeds(tasks)) <= 1


def test_replayed_bag_takes_as_long_as_it_did(lab: whatif.Export) -> None:
    again = whatif.as_it_was(lab).summary(1)
    assert again["accepted"] == 601
    assert again["wall_clock"] == pytest.approx(lab.wall_clock, rel=0.05)
    assert again["real"] == pytest.approx(lab.statistics["real"], rel=0.03)


def test_replay_on_more_hosts_takes_proportionally_less_time(lab: whatif.Export) -> None:
    """The lab does the work of 22 slow slots; speed 1 of the export is the mean over its tasks, of which the fast hosts
    did 16 in 22: 2 ** (16 / 22) of a slow slot."""
    more = scenario.parse('[hosts.more]\ncount = 28\nlatency = "10ms"\n', bags=False)
    found = whatif.elsewhere(lab, more).summary(1)
    share = 22 / (28 * 2 ** (16 / 22))
    assert found["accepted"] == 601 and found["wall_clock"] == pytest.approx(lab.wall_clock * share, rel=0.15)


def test_replayed_pilot_takes_no_task_after_it_left(lab: whatif.Export) -> None:
    early = [whatif.PilotStay(each.site, each.host, each.cores, 0, 0, None if each.site == "slow" else 60_000)
             for each in lab.pilots]
    cut = whatif.Export(lab.format, 1, lab.spec, lab.wall_clock, lab.statistics, lab.tasks, early)
    found = whatif.as_it_was(cut)
    late = {found.pilots[each.pilot].site for each in found.attempts() if each.start > 600_000}
    assert late == {"slow"} and found.summary(1)["wall_clock"] > 1.5 * lab.wall_clock


def test_failed_task_fails_again_in_replay() -> None:
    record = Run(scenario.parse(LAB), 3).play()
    bad = exported(record)
    bad.tasks[5].state = "failed"
    found = whatif.as_it_was(bad).summary(1)
    assert found["accepted"] == 599 and found["failures"] == 4  # itself and its retries; the target after it never runs


def test_export_is_read_back_unchanged(lab: whatif.Export, tmp_path) -> None:
    (tmp_path / "it.json").write_bytes(whatif.dump(lab))
    assert whatif.load(tmp_path / "it.json") == lab


# --- under other policies --------------------------------------------------------------------------------------------


def test_replay_under_requirements_uses_only_the_hosts_that_match(lab: whatif.Export) -> None:
    changes = whatif.Changes(policy={"requirements": 'Site.Name == "slow"'})
    found = whatif.as_it_was(lab, 1, changes)
    assert {found.pilots[each.pilot].site for each in found.attempts()} == {"slow"}


def test_replay_with_another_limit_per_host_takes_longer(lab: whatif.Export) -> None:
    found = whatif.as_it_was(lab, 1, whatif.Changes(policy={"per-host": "1"})).summary(1)
    assert found["accepted"] == 601 and found["wall_clock"] > 1.5 * lab.wall_clock


def test_replay_without_replicas_has_none(lab: whatif.Export) -> None:
    plain = whatif.as_it_was(lab, 1, whatif.Changes(policy={"replicate": "none"})).summary(1)
    eager = whatif.as_it_was(lab, 1, whatif.Changes(policy={"replicate": "tail-fast"})).summary(1)
    assert plain["attempts"] <= eager["attempts"] and plain["accepted"] == eager["accepted"] == 601


@pytest.mark.parametrize("key, text", [("rank", "1 +"), ("requirements", "Host.NoSuchThing"), ("replicate", "maybe")])
def test_wrong_policy_of_a_replay_is_refused_by_name(lab: whatif.Export, key: str, text: str) -> None:
    with pytest.raises(BadInput) as refused:
        whatif.as_it_was(lab, 1, whatif.Changes(policy={key: text}))
    assert key in str(refused.value) or text in str(refused.value)
