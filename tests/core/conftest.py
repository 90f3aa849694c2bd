"""The bench that tests of the core drive: a core, a clock turned by the test, every promise checked in each step."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from windfall.core.config import Config
from windfall.core.invariants.history import Witness
from windfall.core.invariants.moves import StatesBefore
from windfall.core.invariants.promises import check_all
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.messages.lifecycle import ATTEMPT_STATES, TASK_STATES
from windfall.core.persist.fingerprint import differences, fingerprint
from windfall.core.read.explain import explain
from windfall.core.step import Core, Step
from windfall.core.turn import Turn
from windfall.store import codec

LEASE, MARGIN = 60_000, 5_000
TOGETHER = (LEASE + MARGIN) // 256  # the most by which the core sees an expired lease late
GONE_SILENT = LEASE + MARGIN + TOGETHER
HOUR = 3_600_000
PATIENT = {"lease": 100 * HOUR, "silence": 200 * HOUR, "idle": 200 * HOUR}
"""No pilot of a bench with this configuration is silent or idle for too long, however long the test runs."""


def shape(count: int = 1, **changes: Any) -> f.TargetShape:
    usual = f.TargetShape("main", count, [], 1, 0, 0, 0, 0, 0, 1_000, False, 3, 0, 0)
    return msgspec.structs.replace(usual, **changes)


class WatchedTurn(Turn):
    def emit(self, fact: f.Fact) -> None:
        moves = StatesBefore(self.state)
        super().emit(fact)
        assert moves.broken(self.state) == []


class Bench:
    checking = True  # are the promises checked after every step?
    counting = False  # does `calls` hold how many Python functions the core called in the last step?
    calls = 0

    def __init__(self, **config: Any) -> None:
        self.config = Config(**config)
        self.core = Core(self.config, WatchedTurn)
        self.now = 1_000_000
        self.key = self.seq = 0
        self.witness = Witness()
        self.journal: list[bytes] = []
        self.effects: list[x.Effect] = []
        self.step(e.AddSite(0, "here", "ann", "local"))

    # --- driving ----------------------------------------------------------------------------------------------------

    def step(self, *events: e.Event) -> list[x.Effect]:
        for event in events:
            self.key += 1
            event.key = self.key
        made = self._count_calls(events) if self.counting else self.core.step(self.now, events)
        if made.facts:
            self.journal.append(codec.encode(made.facts))
        self.witness.observe(made.facts)
        self.facts, self.effects, self.wake_at = made.facts, made.effects, made.wake_at
        assert not self.checking or check_all(self.core.turn, self.witness) == []
        return made.effects

    def _count_calls(self, events: Sequence[e.Event]) -> Step:
        """Let the core take a step, and count the Python functions that it calls: its work, without a clock."""
        self.calls = 0

        def note(_frame: object, event: str, _argument: object) -> None:
            self.calls += event == "call"

        sys.setprofile(note)
        try:
            return self.core.step(self.now, events)
        finally:
            sys.setprofile(None)

    def do(self, event: e.Event) -> Any:
        """Hand in an event; return the effect that answers it, or None."""
        effects = self.step(event)
        return next((effect for effect in effects if effect.key == event.key), None)

    def wait(self, ms: int) -> list[x.Effect]:
        """Let time pass, step whenever a timer is due, and return the effects of all these steps."""
        end, seen = self.now + ms, []
        while self.wake_at is not None and self.wake_at <= end:
            self.now = max(self.now, self.wake_at)
            seen += self.step()
        self.now = end
        return seen + self.step()

    # --- users ------------------------------------------------------------------------------------------------------

    def submit(self, *targets: f.TargetShape, owner: str = "ann", key: str = "", **more: Any) -> int:
        event = e.Submit(
            0, owner, "bag", key, b"spec", list(targets) or [shape()], more.get("external", False),
            more.get("select", "fcfs"), more.get("open", False), more.get("edges", b""), more.get("provision", "swarm"),
            replicate=more.get("replicate", "none"),
            policy=more.get("policy", {}), absence=more.get("absence", 0),
        )
        return int(self.do(event).value)

    def append(self, bag: int, count: int, target: int = 0, key: str = "") -> Any:
        return self.do(e.Append(0, "ann", bag, target, count, key, b"source"))

    def part(self, bag: int, *pieces: tuple[int, int], edges: Any = (), key: str = "", first: int | None = None) -> Any:
        """Append tasks with edges: `pieces` are (target, count), `edges` (before, after)."""
        first = self.core.state.bags[bag].size if first is None else first
        packed = np.array(list(edges), dtype="<i4").tobytes()
        return self.do(e.AppendPart(0, bag, first, list(pieces), key, [b"source"] * len(pieces), packed))

    # --- pilots -----------------------------------------------------------------------------------------------------

    def pilot(self, cores: int = 1, nonce: str = "", site: str = "here", left: int | None = None, **more: Any) -> int:
        nonce, host = nonce or f"n{self.core.state.next_pilot}", more.get("host", "host")
        event = e.Enrol(
            0, site, nonce, host, more.get("name", host), cores, more.get("memory", 4 << 30), more.get("gpus", 0),
            more.get("disk", 1 << 40), left, b"token %d" % self.core.state.next_pilot, nodes=more.get("nodes", 1),
            boot=more.get("boot", ""), life=more.get("life", ""), hardware=more.get("hardware", ""),
        )
        return int(self.do(event).pilot)

    def exchange(self, pilot: int, **fields: Any) -> x.ExchangeReply | None:
        """Hand in a request of a pilot; return the answer, or None if the request waits."""
        return self.do(self.asks(pilot, **fields))

    def asks(self, pilot: int, **fields: Any) -> e.Exchange:
        """Return a request of a pilot, for the test to hand in."""
        self.seq += 1
        state = self.core.state.pilots.get(pilot)
        fields.setdefault("ack", state.granted if state else 0)
        return e.Exchange(0, pilot, state.epoch if state else 1, self.seq, **fields)

    def take(self, pilot: int, want: int = 1_000, **fields: Any) -> list[tuple[int, int]]:
        """Ask for tasks; return (attempt, task) in the order granted."""
        answer = self.exchange(pilot, want=want, **fields)
        assert answer is not None
        return granted(answer)

    def report(self, pilot: int, attempt: int, outcome: str = "succeeded", why: str = "", **more: Any) -> Any:
        return self.exchange(pilot, reports=[e.Report(attempt, outcome, why, **more)])

    def start(self, host: str, **more: Any) -> tuple[int, int, int]:
        """Enrol a pilot that takes one task and starts it; return the pilot, its attempt and the task."""
        pilot = self.pilot(host=host, **more)
        ((attempt, task),) = self.take(pilot, 1)
        self.exchange(pilot, started=[attempt])
        return pilot, attempt, task

    def finish(self, host: str, tasks: int, wall: int) -> None:
        """Enrol a pilot of that host, which runs so many tasks, each for `wall` ms, and leaves."""
        pilot = self.pilot(host=host)
        for _ in range(tasks):
            self.report(pilot, self.take(pilot, 1)[0][0], wall=wall)
        self.exchange(pilot, bye="idle")

    # --- looking ----------------------------------------------------------------------------------------------------

    def task(self, bag: int, task: int = 0) -> str:
        return TASK_STATES[self.core.state.bags[bag].tasks.state[task]]

    def tasks(self, bag: int) -> str:
        """Return the first letter of the state of each task of a bag."""
        return "".join(self.task(bag, task)[0] for task in range(self.core.state.bags[bag].size))

    def attempt(self, number: int) -> str:
        row = self.core.state.attempts.row(number)
        return "free" if row < 0 else ATTEMPT_STATES[self.core.state.attempts.state[row]]

    def explain(self, bag: int, task: int | None = None) -> str:
        return str(explain(self.core.state, self.now, bag, task)["summary"])

    # --- recovery ---------------------------------------------------------------------------------------------------

    def restart(self, snapshot: tuple[int, bytes, dict[str, bytes]] | None = None) -> None:
        """Lose the core's memory, fold the journal in a new core, and compare the fingerprints of both."""
        core = Core(self.config, WatchedTurn)
        after = 0
        if snapshot is not None:
            after, meta, chunks = snapshot
            core.restore(meta, chunks)
        for body in self.journal[after:]:
            core.replay(codec.decode(body))
        core.resume(self.now)
        before, self.core = fingerprint(self.core.state), core
        assert differences(before, fingerprint(core.state)) == []
        assert check_all(core.turn, self.witness) == []
        self.wake_at = self.now

    def snapshot(self) -> tuple[int, bytes, dict[str, bytes]]:
        meta, chunks, _ = self.core.snapshot()
        return len(self.journal), meta, dict(chunks)


def granted(answer: x.ExchangeReply) -> list[tuple[int, int]]:
    return [
        (attempt, task) for _, groups in answer.grants for group in groups
        for attempt, task in zip(group.attempts, group.tasks, strict=True)
    ]


def bags_of(answer: x.ExchangeReply | None) -> list[int]:
    """Return the bag of each group of tasks that an answer grants."""
    return [group.bag for _, groups in answer.grants for group in groups] if answer is not None else []


def tasks_by_bag(answer: x.ExchangeReply | None) -> list[tuple[int, int]]:
    """Return, for each group of tasks that an answer grants, its bag and how many tasks it has."""
    if answer is None:
        return []
    return [(group.bag, len(group.tasks)) for _, groups in answer.grants for group in groups]


def answers(effects: list[x.Effect], pilot: int) -> list[x.ExchangeReply]:
    return [effect for effect in effects if isinstance(effect, x.ExchangeReply) and effect.pilot == pilot]


@pytest.fixture
def bench() -> Bench:
    return Bench()
