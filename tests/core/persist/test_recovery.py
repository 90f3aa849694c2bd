"""Recovery: the state follows from the whole journal, or from a snapshot and the facts after it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.core.conftest import Bench, shape
from windfall.core.config import Config
from windfall.core.messages import events as e
from windfall.core.messages.facts import Limits, Shape
from windfall.core.persist.fingerprint import fingerprint
from windfall.core.step import Core
from windfall.store import codec


def some_events(r: random.Random) -> Any:
    """Return functions, each of which does one random act to a bench."""
    good, bad = ("succeeded", ""), [("failed", why) for why in ("exit", "time", "memory")]
    outcomes = [good, good, *bad, ("returned", "")]

    def submit(b: Bench) -> None:
        kind = r.randrange(5)
        if kind == 0:
            pairs = [(i, j) for j in range(6) for i in range(j) if r.random() < 0.3]
            b.submit(shape(6, retries=1), edges=np.array(pairs, dtype="<i4").tobytes(), key=f"k{b.key}")
        elif kind == 1:
            b.submit(shape(2, name="a"), shape(0, name="b", after=[0]), shape(2, name="c", after=[1]))
        elif kind == 2:
            costs = np.array([r.random() for _ in range(5)], dtype="<f4").tobytes()
            b.submit(shape(5, costs=costs, limit=9_000), select="sjf", open=True)
        else:
            b.submit(shape(r.choice((1, 20, 40)), memory=1 << 28, memory_retries=2, limit=5_000, expect=20),
                     provision=r.choice(("swarm", "msr", "broker", "demand")))

    def bag(b: Bench) -> int:
        return r.choice(list(b.core.state.bags) or [1])

    def work(b: Bench) -> None:
        pilot = r.choice(list(b.core.state.pilots) or [b.pilot(2)])
        rows = b.core.state.attempts.of_pilot(pilot).tolist()
        numbers = [b.core.state.attempts.number[row] for row in rows]
        ended = [n for n in numbers if r.random() < 0.7]
        reports = [e.Report(n, *r.choice(outcomes), wall=r.randrange(100)) for n in ended]
        if r.random() < 0.3:
            reports = [e.Report(n, wall=5) for n in ended]
        started = [n for n in numbers if n not in ended][:2]
        b.exchange(pilot, want=r.choice((0, 1, 50)), reports=reports, started=started)

    def tend(b: Bench) -> None:
        """Let a tender carry out some of its orders and list some of its jobs."""
        name, intents = r.choice(("c1", "c2")), list(b.core.state.intents.values())
        mine = [i for i in intents if i.site == name and r.random() < 0.6]
        listed = [e.ListedJob(i.nonce, i.batch_id or f"j{i.number}", i.state == 2) for i in mine]
        b.step(e.SiteReport(
            0, name, r.choice(("t1", "t2")), r.random() < 0.2, r.randrange(9),
            [(i.nonce, f"j{i.number}") for i in mine],
            [(i.nonce, "no") for i in mine if r.random() < 0.1], [(i.nonce, i.batch_id) for i in mine],
            r.choice((None, None, listed)), b.now - r.choice((0, 40_000)), wait=r.choice((0, 10_000)),
        ))

    def begin(b: Bench) -> None:
        waiting = [i for i in b.core.state.intents.values() if not i.pilot]
        if waiting:
            intent = r.choice(waiting)
            b.exchange(b.pilot(2, nonce=intent.nonce, site=intent.site, left=intent.shape.wall), want=2, left=90_000)

    def limit(b: Bench) -> None:
        limits = Limits([Shape(2, 1 << 30, wall=90_000)], r.choice((0, 6)), r.choice((0, 4)), budget=10**8)
        b.step(e.AddSite(0, r.choice(("c1", "c2")), "ann", "slurm", limits=limits))

    return [
        submit, submit, tend, tend, begin, begin, limit, work, work, work, work, work, work,
        lambda b: b.pilot(r.choice((1, 2, 30)), nonce=r.choice(("", "x"))),
        lambda b: b.step(e.Gone(0, r.choice(list(b.core.state.pilots) or [0]))),
        lambda b: b.step(e.Cancel(0, bag(b), r.choice((None, [1, 2])))),
        lambda b: b.step(e.Retry(0, bag(b), None)),
        lambda b: b.step(e.Pause(0, bag(b), r.random() < 0.3)),
        lambda b: b.step(e.Append(0, "ann", bag(b), 0, 3, "", b"s")),
        lambda b: b.step(e.Remove(0, bag(b))),
        lambda b: b.wait(r.choice((10, 70_000, 400_000))),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_state_is_recovered_at_random_points_of_a_random_run(seed: int) -> None:
    """`restart` compares fingerprints; a later snapshot holds only what has changed, as in the store."""
    r = random.Random(seed)
    bench = Bench(forget=500_000)
    life = some_events(r)
    stored: dict[str, bytes] = {}
    snapshot = None
    for _ in range(120):
        r.choice(life)(bench)
        if r.random() < 0.06:
            meta, chunks, drop = bench.core.snapshot()
            for name in drop:
                stored.pop(name, None)
            stored.update(chunks)
            bench.core.saved()
            snapshot = (len(bench.journal), meta, dict(stored))
        if r.random() < 0.08:
            bench.restart(snapshot if r.random() < 0.7 else None)
            if snapshot is not None:  # a core restored from the whole journal does not know what is saved
                meta, chunks, drop = bench.core.snapshot()
                stored = {k: v for k, v in stored.items() if k not in drop} | chunks
                bench.core.saved()
                snapshot = (len(bench.journal), meta, dict(stored))
    bench.restart()
    bench.restart(snapshot)


def test_a_removed_bag_leaves_nothing_in_the_snapshot(bench: Bench) -> None:
    bag = bench.submit(shape(3), open=True)
    bench.append(bag, 2)
    _, chunks, _ = bench.core.snapshot()
    bench.core.saved()
    bench.step(e.Cancel(0, bag, None), e.Remove(0, bag))
    _, _, drop = bench.core.snapshot()
    assert {name for name in chunks if name.startswith("b")} <= set(drop)


def test_ready_tasks_of_several_classes_survive_a_snapshot(bench: Bench) -> None:
    """After a snapshot no task is marked as changed, and the first class once counted all ready tasks as its own."""
    bag, pilot = bench.submit(shape(4, limit=1_000)), bench.pilot(4)
    (a, _), (b, _), *_ = bench.take(pilot, want=2)
    bench.exchange(pilot, reports=[e.Report(a, "failed", "time"), e.Report(b)])
    bench.restart(bench.snapshot())
    assert [cls.ready for cls in bench.core.state.bags[bag].classes.values()] == [2, 1]
    assert len(bench.take(pilot, want=9)) == 3


def test_same_events_make_the_same_bytes() -> None:
    def life(seed: int) -> tuple[list[bytes], dict[str, Any]]:
        r = random.Random(seed)
        bench = Bench()
        events = some_events(r)
        for _ in range(80):
            r.choice(events)(bench)
        return bench.journal, fingerprint(bench.core.state)

    assert life(7) == life(7)


def test_replay_under_another_configuration_decides_nothing() -> None:
    """A core with another configuration must not decide the past anew."""
    bench = Bench()
    bench.submit(shape(9))
    bench.take(bench.pilot(2))
    core = Core(Config(lease=1, margin=1, prefetch=0, deaths=1))
    for body in bench.journal:
        core.replay(codec.decode(body))
    core.resume(bench.now)
    assert fingerprint(core.state) == fingerprint(bench.core.state)


def test_time_of_the_core_never_runs_backwards(bench: Bench) -> None:
    bench.now -= 500_000
    bench.submit()
    assert bench.facts[0].at == 1_000_000
