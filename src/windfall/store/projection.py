"""The projection: fills the views from facts.

    attempt   one narrow row per ended attempt, in the order of bag and task, so that a page is one range of the tree
    detail    fields that most attempts lack: exit code, output, files, value; a separate table keeps pages small
    span      runs of tasks that were cancelled or retried: a row per run, never one per task
    started   when attempts in play began, until they end
    bag, pilot   for summaries; `tally` has the sums

Spans of a bag do not overlap: the last cancellation or retry of a task counts, and carries the task's generation.  A
row with a greater `seq` than the span of its task is later than the span.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import CANCELLED, O_SUCCEEDED, READY, SUCCEEDED
from windfall.store.tally import Tally

TABLES = """
CREATE TABLE attempt (bag INTEGER, task INTEGER, attempt INTEGER, seq INTEGER, generation INTEGER, outcome INTEGER,
                      verdict INTEGER, why TEXT, pilot INTEGER, granted INTEGER, started INTEGER, ended INTEGER,
                      wall INTEGER, cpu INTEGER, rss INTEGER, PRIMARY KEY (bag, task, attempt)) WITHOUT ROWID;
CREATE INDEX attempt_unhappy ON attempt (bag, verdict, task) WHERE verdict > 4;
CREATE TABLE detail (attempt INTEGER PRIMARY KEY, bag INTEGER, exit INTEGER, signal INTEGER, out_size INTEGER,
                     err_size INTEGER, files BLOB, value TEXT, note TEXT, out BLOB, err BLOB,
                     caught BLOB, saved BLOB, scratch TEXT, scratch_size INTEGER);
CREATE INDEX detail_bag ON detail (bag);
CREATE TABLE span (bag INTEGER, first INTEGER, last INTEGER, seq INTEGER, state INTEGER, generation INTEGER, at INTEGER,
                   why TEXT, note TEXT, PRIMARY KEY (bag, first)) WITHOUT ROWID;
CREATE TABLE started (attempt INTEGER PRIMARY KEY, at INTEGER);
CREATE TABLE bag (bag INTEGER PRIMARY KEY, owner TEXT, name TEXT, tasks INTEGER, submitted INTEGER, closed INTEGER,
                  removed INTEGER);
CREATE TABLE pilot (pilot INTEGER PRIMARY KEY, site TEXT, owner TEXT, host TEXT, host_name TEXT, cores INTEGER,
                    memory INTEGER, epoch INTEGER, enrolled INTEGER, ended INTEGER, why TEXT, detail TEXT);
"""

_ATTEMPT = f"INSERT OR REPLACE INTO attempt VALUES ({', '.join('?' * 15)})"
_DETAIL = f"INSERT OR REPLACE INTO detail VALUES ({', '.join('?' * 15)})"
_PLAIN = f.Detail()
_TIMES = {
    "attempt": ("granted", "started", "ended"), "span": ("at",), "started": ("at",), "bag": ("submitted", "closed"),
    "pilot": ("enrolled", "ended"), "usage": ("first", "last"),
}
_json = msgspec.json.encode

Span = tuple[int, int, int, int, int, int, int, str, str]  # the columns of `span`


class Projection:
    """Turns facts into rows.  `write` inserts attempts in bulk; rows of other tables are inserted at once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.attempts: list[tuple[Any, ...]] = []
        self._details: list[tuple[Any, ...]] = []
        self._tally = Tally(connection)
        self._over: list[tuple[int]] = []
        self._started: dict[int, int] = {}
        self._spanned: set[int] = set()
        self.reload()
        self._handlers: dict[type[Any], Callable[[int, Any], None]] = {
            f.BagSubmitted: self._bag_submitted,
            f.TasksAppended: self._tasks_appended,
            f.PartAppended: self._tasks_appended,
            f.BagClosed: self._bag_closed,
            f.BagRemoved: self._bag_removed,
            f.TasksCancelled: self._tasks_cancelled,
            f.TasksRetried: self._tasks_retried,
            f.PilotEnrolled: self._pilot_enrolled,
            f.PilotEnded: self._pilot_ended,
            f.Started: self._attempts_started,
            f.Finished: self._finished,
            f.Ended: self._ended,
            f.ClockSet: self._clock_set,
        }

    def reload(self) -> None:
        """Read again the parts of the tables that memory holds, after rows were deleted without a fact."""
        self._started = dict(self._connection.execute("SELECT attempt, at FROM started"))
        self._spanned = {bag for (bag,) in self._connection.execute("SELECT DISTINCT bag FROM span")}

    def take(self, seq: int, facts: Sequence[f.Fact]) -> None:
        for fact in facts:
            handler = self._handlers.get(type(fact))
            if handler is not None:
                handler(seq, fact)

    def write(self) -> None:
        """Insert the gathered rows, within the open transaction."""
        many = self._connection.executemany
        many(_ATTEMPT, self.attempts)
        many(_DETAIL, self._details)
        many("DELETE FROM started WHERE attempt = ?", self._over)
        self._tally.write()
        for gathered in (self.attempts, self._details, self._over):
            gathered.clear()

    def _clock_set(self, seq: int, fact: f.ClockSet) -> None:
        """Move the times that a wrong clock gave back, as `core/apply/clock.py` moves those of the state."""
        if fact.before <= fact.at:
            return
        self.write()
        for table, columns in _TIMES.items():
            for column in columns:
                self._connection.execute(f"UPDATE {table} SET {column} = {column} - ? WHERE {column} > ?",
                                         (fact.before - fact.at, fact.at))
        self.reload()

    # --- ends of attempts -------------------------------------------------------------------------------------

    def _finished(self, seq: int, fact: f.Finished) -> None:
        bag, pilot, at, started = fact.bag, fact.pilot, fact.at, self._started
        generations = self._generations(bag, fact.tasks) if bag in self._spanned else [0] * len(fact.tasks)
        reported = fact.starts or [0] * len(fact.tasks)
        lists = (fact.attempts, reported, fact.granted, fact.walls)
        starts = [f.began(started.get(attempt), start, granted, at, wall)
                  for attempt, start, granted, wall in zip(*lists, strict=True)]
        columns = (fact.attempts, fact.tasks, generations, fact.granted, starts, fact.walls, fact.cpus, fact.rss)
        self.attempts += [
            (bag, task, attempt, seq, generation, O_SUCCEEDED, SUCCEEDED, "", pilot, granted, start, at, wall, cpu, rss)
            for attempt, task, generation, granted, start, wall, cpu, rss in zip(*columns, strict=True)
        ]
        for place, detail in fact.details.items():
            self._keep_detail(fact.attempts[place], bag, detail)
        self._forget_started(fact.attempts)
        self._tally.finished(fact, starts)

    def _ended(self, seq: int, fact: f.Ended) -> None:
        for e in fact.ends:
            started = f.began(self._started.get(e.attempt), e.start, e.granted, fact.at, e.wall)
            self.attempts.append(
                (e.bag, e.task, e.attempt, seq, e.generation, e.outcome, e.verdict, e.why, fact.pilot,
                 e.granted, started, fact.at, e.wall, e.cpu, e.rss)
            )
            if e.detail is not None:
                self._keep_detail(e.attempt, e.bag, e.detail)
            if not e.row_kept:
                self._forget_started([e.attempt])
            self._tally.ended(fact, e, started)

    def _keep_detail(self, attempt: int, bag: int, d: f.Detail) -> None:
        if d != _PLAIN:
            self._tally.store(bag, d)
            files, caught, saved = (_json(each) if each else None for each in (d.files, d.values, d.saved))
            self._details.append(
                (attempt, bag, d.exit, d.signal, d.out_size, d.err_size, files, d.value, d.note, d.out, d.err, caught,
                 saved, *(d.scratch or (None, None)))
            )

    def _forget_started(self, attempts: list[int]) -> None:
        if self._started:
            self._over += [(attempt,) for attempt in attempts if self._started.pop(attempt, None) is not None]

    def _attempts_started(self, seq: int, fact: f.Started) -> None:
        begun = dict.fromkeys(fact.attempts, fact.at)
        self._started.update(begun)
        self._connection.executemany("INSERT OR REPLACE INTO started VALUES (?, ?)", begun.items())

    # --- runs of tasks ----------------------------------------------------------------------------------------

    def _tasks_cancelled(self, seq: int, fact: f.TasksCancelled) -> None:
        self._lay_spans(fact, lambda first, last, generation: (
            fact.bag, first, last, seq, CANCELLED, generation, fact.at, fact.why, fact.note))

    def _tasks_retried(self, seq: int, fact: f.TasksRetried) -> None:
        self._lay_spans(fact, lambda first, last, generation: (
            fact.bag, first, last, seq, READY, generation + 1, fact.at, "", ""))
        self._tally.retried(fact)

    def _lay_spans(self, fact: f.TasksCancelled | f.TasksRetried, make: Callable[[int, int, int], Span]) -> None:
        """Lay the fact's runs over the spans of its bag.  `make` gets first task, last task and the old generation."""
        self._spanned.add(fact.bag)
        for first, count in fact.runs:
            last = first + count - 1
            old = overlapping(self._connection, fact.bag, first, last)
            fresh = _cover(old, first, last, make)
            self._connection.executemany("DELETE FROM span WHERE bag = ? AND first = ?", [span[:2] for span in old])
            self._connection.executemany("INSERT INTO span VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", fresh)

    def _generations(self, bag: int, tasks: list[int]) -> list[int]:
        spans = overlapping(self._connection, bag, min(tasks, default=0), max(tasks, default=0))
        return [next((s[5] for s in spans if s[1] <= task <= s[2]), 0) for task in tasks]

    # --- bags and pilots --------------------------------------------------------------------------------------

    def _bag_submitted(self, seq: int, fact: f.BagSubmitted) -> None:
        tasks = sum(target.count for target in fact.targets)
        self._connection.execute(
            "INSERT OR REPLACE INTO bag VALUES (?, ?, ?, ?, ?, ?, 0)",
            (fact.bag, fact.owner, fact.name, tasks, fact.at, None if fact.open else fact.at),
        )
        self._tally.submitted(fact)

    def _tasks_appended(self, seq: int, fact: f.TasksAppended | f.PartAppended) -> None:
        self._connection.execute("UPDATE bag SET tasks = tasks + ? WHERE bag = ?", (fact.count, fact.bag))
        self._tally.appended(fact)

    def _bag_closed(self, seq: int, fact: f.BagClosed) -> None:
        self._connection.execute("UPDATE bag SET closed = ? WHERE bag = ?", (fact.at, fact.bag))

    def _bag_removed(self, seq: int, fact: f.BagRemoved) -> None:
        self._connection.execute("UPDATE bag SET removed = 1 WHERE bag = ?", (fact.bag,))
        self._tally.forget(fact.bag)

    def _pilot_enrolled(self, seq: int, fact: f.PilotEnrolled) -> None:
        self._connection.execute(
            f"INSERT OR REPLACE INTO pilot VALUES ({', '.join('?' * 12)})",
            (fact.pilot, fact.site, fact.owner, fact.host, fact.host_name, fact.cores, fact.memory, fact.epoch, fact.at,
             None, "", fact.detail),
        )

    def _pilot_ended(self, seq: int, fact: f.PilotEnded) -> None:
        self._connection.execute("UPDATE pilot SET ended = ?, why = ? WHERE pilot = ?", (fact.at, fact.why, fact.pilot))


def overlapping(connection: sqlite3.Connection, bag: int, first: int, last: int) -> list[Span]:
    """Return the spans of a bag that touch tasks `first` to `last`, in order."""
    return connection.execute(
        "SELECT * FROM span WHERE bag = ?1 AND last >= ?2 AND first <= ?3 AND first >= coalesce("
        "(SELECT max(first) FROM span WHERE bag = ?1 AND first <= ?2), ?2) ORDER BY first",
        (bag, first, last),
    ).fetchall()


def _cover(old: list[Span], first: int, last: int, make: Callable[[int, int, int], Span]) -> list[Span]:
    """Return the spans that result when `first` to `last` is laid over `old`: the old ends that stick out, and new
    pieces."""
    fresh: list[Span] = []
    at = first
    for span in old:
        begin, end, generation = max(span[1], first), min(span[2], last), span[5]
        if span[1] < first:
            fresh.append((*span[:2], first - 1, *span[3:]))
        if at < begin:
            fresh.append(make(at, begin - 1, 0))
        fresh.append(make(begin, end, generation))
        if span[2] > last:
            fresh.append((span[0], last + 1, *span[2:]))
        at = end + 1
    if at <= last:
        fresh.append(make(at, last, 0))
    return fresh

