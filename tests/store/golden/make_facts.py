"""Makes the golden journal of real facts: `python tests/store/golden/make_facts.py NAME`, from the repository's root.

    NAME.db        every kind of fact, as `Core.step` decided them, with a snapshot of the core half-way
    NAME.json      what a core recovered from it knows (its fingerprint), and what the views show

A server that was upgraded finds files like this one.  So one is made per change of facts or snapshot, by the version
before the next change; this script makes only the newest.  The newest and the one before it are kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from windfall.core.config import Config
from windfall.core.decide.requests.intake import submission
from windfall.core.messages import events as e
from windfall.core.messages.facts import (
    BagAged,
    ClockSet,
    DataSelection,
    DataShape,
    Fact,
    HostJudged,
    Limits,
    NumbersSkipped,
    Shape,
    SiteJudged,
    SiteNoted,
)
from windfall.core.persist.fingerprint import fingerprint
from windfall.core.step import Core
from windfall.model.spec import Bag, Items, Range, Resources, Sweep, Target
from windfall.store import codec
from windfall.store.journal import Journal
from windfall.store.views import Views

HERE = Path(__file__).parent
DAY = 86_400_000


class Story:
    """A core whose every step is journaled."""

    def __init__(self, journal: Journal) -> None:
        self.core = Core(Config())
        self.journal = journal
        self.now = 1_700_000_000_000
        self.key = 0
        self.seq: dict[int, int] = {}

    def do(self, *events: e.Event) -> Any:
        """Commit the events together; return the effect of the last one."""
        self.now += 1_000
        for event in events:
            self.key += 1
            event.key = self.key
        step = self.core.step(self.now, list(events))
        if step.facts:
            self.journal.append(self.now, codec.encode(step.facts))
        return next((effect for effect in step.effects if effect.key == self.key), None)

    def wait(self, ms: int) -> None:
        self.now += ms
        self.do()

    def decide(self, fact: Fact) -> None:
        """Commit a fact directly that events would reach only after a long time."""
        self.core.turn.facts = []
        self.core.turn.emit(fact)
        self.journal.append(self.now, codec.encode([fact]))

    def pilot(self, nonce: str, cores: int, site: str = "here") -> int:
        number = self.core.state.next_pilot
        enrol = e.Enrol(0, site, nonce, f"host-{nonce}", f"node-{nonce}", cores, 8 << 30, 0, 1 << 40, None,
                        b"token %d" % number, "Linux python 3.12")
        return int(self.do(enrol).pilot)

    def exchange(self, pilot: int, **more: Any) -> list[int]:
        """Attempts granted."""
        self.seq[pilot] = self.seq.get(pilot, 0) + 1
        state = self.core.state.pilots[pilot]
        answer = self.do(e.Exchange(0, pilot, state.epoch, self.seq[pilot], ack=state.granted, **more))
        grants = answer.grants if answer is not None else []
        return [attempt for _, groups in grants for group in groups for attempt in group.attempts]

    def snapshot(self) -> None:
        meta, chunks, drop = self.core.snapshot()
        self.journal.save_snapshot(self.journal.position, meta, chunks, drop)
        self.core.saved()


def sweep(count: int, **more: Any) -> Target:
    return Target(command="echo {x}", source=Sweep(axes=[Range(name="x", first=1, last=count)]), **more)


def tell(story: Story) -> None:
    _begin(story)
    bags = _submit(story)
    old = _work(story, bags)
    later = _say_more(story)
    _leave_data(story)
    _spend(story)
    ruled = _rule(story)
    _fail_over(story)
    growing = _grow(story)
    batch = _provision(story)
    story.snapshot()
    _append(story, growing, [(0, 1), (1, 2)], [(0, 5), (4, 6), (6, 7)])
    _provision_on(story, *batch)
    _after_that(story, later)
    story.do(e.SetPolicy(0, ruled, {"rank": "", "sites": 'Site.Name =!= "slow"'}, "ann"))
    _fill_batches(story)
    _go_on(story, bags, old)
    _run_again(story)
    _mend(story)


def _run_again(story: Story) -> None:
    """A failed task starts again with another specification; the other keeps its result."""
    bag = int(story.do(submission(0, "gil", Bag(name="mended", targets=[sweep(2, retries=0)]), "mended")).value)
    story.do(e.AddSite(0, "gil", "gil", "local"))
    pilot = story.pilot("mender", 2, "gil")
    good, bad = story.exchange(pilot, want=2)
    story.exchange(pilot, reports=[e.Report(good, wall=5), e.Report(bad, "failed", "exit", exit=1)])
    made = submission(0, "gil", Bag(name="mended", targets=[sweep(2, retries=0, time=60_000)]))
    story.do(e.Rerun(0, bag, "failed", spec=made.spec, targets=made.targets, concerned=[(0, 2)], by="gil"))


def _mend(story: Story) -> None:
    """A person had cut the journal, and says that its clock is an hour ahead."""
    state = story.core.state
    story.decide(NumbersSkipped(story.now, state.next_bag, state.next_pilot + 50, state.next_intent + 5, 1 << 20))
    wrong, story.now = story.now, story.now - 3_600_000
    story.decide(ClockSet(story.now, wrong, "ann"))


def _grow(story: Story) -> int:
    """A graph that comes part by part: some wait for one that has ended, with and without success."""
    targets = [sweep(2, retries=0), sweep(1, name="more")]
    bag = int(story.do(submission(0, "ann", Bag(name="growing", targets=targets, open=True, edges=[(0, 1)]))).value)
    pilot = story.pilot("grower", 1)
    (attempt,) = story.exchange(pilot, want=1)
    story.exchange(pilot, reports=[e.Report(attempt)])
    _append(story, bag, [(1, 2)], [(0, 3), (1, 4), (3, 4)])
    return bag


def _append(story: Story, bag: int, pieces: list[tuple[int, int]], edges: list[tuple[int, int]]) -> None:
    source = msgspec.msgpack.encode((0, Sweep(axes=[Range(name="x", first=1, last=1)])))
    first, packed = story.core.state.bags[bag].size, np.array(edges, dtype="<i4").tobytes()
    assert story.do(e.AppendPart(0, bag, first, pieces, f"part {first}", [source] * len(pieces), packed)).value == first


def _begin(story: Story) -> None:
    story.do(e.AddSite(0, "here", "ann", "local", ["bob"]))
    for name, scope in (("a1", "admin"), ("u1", "user")):
        story.do(e.IssueToken(0, name, name.encode() * 16, scope, "ann", "", story.now + 90 * DAY))
    story.do(e.RevokeToken(0, "u1"))


def _submit(story: Story) -> dict[str, int]:
    """Plain ones, a pipeline of two targets, a graph, an open one."""
    first = sweep(4, name="first", retries=0)
    after = Target(name="after", command="collect", after=["first"], resources=Resources(cores=2, memory=1 << 30))
    graph = Bag(name="graph", targets=[sweep(3)], edges=[(0, 1), (1, 2)])
    bags = {
        "plain": Bag(name="plain", targets=[sweep(40, retries=0)]),
        "gone": Bag(name="gone", targets=[sweep(3)]),
        "stages": Bag(name="stages", targets=[first, after]),
        "graph": graph,
        "open": Bag(name="open", targets=[Target(source=Items(items=["true", "false"]))], open=True),
    }
    numbers = {name: int(story.do(submission(0, "ann", bag, f"key-{name}")).value) for name, bag in bags.items()}
    source = msgspec.msgpack.encode((0, Items(items=["date", "uptime"])))
    story.do(e.Append(0, "ann", numbers["open"], 0, 2, "part-1", source))
    story.do(e.Pause(0, numbers["open"], True))
    return numbers


def _work(story: Story, bags: dict[str, int]) -> int:
    """Successes in columns, ends of other kinds, a pilot that comes again and takes over its own attempts."""
    big = story.pilot("big", 64)
    held = story.exchange(big, want=45)
    story.exchange(big, started=held[:10])
    done = [e.Report(a, wall=20, cpu=15, rss=1 << 20, out="hello\n", out_size=6) for a in held[:30]]
    story.exchange(big, reports=done)
    story.exchange(big, reports=[
        e.Report(held[30], "failed", "exit", exit=3, err="oops", err_size=4, note="ended with 3"),
        e.Report(held[31], "failed", "signal", signal=9), e.Report(held[32], "returned", "recall"),
        e.Report(held[33], files=[("out.txt", "ab" * 32, 12, 0o644)], value="dmFsdWU="),
    ])
    again = story.pilot("big", 64)
    story.exchange(again, held=held[34:], started=held[34:36])
    story.do(e.Cancel(0, bags["gone"], None))
    story.do(e.Retry(0, bags["gone"], [0]))
    story.do(e.Cancel(0, bags["gone"], None))
    story.exchange(again, reports=[e.Report(a, "cancelled", "cancel") for a in held[43:45]])
    story.do(e.Remove(0, bags["gone"]))
    return again


def _say_more(story: Story) -> dict[str, int]:
    """Checkpoints, captured values, kept directories, whole pilots, files that are gathered; up to the snapshot."""
    story.do(e.AddSite(0, "there", "bob", "local"))
    saving = Target(command="step {x}", source=Sweep(axes=[Range(name="x", first=1, last=3)]), checkpoint=["state"])
    parts = sweep(2, name="parts", outputs=["part"], resources=Resources(whole=True))
    merge = Target(name="merge", command="merge {parts.outputs}", after=["parts"], takes=["parts"])
    late = Target(name="late", command="late", after=["merge"], takes=["merge"])
    bags = {"saving": Bag(name="saving", targets=[saving]), "merged": Bag(name="merged", targets=[parts, merge, late])}
    numbers = {name: int(story.do(submission(0, "bob", bag, name)).value) for name, bag in bags.items()}
    pilot = story.pilot("saver", 3, "there")
    held = story.exchange(pilot, want=3)
    story.exchange(pilot, started=held)
    story.exchange(pilot, reports=[
        e.Report(held[0], "returned", "stop", saved=[("state", "cd" * 32, 9, 0o600)]),
        e.Report(held[1], "returned", "stop",
                 saved=[("state", "ce" * 32, 9, 0o600), ("state/more", "cf" * 32, 1, 0o600)]),
        e.Report(held[2], values={"energy": "-1.5"}, wall=4),
    ])
    numbers["pilot"] = pilot
    return numbers


def _provision(story: Story) -> tuple[int, int]:
    """A site with shapes: one pilot runs, some are queued, one has not been heard of."""
    shapes = [Shape(1, 2 << 30, 0, 1 << 40, 3_600_000)]
    limits = Limits(shapes, pilots=9, queued=6, share=900, budget=86_400_000)
    story.do(e.AddSite(0, "cluster", "cid", "slurm", limits=limits))
    bag = int(story.do(submission(0, "cid", Bag(name="queued", targets=[sweep(4)]), "queued")).value)
    story.wait(2_000)
    story.do(e.SiteReport(0, "cluster", "first", True))
    story.do(e.SiteReport(0, "cluster", "first", accepted=[(f"intent-{n}", str(n)) for n in (1, 2, 3)]))
    return bag, story.pilot("intent-1", 1, "cluster")


def _provision_on(story: Story, bag: int, pilot: int) -> None:
    """After the snapshot: what was queued is stopped with its bag, a pilot leaves; a tender follows another."""
    story.do(e.Cancel(0, bag, [0, 1]))
    story.wait(2_000)
    story.do(e.SiteReport(0, "cluster", "first", stopped=[("intent-3", "3")]))
    story.exchange(pilot, bye="idle")
    story.do(e.SiteReport(0, "cluster", "second", True))
    story.do(e.DrainSite(0, "cluster", "cid", True, by="cid"))
    story.do(e.AddSite(0, "old", "cid", "slurm"))
    story.do(e.RemoveSite(0, "old", "cid", "cid"))
    story.decide(SiteNoted(story.now, "cluster", "blackout", "it is tried again"))
    story.decide(HostJudged(story.now, "cluster", "host-intent-1", 1, story.now + 600_000, 1, "quarantined"))
    story.decide(SiteJudged(story.now, "cluster", story.now - 180_000, "nobody there says anything"))


def _leave_data(story: Story) -> None:
    """A task leaves files at a host, another one is to fetch them, and they are gone."""
    story.do(e.AddSite(0, "far", "eve", "local", disk=True))
    story.do(e.KnowLink(0, "home", "far", 1_200, 500_000))
    bag = submission(0, "eve", Bag(name="data", targets=[sweep(2)], edges=[(0, 1)]), "data")
    bag.data = DataShape(
        np.array([10, 0], "<i8").tobytes(), np.array([1, 0], "<i4").tobytes(), np.array([99, 0], "<i8").tobytes(),
        np.array([1, 0], "<i4").tobytes(), ["there"], keeps=True)
    bag.select, bag.data_selection = "data-conscious", DataSelection(penalty=3.0)
    story.do(bag)
    pilot = story.pilot("mover", 1, "far")
    story.exchange(pilot, reports=[e.Report(a, wall=5, left=(123, 2)) for a in story.exchange(pilot, want=1)])
    story.do(e.LosePlace(0, "far"))
    story.exchange(pilot, want=1)


def _spend(story: Story) -> None:
    """Under an allowance, at another's site, and under a budget that is raised; one attempt is over, one is not."""
    story.do(e.AddSite(0, "portal", "eve", "local", ["fay"]))
    story.do(e.SetAllowance(0, "fay", 10_000_000, "eve"))
    event = submission(0, "fay", Bag(name="dear", targets=[sweep(3, time=60_000)]), "dear")
    event.budget = 150_000
    number = int(story.do(event).value)
    pilot = story.pilot("portal", 1, "portal")
    story.exchange(pilot, want=1, reports=[e.Report(a, wall=900) for a in story.exchange(pilot, want=1)])
    story.do(e.SetBudget(0, number, 250_000, "fay"))


def _rule(story: Story) -> int:
    """By expressions: one bag comes with some, and is in its tail, another is given one."""
    event = submission(0, "ann", Bag(name="ruled", targets=[sweep(3)]), "ruled")
    event.policy = {"requirements": 'Host.Name == "node-chosen"', "rank": "!Tail ? 1 : Host.JobsToday"}
    number = int(story.do(event).value)
    pilot = story.pilot("chosen", 2)
    story.exchange(pilot, reports=[e.Report(a, wall=9) for a in story.exchange(pilot, want=2)[:1]])
    other = int(story.do(submission(0, "ann", Bag(name="later", targets=[sweep(3)]), "later")).value)
    story.do(e.SetPolicy(0, other, {"requirements": "Host.Cores > 64"}, "ann"))
    story.do(e.SetWeight(0, "bob", 3, "ann"))
    story.decide(BagAged(story.now, other, True))
    return number


def _fail_over(story: Story) -> None:
    """Two tasks keep failing and go to another site; one is there, one waits."""
    story.do(e.AddSite(0, "safe", "eve", "local"))
    event = submission(0, "eve", Bag(name="brittle", targets=[sweep(2)]), "brittle")
    event.fail_over = "safe"
    story.do(event)
    pilot = story.pilot("brittle", 2, "far")
    for _ in range(4):
        held = story.exchange(pilot, want=2)
        story.exchange(pilot, reports=[e.Report(a, "failed", "exit", exit=1) for a in held])
    story.exchange(story.pilot("safe", 1, "safe"), want=1)


def _after_that(story: Story, bags: dict[str, int]) -> None:
    """Checkpoints serve; a target is gathered, another cannot be; a bag that ended goes on."""
    pilot = bags["pilot"]
    parts = [("part", "dd" * 32, 3, 0o644)]
    for _ in range(6):
        held = story.exchange(pilot, want=1)
        story.exchange(pilot, reports=[e.Report(a, files=parts, wall=2) for a in held])
        story.do(e.InputsGathered(0, bags["merged"], 1))
    story.do(e.InputsGathered(0, bags["merged"], 2, refused="too many files"))
    source = msgspec.msgpack.encode((0, Sweep(axes=[Range(name="x", first=4, last=5)])))
    story.do(e.Append(0, "bob", bags["saving"], 0, 2, "more", source, extends=True))
    held = story.exchange(pilot, want=1)
    story.exchange(pilot, reports=[e.Report(a, "failed", "exit", exit=1, scratch=("ee" * 32, 77)) for a in held])
    story.exchange(pilot, bye="stopped")


def _fill_batches(story: Story) -> None:
    """Batches of two; the last of three tasks waits for a fourth, and then no longer."""
    event = submission(0, "bob", Bag(name="batched", targets=[sweep(3)], open=True), "batched")
    event.targets[0].batch, event.targets[0].patience = 2, 5_000
    number = int(story.do(event).value)
    pilot = story.pilot("batcher", 2, "there")
    held = story.exchange(pilot, want=2)
    story.wait(6_000)
    story.exchange(pilot, want=1, reports=[e.Report(a, wall=9) for a in held])
    story.do(e.Close(0, number))
    story.exchange(pilot, bye="stopped")


def _go_on(story: Story, bags: dict[str, int], old: int) -> None:
    """After the snapshot: the rest of everything, a pilot that falls silent, one that drains and leaves."""
    story.do(e.Pause(0, bags["open"], False))
    story.do(e.Close(0, bags["open"]))
    small = story.pilot("small", 2)
    held = story.exchange(small, want=2)
    story.exchange(small, started=held)
    story.do(e.Drain(0, small))
    story.exchange(small, reports=[e.Report(a, "failed", "exit", exit=1) for a in held])
    story.exchange(small, bye="stopped")
    story.do(e.Gone(0, old, "gone"))
    story.wait(2 * DAY)  # those that ended are forgotten
    last = story.pilot("last", 8)
    held = story.exchange(last, want=20)
    story.exchange(last, started=held[:3])
    story.exchange(last, reports=[e.Report(a, wall=7) for a in held[:12]])
    story.wait(70_000)  # a lease runs out; what it holds may still come
    story.do(e.Cancel(0, bags["graph"], [2]))
    story.do(e.Retry(0, bags["graph"], [2]))
    story.do(e.Cancel(0, bags["stages"], [4]))


# --- what is expected -----------------------------------------------------------------------------------------------

def plain(value: Any) -> Any:
    """Return the value with types that JSON has."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.hex() if isinstance(value, bytes) else value


def recovered(journal: Journal, snapshot: bool = True) -> Core:
    """A core that folded the journal, from the snapshot or from the first row."""
    core, after = Core(Config()), 0
    found = journal.load_snapshot() if snapshot else None
    if found is not None:
        core.restore(found.meta, found.chunks)
        after = found.position
    for _, _, body in journal.read(after):
        core.replay(codec.decode(body))
    core.resume(journal.last_at())
    return core


def shown(journal: Journal, path: Path) -> dict[str, Any]:
    """Return the answers of the views to all queries."""
    views = Views.open(path, journal.identity, journal.position)
    for position, _, body in journal.read(0):
        views.project(position, codec.decode(body))
    views.flush()
    bags = range(1, 20)
    made = {str(bag): [msgspec.to_builtins(row) for row in views.results(bag)] for bag in bags if views.results(bag)}
    views.close()
    return plain(made)  # type: ignore[no-any-return]


def compact(value: Any, indent: str = "") -> str:
    """JSON with a line for every key."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    inner = indent + " "
    lines = [f"{inner}{json.dumps(key)}: {compact(value[key], inner)}" for key in sorted(value)]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def main(name: str) -> None:
    path = HERE / f"{name}.db"
    path.unlink(missing_ok=True)
    journal = Journal.open(path)
    story = Story(journal)
    tell(story)
    expected = fingerprint(recovered(journal).state)
    assert expected == fingerprint(recovered(journal, snapshot=False).state)
    views = HERE / "views.tmp"
    text = {"fingerprint": plain(expected), "results": shown(journal, views)}
    (HERE / f"{name}.json").write_text(compact(text) + "\n")
    journal.close()
    for rest in (path.with_suffix(".lock"), path.with_suffix(".mark"), *HERE.glob("views.tmp*")):
        rest.unlink()


if __name__ == "__main__":
    main(sys.argv[1])
