"""The tally: sums that grow with each fact, so that no query has to count ten million rows.

    usage     attempts and the time and memory that they took, by bag, pilot, outcome, reason, and whether they counted
    born      when tasks of a bag became ready: a row per run of tasks, never one per task
    failed    tasks that are failed or quarantined now, each with its cause
    cause     the causes of failure of a bag, each with its number of tasks and one note as an example
    slow      the longest attempts whose result counted
    stored    bytes of the files of a bag's results

Pilots choose the reasons of failures, so reasons and causes are bounded; the rest is counted as "other".
"""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_right
from heapq import nlargest
from typing import Any

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import O_FAILED, O_SUCCEEDED, QUARANTINED, SUCCEEDED, TASK_STATES

TABLES = """
CREATE TABLE usage (bag INTEGER, pilot INTEGER, outcome INTEGER, why TEXT, counts INTEGER, attempts INTEGER,
                    wall INTEGER, cpu INTEGER, rss INTEGER, first INTEGER, last INTEGER, queued INTEGER,
                    longest INTEGER, PRIMARY KEY (bag, pilot, outcome, why, counts)) WITHOUT ROWID;
CREATE TABLE born (bag INTEGER, first INTEGER, at INTEGER, PRIMARY KEY (bag, first)) WITHOUT ROWID;
CREATE TABLE cause (id INTEGER PRIMARY KEY, bag INTEGER, state INTEGER, why TEXT, exit INTEGER, signal INTEGER,
                    kind TEXT, note TEXT, tasks INTEGER);
CREATE INDEX cause_bag ON cause (bag);
CREATE TABLE failed (bag INTEGER, task INTEGER, cause INTEGER, PRIMARY KEY (bag, task)) WITHOUT ROWID;
CREATE INDEX failed_cause ON failed (bag, cause, task);
CREATE TABLE slow (bag INTEGER, wall INTEGER, task INTEGER, attempt INTEGER, PRIMARY KEY (bag, wall, task))
                  WITHOUT ROWID;
CREATE TABLE stored (bag INTEGER PRIMARY KEY, bytes INTEGER);
"""
FORGET = (  # statements of `Views.forget`: delete up to ?2 rows of bag ?1
    "DELETE FROM failed WHERE (bag, task) IN (SELECT bag, task FROM failed WHERE bag = ?1 LIMIT ?2)",
    "DELETE FROM usage WHERE (bag, pilot, outcome, why, counts) IN"
    " (SELECT bag, pilot, outcome, why, counts FROM usage WHERE bag = ?1 LIMIT ?2)",
    "DELETE FROM born WHERE (bag, first) IN (SELECT bag, first FROM born WHERE bag = ?1 LIMIT ?2)",
    "DELETE FROM cause WHERE bag = ?1 AND ?2 > 0",
    "DELETE FROM slow WHERE bag = ?1 AND ?2 > 0",
    "DELETE FROM stored WHERE bag = ?1 AND ?2 > 0",
)

MOST = 1 << 58  # bound of the sums of one row: ten years of a million cores in ms
MOST_CAUSES = 200  # of one bag
MOST_SLOW = 10
OTHER = "other"
REASONS = frozenset((  # reasons that the exchange and the core use
    "", "exit", "signal", "time", "memory", "disk", "output", "start", "input", "cancel", "recall", "stop", "lease",
    "program", "silence", "silent", "gone", "superseded", "refused", "walltime", "idle", "stopped", "checkpoint",
))
_SPEAKING = frozenset(("exit", "signal", "time", "memory"))  # reasons to which a note adds nothing
_USAGE = (
    "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (bag, pilot, outcome, why, counts)"
    f" DO UPDATE SET attempts = attempts + excluded.attempts, wall = min(wall + excluded.wall, {MOST}),"
    f" cpu = min(cpu + excluded.cpu, {MOST}), rss = max(rss, excluded.rss), first = min(first, excluded.first),"
    f" last = max(last, excluded.last), queued = min(queued + excluded.queued, {MOST}),"
    " longest = max(longest, excluded.longest)"
)
_PLAIN = f.Detail()

Usage = tuple[int, int, int, str, bool]  # bag, pilot, outcome, why, counts
Cause = tuple[int, int, str, int, int, str]  # bag, state, why, exit, signal, kind of note


Runs = tuple[list[int], list[int]]  # runs of tasks that became ready together: their first tasks, and the times


def reason(why: str) -> str:
    return why if why in REASONS else OTHER


def kind_of(why: str, note: str) -> str:
    """Return a note with its digits masked: notes that differ only in numbers belong to the same cause."""
    return "" if why in _SPEAKING else re.sub(r"\d+", "#", note)[:100]


def _lies_in(task: int, runs: f.Runs) -> bool:
    """Does the task lie in one of the runs, which are sorted?"""
    at = bisect_right(runs, (task, MOST)) - 1
    return at >= 0 and task < sum(runs[at])


def _overlaid(old: Runs, inside: list[int], fact: f.TasksRetried) -> dict[int, int]:
    """Return first task → time of the runs after a retry; `inside` are the old runs that begin in a retried one."""
    firsts, times = old
    made = dict(zip(firsts, times, strict=True))
    for first, count in fact.runs:
        at = bisect_right(firsts, first + count) - 1
        made[first + count] = times[at] if at >= 0 else 0  # the tasks after a retried run keep their time
    for first in inside:
        del made[first]
    made.update((first, fact.at) for first, _ in fact.runs)
    return made


class Tally:
    """The sums.  `write` writes most of them in bulk; rows of other tables are written at once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._usage: dict[Usage, list[int]] = {}
        self._slow: dict[int, list[tuple[int, int, int]]] = {}
        self._stored: dict[int, int] = {}
        self._born: dict[int, Runs] = {}  # bag → its runs
        self._causes: dict[int, dict[Cause, int]] = {}
        self._failing = {bag for (bag,) in connection.execute("SELECT DISTINCT bag FROM cause WHERE tasks > 0")}

    def write(self) -> None:
        many = self._connection.executemany
        many(_USAGE, [(*key, *values) for key, values in self._usage.items()])
        for bag, found in self._slow.items():
            many("INSERT OR REPLACE INTO slow VALUES (?, ?, ?, ?)", [(bag, *row) for row in found])
            self._connection.execute(
                "DELETE FROM slow WHERE bag = ?1 AND (wall, task) NOT IN"
                " (SELECT wall, task FROM slow WHERE bag = ?1 ORDER BY wall DESC LIMIT ?2)", (bag, MOST_SLOW))
        many("INSERT INTO stored VALUES (?, ?) ON CONFLICT (bag) DO UPDATE"
             f" SET bytes = min(bytes + excluded.bytes, {MOST})", self._stored.items())
        for gathered in (self._usage, self._slow, self._stored):
            gathered.clear()

    def store(self, bag: int, d: f.Detail) -> None:
        size = sum(file[2] for file in d.files) + (d.scratch[1] if d.scratch else 0)
        if size:
            self._stored[bag] = min(self._stored.get(bag, 0) + size, MOST)

    # --- when tasks became ready ---------------------------------------------------------------------------------

    def submitted(self, fact: f.BagSubmitted) -> None:
        """Record when a bag's tasks became ready; 0 for targets that wait: their tasks count from their grant."""
        first = 0
        for target in fact.targets:
            self._add_run(fact.bag, first, 0 if target.after else fact.at)
            first += target.count

    def appended(self, fact: f.TasksAppended | f.PartAppended) -> None:
        self._add_run(fact.bag, fact.first, fact.at)

    def _add_run(self, bag: int, first: int, at: int) -> None:
        firsts, times = self._runs(bag)
        if firsts and firsts[-1] == first:  # the last run was an empty target's
            firsts.pop()
            times.pop()
        firsts.append(first)
        times.append(at)
        self._connection.execute("INSERT OR REPLACE INTO born VALUES (?, ?, ?)", (bag, first, at))

    def _restart_runs(self, fact: f.TasksRetried) -> None:
        """Lay the retried runs over the known ones, with the time of the retry."""
        old = self._runs(fact.bag)
        inside = [first for first in old[0] if _lies_in(first, fact.runs)]
        made = _overlaid(old, inside, fact)
        rows = sorted(made.items())
        self._born[fact.bag] = ([row[0] for row in rows], [row[1] for row in rows])
        self._connection.executemany(
            "DELETE FROM born WHERE bag = ? AND first = ?", [(fact.bag, first) for first in inside])
        changed = {first for run in fact.runs for first in (run[0], sum(run))}
        self._connection.executemany(
            "INSERT OR REPLACE INTO born VALUES (?, ?, ?)", [(fact.bag, first, made[first]) for first in changed])

    def forget(self, bag: int) -> None:
        """Drop from memory the sums of a removed bag: no more facts about it follow."""
        self._born.pop(bag, None)
        self._causes.pop(bag, None)
        self._failing.discard(bag)

    def _runs(self, bag: int) -> Runs:
        found = self._born.get(bag)
        if found is None:
            query = "SELECT first, at FROM born WHERE bag = ? ORDER BY first"
            rows = self._connection.execute(query, (bag,)).fetchall()
            found = self._born[bag] = ([row[0] for row in rows], [row[1] for row in rows])
        return found

    def queued(self, bag: int, tasks: list[int], granted: list[int], starts: list[int]) -> tuple[int, int]:
        """Return how long attempts waited after their tasks became ready: the sum, and the longest wait."""
        firsts, times = self._runs(bag)
        if len(firsts) == 1 and times[0]:
            return max(sum(starts) - len(starts) * times[0], 0), max(max(starts) - times[0], 0)
        waits = []
        for task, grant, start in zip(tasks, granted, starts, strict=True):
            at = bisect_right(firsts, task) - 1
            waits.append(max(start - ((times[at] if at >= 0 else 0) or grant), 0))
        return sum(waits), max(waits)

    # --- ends of attempts ----------------------------------------------------------------------------------------

    def finished(self, fact: f.Finished, starts: list[int]) -> None:
        if not fact.tasks:
            return
        queued, longest = self.queued(fact.bag, fact.tasks, fact.granted, starts)
        self._use((fact.bag, fact.pilot, O_SUCCEEDED, "", True), [
            len(fact.tasks), sum(fact.walls), sum(fact.cpus), max(fact.rss), min(fact.granted), fact.at, queued, longest
        ])
        self._note_slow(fact.bag, list(zip(fact.walls, fact.tasks, fact.attempts, strict=True)))

    def ended(self, fact: f.Ended, e: f.End, start: int) -> None:
        counts = e.decides and e.verdict == SUCCEEDED
        queued, longest = self.queued(e.bag, [e.task], [e.granted], [start]) if counts else (0, 0)
        why = "" if e.outcome == O_SUCCEEDED else reason(e.why)
        self._use((e.bag, fact.pilot, e.outcome, why, counts),
                  [1, e.wall, e.cpu, e.rss, e.granted, fact.at, queued, longest])
        if counts:
            self._note_slow(e.bag, [(e.wall, e.task, e.attempt)])
            if e.bag in self._failing:
                self.clear_failed(e.bag, e.task, e.task)
        elif e.decides:
            self._fail(e)

    def _use(self, key: Usage, more: list[int]) -> None:
        """Add to a row of `usage`; `more` has the columns after the key."""
        old = self._usage.get(key)
        if old is not None:
            sums = [a + b for a, b in zip(old, more, strict=True)]
            more = [*sums[:3], max(old[3], more[3]), min(old[4], more[4]), max(old[5], more[5]), sums[6],
                    max(old[7], more[7])]
        self._usage[key] = [min(number, MOST) for number in more]

    def _note_slow(self, bag: int, rows: list[tuple[int, int, int]]) -> None:
        old = self._slow.get(bag, [])
        least = old[-1][0] if len(old) >= MOST_SLOW else -1
        fresh = [row for row in rows if row[0] > least]
        if fresh:
            self._slow[bag] = nlargest(MOST_SLOW, [*old, *fresh])

    # --- causes --------------------------------------------------------------------------------------------------

    def _fail(self, e: f.End) -> None:
        d = e.detail or _PLAIN
        cause = self._cause((e.bag, e.verdict, reason(e.why), d.exit, d.signal, kind_of(e.why, d.note)), d.note)
        self.clear_failed(e.bag, e.task, e.task)
        self._connection.execute("INSERT INTO failed VALUES (?, ?, ?)", (e.bag, e.task, cause))
        self._connection.execute("UPDATE cause SET tasks = tasks + 1 WHERE id = ?", (cause,))
        self._failing.add(e.bag)

    def _cause(self, key: Cause, note: str) -> int:
        known = self._known(key[0])
        if key not in known and len(known) >= MOST_CAUSES:
            key = (*key[:2], OTHER, 0, 0, "")
        if key not in known:
            cursor = self._connection.execute(
                "INSERT INTO cause (bag, state, why, exit, signal, kind, note, tasks) VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
                (*key, note))
            known[key] = int(cursor.lastrowid or 0)
        return known[key]

    def _known(self, bag: int) -> dict[Cause, int]:
        if bag not in self._causes:
            rows = self._connection.execute(
                "SELECT id, bag, state, why, exit, signal, kind FROM cause WHERE bag = ?", (bag,))
            self._causes[bag] = {(row[1], row[2], row[3], row[4], row[5], row[6]): row[0] for row in rows}
        return self._causes[bag]

    def retried(self, fact: f.TasksRetried) -> None:
        for first, count in fact.runs:
            self.clear_failed(fact.bag, first, first + count - 1)
        self._restart_runs(fact)

    def clear_failed(self, bag: int, first: int, last: int) -> None:
        """Remove the tasks `first` to `last` from the failed ones."""
        if bag not in self._failing:
            return
        place = (bag, first, last)
        query = "SELECT cause, count(*) FROM failed WHERE bag = ? AND task BETWEEN ? AND ? GROUP BY cause"
        gone = self._connection.execute(query, place).fetchall()
        if gone:
            self._connection.execute("DELETE FROM failed WHERE bag = ? AND task BETWEEN ? AND ?", place)
            self._connection.executemany(
                "UPDATE cause SET tasks = tasks - ? WHERE id = ?", [(number, cause) for cause, number in gone])


# --- queries -----------------------------------------------------------------------------------------------------

SHOWN = 5  # tasks named with a cause


def failures(reader: sqlite3.Connection, bag: int) -> list[dict[str, Any]]:
    """Return the causes of failure in a bag, the most frequent first; `retry` selects exactly the tasks of a cause."""
    rows = reader.execute(
        "SELECT id, state, why, exit, signal, kind, note, tasks FROM cause WHERE bag = ? AND tasks > 0"
        " ORDER BY tasks DESC, id", (bag,)).fetchall()
    return [_failure(reader, bag, row) for row in rows]


def _failure(reader: sqlite3.Connection, bag: int, row: tuple[Any, ...]) -> dict[str, Any]:
    cause, state, why, exit_code, signal, kind, note, count = row
    first = reader.execute(
        "SELECT task FROM failed WHERE bag = ? AND cause = ? ORDER BY task LIMIT ?", (bag, cause, SHOWN))
    selector = {"state": TASK_STATES[state], "why": why, "exit": exit_code, "signal": signal, "note": kind}
    return {
        "state": TASK_STATES[state], "why": why, "exit": exit_code, "signal": signal, "note": note, "count": count,
        "tasks": [task for (task,) in first], "retry": selector,
    }


def failed_tasks(reader: sqlite3.Connection, bag: int, selector: dict[str, Any]) -> list[int]:
    """Return the failed tasks whose cause has all fields of `selector`: state, why, exit, signal, note."""
    clauses: list[str] = ["c.bag = ?"]
    values: list[Any] = [bag]
    for name, value in selector.items():
        clauses.append(f"c.{_COLUMNS[name]} = ?")
        values.append(TASK_STATES.index(value) if name == "state" else kind_of("", value) if name == "note" else value)
    query = ("SELECT f.task FROM cause c JOIN failed f ON f.bag = c.bag AND f.cause = c.id"
             f" WHERE {' AND '.join(clauses)} ORDER BY f.task")
    return [task for (task,) in reader.execute(query, values)]


_COLUMNS = {"state": "state", "why": "why", "exit": "exit", "signal": "signal", "note": "kind"}


def sum_of(column: str) -> str:
    """Return the SQL of a column's sum.  SQLite's `sum` fails where whole numbers exceed 63 bits; `total` does not."""
    return f"CAST(min(total({column}), {1 << 62}) AS INTEGER)"


def statistics(reader: sqlite3.Connection, bag: int, worked: int, began: int) -> dict[str, Any]:
    """Return the statistics of a bag, times in ms; attempts whose result did not count are redundant.

    The bag had unfinished tasks for `worked` ms in all, and has some since `began` if that is not 0.  Weeks without
    unfinished tasks, before the bag was extended or retried, do not count.
    """
    made: dict[str, Any] = dict.fromkeys(
        ("attempts", "accepted", "real", "redundant", "cpu", "rss", "queuing_average", "queuing_longest"), 0)
    last = queued = 0
    for attempts, wall, cpu, rss, ended, waited, longest, counts in reader.execute(
            f"SELECT sum(attempts), {sum_of('wall')}, {sum_of('cpu')}, max(rss), max(last), {sum_of('queued')},"
            " max(longest), counts FROM usage WHERE bag = ? GROUP BY counts", (bag,)):
        made["attempts"] += attempts
        made["cpu"] += cpu
        made["rss"] = max(made["rss"], rss)
        made["real" if counts else "redundant"] += wall
        if counts:
            made["accepted"], queued, made["queuing_longest"] = attempts, waited, longest
        last = max(last, ended)
    made["queuing_average"] = queued / made["accepted"] if made["accepted"] else 0.0
    made["wall_clock"] = worked + (max(last - began, 0) if began else 0)
    made["speed_up"] = made["real"] / made["wall_clock"] if made["wall_clock"] else 0.0
    made["failures"] = dict(reader.execute(
        "SELECT why, sum(attempts) FROM usage WHERE bag = ? AND outcome = ? GROUP BY why ORDER BY 2 DESC",
        (bag, O_FAILED)).fetchall())
    made["sites"], made["hosts"] = _places(reader, bag, "site"), _places(reader, bag, "host_name")
    made["slowest"] = [
        {"task": task, "attempt": attempt, "wall": wall} for wall, task, attempt in reader.execute(
            "SELECT wall, task, attempt FROM slow WHERE bag = ? ORDER BY wall DESC", (bag,))]
    made["stored"] = reader.execute(
        "SELECT coalesce(sum(bytes), 0) FROM stored WHERE bag = ?", (bag,)).fetchone()[0]
    made["quarantined"] = reader.execute(
        "SELECT coalesce(sum(tasks), 0) FROM cause WHERE bag = ? AND state = ?", (bag, QUARANTINED)).fetchone()[0]
    return made


MOST_PLACES = 1_000


def _places(reader: sqlite3.Connection, bag: int, column: str) -> list[dict[str, Any]]:
    rows = reader.execute(
        f"SELECT coalesce(p.{column}, ''), sum(u.attempts), {sum_of('u.wall')}, sum(u.attempts * u.counts) FROM usage u"
        f" LEFT JOIN pilot p USING (pilot) WHERE u.bag = ? GROUP BY 1 ORDER BY 2 DESC LIMIT {MOST_PLACES}", (bag,))
    return [{"name": name, "attempts": n, "wall": wall, "accepted": counted} for name, n, wall, counted in rows]
