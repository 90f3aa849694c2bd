"""Rows of results, as `docs/reference/http.md` has them: from the facts of a commit, or from the views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from windfall.core import facts as f
from windfall.core.lifecycle import CANCELLED, O_SUCCEEDED, OUTCOMES, SUCCEEDED, TASK_STATES
from windfall.server.grants import Rendering
from windfall.server.schema import Row

_PLAIN = f.Detail()


def touched(facts: Iterable[f.Fact]) -> dict[int, None]:
    """Bags whose counts a commit may have changed."""
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


class Maker:
    """Rows of one bag from facts."""

    def __init__(self, state: Any, bag: Any, rendering: Rendering) -> None:
        self._state = state
        self._bag = bag
        self._rendering = rendering

    def rows(self, facts: Iterable[f.Fact]) -> Iterator[Row]:
        number = self._bag.number
        for fact in facts:
            if isinstance(fact, f.Finished):
                if fact.bag == number:
                    yield from self._finished(fact)
            elif isinstance(fact, f.Ended):
                yield from (self._ended(fact, e) for e in fact.ends if e.bag == number and e.decides)
            elif isinstance(fact, f.TasksCancelled) and fact.bag == number:
                yield from self._cancelled(fact)

    def _finished(self, fact: f.Finished) -> Iterator[Row]:
        site, host = self._place(fact.pilot)
        generation = self._bag.tasks.generation
        for i, task in enumerate(fact.tasks):
            d = fact.details.get(i, _PLAIN)
            target, params = self._rendering.params(task)
            wall = fact.walls[i]
            yield Row(
                task, target, params, TASK_STATES[SUCCEEDED], generation[task], fact.attempts[i],
                OUTCOMES[O_SUCCEEDED], "", d.exit, d.signal, site, host, fact.granted[i], fact.at - wall, fact.at,
                wall, fact.cpus[i], fact.rss[i], d.out_size, d.err_size, d.files, d.value, d.note,
            )

    def _ended(self, fact: f.Ended, e: f.End) -> Row:
        site, host = self._place(fact.pilot)
        d = e.detail or _PLAIN
        target, params = self._rendering.params(e.task)
        return Row(
            e.task, target, params, TASK_STATES[e.verdict], e.generation, e.attempt, OUTCOMES[e.outcome], e.why, d.exit,
            d.signal, site, host, e.granted, fact.at - e.wall, fact.at, e.wall, e.cpu, e.rss, d.out_size, d.err_size,
            d.files, d.value, d.note,
        )

    def _cancelled(self, fact: f.TasksCancelled) -> Iterator[Row]:
        generation = self._bag.tasks.generation
        for first, count in fact.runs:
            for task in range(first, first + count):
                target, params = self._rendering.params(task)
                yield Row(
                    task, target, params, TASK_STATES[CANCELLED], generation[task], None, "", fact.why, None, None,
                    "", "", None, None, fact.at, 0, 0, 0, 0, 0, [], "", "",
                )

    def _place(self, pilot: int) -> tuple[str, str]:
        found = self._state.pilots.get(pilot)
        return (found.site, found.host_name) if found is not None else ("", "")


def size(facts: Iterable[f.Fact]) -> int:
    """How many rows these facts may become."""
    total = 0
    for fact in facts:
        if isinstance(fact, f.Finished):
            total += len(fact.tasks)
        elif isinstance(fact, f.Ended):
            total += len(fact.ends)
        elif isinstance(fact, f.TasksCancelled):
            total += sum(count for _, count in fact.runs)
    return total


def from_view(rendering: Rendering, row: Any) -> Row:
    target, params = rendering.params(row.task)
    return Row(
        row.task, target, params, row.state, row.generation, row.attempt, row.outcome, row.why, row.exit, row.signal,
        row.site, row.host, row.granted, row.started, row.ended, row.wall, row.cpu, row.rss, row.out_size, row.err_size,
        row.files, row.value, row.note,
    )
