"""Rows of results as `docs/reference/http.md` describes them, made from the facts of a commit or from the views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import CANCELLED, FREE, O_SUCCEEDED, OUTCOMES, SUCCEEDED, TASK_STATES
from windfall.core.state.world import BagState, State
from windfall.server.grants import Rendering
from windfall.server.http.schema import ResultRow
from windfall.store.views import exit_of

_PLAIN = f.Detail()


def touched(facts: Iterable[f.Fact]) -> dict[int, None]:
    """Return the bags whose counts a commit may have changed."""
    bags: dict[int, None] = {}
    for fact in facts:
        if isinstance(fact, f.Granted):
            bags.update((group.bag, None) for group in fact.groups)
        elif isinstance(fact, f.Ended):
            bags.update((end.bag, None) for end in fact.ends)
        else:
            bag = getattr(fact, "bag", None)
            if bag is not None:
                bags[bag] = None
    return bags


class RecordedCommit(msgspec.Struct, gc=False):
    """A published commit, with those parts of the state that its facts lack and later commits change."""

    position: int
    facts: list[f.Fact]
    started: dict[int, int] = {}  # attempts that ended here → when their pilots reported their start
    generations: dict[tuple[int, int], Any] = {}  # (bag, first) of cancelled runs → generations, if not all 0


class CommitRecorder:
    """Makes recorded commits out of facts; remembers when attempts started, as the views do."""

    def __init__(self, state: State) -> None:
        self._state = state
        attempts = state.attempts
        begun = np.flatnonzero((attempts.np_state != FREE) & (attempts.np_started != 0))
        pairs = zip(attempts.np_number[begun].tolist(), attempts.np_started[begun].tolist(), strict=True)
        self._started: dict[int, int] = dict(pairs)

    def record(self, position: int, facts: list[f.Fact]) -> RecordedCommit:
        commit = RecordedCommit(position, facts, {}, {})
        for fact in facts:
            if isinstance(fact, f.Started):
                self._started.update(dict.fromkeys(fact.attempts, fact.at))
            elif isinstance(fact, f.Finished):
                if self._started:
                    self._note_started(commit, fact.attempts)
            elif isinstance(fact, f.Ended):
                if self._started:
                    self._note_ended(commit, fact)
            elif isinstance(fact, f.TasksCancelled):
                self._note_generations(commit, fact)
        return commit

    def _note_started(self, commit: RecordedCommit, attempts: list[int]) -> None:
        for attempt in attempts:
            at = self._started.pop(attempt, None)
            if at is not None:
                commit.started[attempt] = at

    def _note_ended(self, commit: RecordedCommit, fact: f.Ended) -> None:
        for end in fact.ends:
            at = self._started.get(end.attempt)
            if at is not None:
                commit.started[end.attempt] = at
                if not end.row_kept:
                    del self._started[end.attempt]

    def _note_generations(self, commit: RecordedCommit, fact: f.TasksCancelled) -> None:
        bag = self._state.bags.get(fact.bag)
        if bag is None:
            return
        for first, count in fact.runs:
            generations = bag.tasks.np_generation[first : first + count]
            if generations.any():
                same = bool((generations == generations[0]).all())  # a hundred million equal numbers take one's room
                commit.generations[fact.bag, first] = (
                    np.broadcast_to(generations[0].copy(), count) if same else generations.copy()
                )


class RowMaker:
    """Makes the rows of one bag from recorded commits."""

    def __init__(self, state: State, bag: BagState, rendering: Rendering) -> None:
        self._state = state
        self._bag = bag
        self._rendering = rendering

    def rows(self, commit: RecordedCommit) -> Iterator[ResultRow]:
        number = self._bag.number
        for fact in commit.facts:
            if isinstance(fact, f.Finished):
                if fact.bag == number:
                    yield from self._finished(commit, fact)
            elif isinstance(fact, f.Ended):
                yield from (self._ended(commit, fact, e) for e in fact.ends if e.bag == number and e.decides)
            elif isinstance(fact, f.TasksCancelled) and fact.bag == number:
                yield from self._cancelled(commit, fact)

    def _finished(self, commit: RecordedCommit, fact: f.Finished) -> Iterator[ResultRow]:
        site, host = self._place(fact.pilot)
        generation = self._bag.tasks.generation  # a success is final, so its generation does not change
        for i, task in enumerate(fact.tasks):
            d = fact.details.get(i, _PLAIN)
            target, params = self._rendering.params(task)
            attempt, wall = fact.attempts[i], fact.walls[i]
            yield ResultRow(
                task=task, target=target, params=params, state=TASK_STATES[SUCCEEDED], generation=generation[task],
                attempt=attempt, outcome=OUTCOMES[O_SUCCEEDED], why="", exit=d.exit, signal=d.signal, site=site,
                host=host, granted=fact.granted[i], started=self._began(commit, fact, i),
                ended=fact.at, wall=wall, cpu=fact.cpus[i], rss=fact.rss[i], out_size=d.out_size, err_size=d.err_size,
                files=d.files, value=d.value, note=d.note, values=d.values, saved=d.saved, scratch=d.scratch)

    def _began(self, commit: RecordedCommit, fact: f.Finished, i: int) -> int:
        noted, start = commit.started.get(fact.attempts[i]), fact.starts[i] if fact.starts else 0
        return f.began(noted, start, fact.granted[i], fact.at, fact.walls[i])

    def _ended(self, commit: RecordedCommit, fact: f.Ended, e: f.End) -> ResultRow:
        site, host = self._place(fact.pilot)
        d = e.detail or _PLAIN
        silent = d == _PLAIN and e.outcome != O_SUCCEEDED  # no pilot reported the attempt's end
        target, params = self._rendering.params(e.task)
        return ResultRow(
            task=e.task, target=target, params=params, state=TASK_STATES[e.verdict], generation=e.generation,
            attempt=e.attempt, outcome=OUTCOMES[e.outcome], why=e.why,
            exit=None if silent else exit_of(d.exit, d.signal, e.why), signal=None if silent else d.signal, site=site,
            host=host, granted=e.granted, ended=fact.at,
            started=f.began(commit.started.get(e.attempt), e.start, e.granted, fact.at, e.wall), wall=e.wall, cpu=e.cpu,
            rss=e.rss, out_size=d.out_size, err_size=d.err_size, files=d.files, value=d.value,
            note=d.note, values=d.values, saved=d.saved, scratch=d.scratch)

    def _cancelled(self, commit: RecordedCommit, fact: f.TasksCancelled) -> Iterator[ResultRow]:
        for first, count in fact.runs:
            generations = commit.generations.get((fact.bag, first))
            for task in range(first, first + count):
                target, params = self._rendering.params(task)
                generation = 0 if generations is None else int(generations[task - first])
                yield ResultRow(
                    task=task, target=target, params=params, state=TASK_STATES[CANCELLED], generation=generation,
                    attempt=None, outcome="", why=fact.why, exit=None, signal=None, site="", host="", granted=None,
                    started=None, ended=fact.at, wall=0, cpu=0, rss=0, out_size=0, err_size=0, files=[], value="",
                    note=fact.note, values={}, saved=[], scratch=None)

    def _place(self, pilot: int) -> tuple[str, str]:
        found = self._state.pilots.get(pilot)
        return (found.site, found.host_name) if found is not None else ("", "")


def row_count(facts: Iterable[f.Fact]) -> int:
    """Return how many rows these facts may become."""
    total = 0
    for fact in facts:
        if isinstance(fact, f.Finished):
            total += len(fact.tasks)
        elif isinstance(fact, f.Ended):
            total += len(fact.ends)
        elif isinstance(fact, f.TasksCancelled):
            total += sum(count for _, count in fact.runs)
    return total


ROW_BYTES = 256  # approximate memory of a row without details


def memory_bytes(facts: Iterable[f.Fact]) -> int:
    """Estimate the bytes that these facts take in memory."""
    total = 0
    for fact in facts:
        if isinstance(fact, f.Finished):
            total += ROW_BYTES * len(fact.tasks) + sum(map(_detail_weight, fact.details.values()))
        elif isinstance(fact, f.Ended):
            total += ROW_BYTES * len(fact.ends) + sum(_detail_weight(e.detail) for e in fact.ends if e.detail)
        elif isinstance(fact, f.Granted):
            total += sum(64 * len(group.tasks) for group in fact.groups)
        elif isinstance(fact, f.Started):
            total += 64 * len(fact.attempts)
        else:
            total += ROW_BYTES + len(getattr(fact, "spec", b"")) + len(getattr(fact, "source", b""))
    return total


def _detail_weight(d: f.Detail) -> int:
    values = sum(map(len, d.values.values()))
    lists = 1 + len(d.files) + len(d.saved) + len(d.values)
    return ROW_BYTES * lists + len(d.out) + len(d.err) + len(d.value) + len(d.note) + values


def from_view(rendering: Rendering, row: Any) -> ResultRow:
    target, params = rendering.params(row.task)
    return ResultRow(
        task=row.task, target=target, params=params, state=row.state, generation=row.generation, attempt=row.attempt,
        outcome=row.outcome, why=row.why, exit=row.exit, signal=row.signal, site=row.site, host=row.host,
        granted=row.granted, started=row.started, ended=row.ended, wall=row.wall, cpu=row.cpu, rss=row.rss,
        out_size=row.out_size, err_size=row.err_size, files=row.files, value=row.value, note=row.note,
        values=row.values, saved=row.saved, scratch=row.scratch)
