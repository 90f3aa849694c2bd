"""Views say what the journal says, page by page, and are thrown away without regret."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import CANCELLED, FAILED, FIRST_FINAL, OUTCOMES, READY, SUCCEEDED, TASK_STATES
from windfall.errors import NotFound, StoreError, ViewsDamaged
from windfall.store import views as module
from windfall.store.views import Views, exit_of

from .small_disk import fill, small_disk


@pytest.fixture
def views(tmp_path: Path) -> Any:
    views = Views.open(tmp_path / "views.db")
    yield views
    views.close()


def enrolled(pilot: int = 1) -> f.PilotEnrolled:
    return f.PilotEnrolled(5, pilot, "n", 1, "here", "ann", "h-1", "node7", 4, 0, 0, 0, 0, b"", 0)


def submitted(bag: int = 1) -> f.BagSubmitted:
    shape = f.TargetShape("main", 100, [], 1, 0, 0, 0, 0, 0, 0, False, 3, 0, 0)
    return f.BagSubmitted(1, bag, "ann", "ldla", "", b"", [shape], False, "fcfs", True)


def finished(at: int, tasks: list[int], attempts: list[int], bag: int = 1, **details: Any) -> f.Finished:
    n = len(tasks)
    return f.Finished(at, 1, bag, attempts, tasks, [at - 50] * n, [20] * n, [10] * n, [4096] * n, **details)


def end(
    attempt: int,
    task: int,
    outcome: str,
    verdict: int,
    generation: int = 0,
    detail: f.Detail | None = None,
    why: str = "",
    row_kept: bool = False,
) -> f.End:
    return f.End(
        attempt,
        1,
        task,
        generation,
        OUTCOMES.index(outcome),
        why,
        verdict,
        row_kept,
        0,
        0,
        0,
        0,
        40,
        30,
        20,
        10,
        detail,
    )


def play(views: Views, *commits: list[f.Fact]) -> None:
    for facts in commits:
        views.project(views._reached + 1, facts)
    views.flush()


def test_a_row_has_everything_the_page_shows(views: Views) -> None:
    detail = f.Detail(0, 0, b"hello", b"", 5, 0, [("out.txt", "ab" * 32, 9, 0o644)], "", "fine")
    play(views, [enrolled(), submitted()], [finished(100, [3, 4], [8, 9], details={1: detail})])
    plain, full = views.results(1)
    assert (plain.task, plain.state, plain.attempt, plain.outcome, plain.exit, plain.site, plain.host) == (
        3,
        "succeeded",
        8,
        "succeeded",
        0,
        "here",
        "node7",
    )
    assert (plain.granted, plain.started, plain.ended, plain.wall, plain.cpu, plain.rss) == (50, 80, 100, 20, 10, 4096)
    assert (full.out_size, full.files, full.note) == (5, [("out.txt", "ab" * 32, 9, 0o644)], "fine")
    assert views.logs(1, 4) == (b"hello", 5)
    assert views.logs(1, 3, stream="err") == (b"", 0)
    assert views.position == 2


def test_the_first_success_counts_whatever_came_before_or_after(views: Views) -> None:
    play(
        views,
        [f.Ended(10, 1, [end(1, 0, "failed", READY, detail=f.Detail(exit=3), why="exit")])],
        [f.Ended(20, 1, [end(2, 0, "lost", FAILED, row_kept=True)])],
        [f.Ended(30, 1, [end(2, 0, "succeeded", SUCCEEDED)])],
        [f.Ended(40, 1, [end(3, 0, "cancelled", SUCCEEDED)])],
    )
    assert [(row.attempt, row.state) for row in views.results(1)] == [(2, "succeeded")]
    assert [(row.attempt, row.outcome, row.exit) for row in views.attempts(1, 0)] == [
        (1, "failed", 3),
        (2, "succeeded", 0),
        (3, "cancelled", None),
    ]


def test_a_task_between_attempts_has_no_result_but_a_log(views: Views) -> None:
    play(views, [f.Ended(10, 1, [end(1, 0, "failed", READY, detail=f.Detail(exit=3, out=b"oh", out_size=2))])])
    assert views.results(1) == []
    assert views.logs(1, 0) == (b"oh", 2)
    for call in (
        lambda: views.logs(1, 1),
        lambda: views.logs(1, 0, attempt=99),
        lambda: views.logs(1, 0, stream="x; DROP"),
    ):
        with pytest.raises(NotFound):
            call()


def test_ten_million_cancelled_tasks_are_one_row(views: Views) -> None:
    play(views, [finished(10, [2], [1])], [f.TasksCancelled(20, 1, [(0, 2), (3, 10_000_000)], "user")])
    assert [(row.task, row.state) for row in views.results(1, limit=4)] == [
        (0, "cancelled"),
        (1, "cancelled"),
        (2, "succeeded"),
        (3, "cancelled"),
    ]
    assert [row.task for row in views.results(1, after=9_999_990, limit=2, state="cancelled")] == [9_999_991, 9_999_992]
    play(views, [f.TasksRetried(30, 1, [(0, 1), (3, 10_000_000)])])
    assert [(row.task, row.state) for row in views.results(1)] == [(1, "cancelled"), (2, "succeeded")]
    play(views, [finished(40, [5], [7])])
    assert [(row.task, row.generation) for row in views.results(1, after=2)] == [(5, 1)]


def test_started_is_the_servers_clock_where_it_was_told(tmp_path: Path) -> None:
    views = Views.open(tmp_path / "views.db")
    play(views, [f.Started(60, 1, [8, 9])])
    views.close()
    views = Views.open(tmp_path / "views.db")
    play(views, [finished(100, [1], [8])], [f.Ended(120, 1, [end(9, 2, "failed", FAILED)])])
    assert [row.started for row in views.results(1)] == [60, 60]
    assert views._connection.execute("SELECT count(*) FROM started").fetchone()[0] == 0
    views.close()


def test_an_attempt_starts_no_later_than_its_wall_time_before_its_end(views: Views) -> None:
    """The server hears of a start late, and at times the pilot's clock is wrong."""
    late = f.Finished(1_000, 1, 1, [8], [1], [50], [400], [10], [4096])
    told = f.Finished(1_000, 1, 1, [9, 10], [2, 3], [50, 50], [400, 400], [10, 10], [4096, 4096], {}, [540, 7])
    failed = end(11, 4, "failed", FAILED)
    failed.start, failed.wall = 510, 400
    play(views, [f.Started(700, 1, [8, 9, 10, 11])], [late], [told], [f.Ended(1_000, 1, [failed])])
    assert [row.started for row in views.results(1)] == [600, 540, 50, 510]


def test_summary_and_forgetting(views: Views) -> None:
    play(
        views,
        [enrolled(), submitted()],
        [f.TasksAppended(2, 1, 0, 100, 5, "", b""), finished(100, [0, 1], [1, 2])],
        [
            f.Ended(200, 1, [end(3, 2, "failed", FAILED, detail=f.Detail(exit=1))]),
            f.BagClosed(201, 1),
            f.PilotEnded(300, 1, "idle", True),
        ],
    )
    summary = views.summary(1)
    assert (summary["tasks"], summary["name"], summary["closed"]) == (105, "ldla", 201)
    assert summary["usage"]["succeeded"] == {
        "attempts": 2,
        "wall": 40,
        "cpu": 20,
        "rss": 4096,
        "first": 50,
        "last": 100,
    }
    assert views.pilots()[0]["why"] == "idle"
    play(views, [f.BagRemoved(400, 1)])
    assert views.results(1) == [] and views.removed() == [1]
    with pytest.raises(NotFound):
        views.summary(1)
    steps = 0
    while views.forget(1, budget_rows=2):
        steps += 1
    assert steps >= 3 and views.removed() == []
    assert (
        views._connection.execute("SELECT (SELECT count(*) FROM attempt) + (SELECT count(*) FROM detail)").fetchone()[0]
        == 0
    )


# --- against a plain model ------------------------------------------------------------------------------------

TASKS = 12
acts = st.lists(
    st.tuples(
        st.sampled_from(["finish", "fail", "again", "cancel", "retry", "stray"]),
        st.integers(0, TASKS - 1),
        st.integers(1, 5),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(acts, st.integers(1, 4))
def test_results_agree_with_a_plain_model(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[tuple[str, int, int]], page: int
) -> None:
    views = Views.open(tmp_path_factory.mktemp("v") / "views.db")
    model = Model()
    for number, (what, task, count) in enumerate(sequence):
        play(views, [model.act(number, what, task, min(count, TASKS - task))])
    for state in ("", "succeeded", "failed", "cancelled"):
        expected = [(task, name, generation) for task, name, generation in model.results() if state in ("", name)]
        assert [(row.task, row.state, row.generation) for row in _pages(views, page, state)] == expected
    views.close()


class Model:
    def __init__(self) -> None:
        self.state = [READY] * TASKS
        self.generation = [0] * TASKS

    def act(self, attempt: int, what: str, task: int, count: int) -> f.Fact:
        tasks = range(task, task + count)
        if what in ("cancel", "retry"):
            wanted = [
                t for t in tasks if (self.state[t] < FIRST_FINAL) == (what == "cancel") and self.state[t] != SUCCEEDED
            ]
            for t in wanted:
                self.state[t] = CANCELLED if what == "cancel" else READY
                self.generation[t] += what == "retry"
            runs = [(t, 1) for t in wanted]
            return f.TasksCancelled(attempt, 1, runs, "user") if what == "cancel" else f.TasksRetried(attempt, 1, runs)
        if what == "stray":
            return f.Ended(attempt, 1, [end(attempt, task, "cancelled", self.state[task], self.generation[task])])
        if self.state[task] >= FIRST_FINAL:
            return f.BagClosed(attempt, 1)
        self.state[task] = {"finish": SUCCEEDED, "fail": FAILED, "again": READY}[what]
        if what == "finish":
            return finished(attempt, [task], [attempt])
        return f.Ended(attempt, 1, [end(attempt, task, "failed", self.state[task], self.generation[task])])

    def results(self) -> list[tuple[int, str, int]]:
        return [(t, TASK_STATES[s], self.generation[t]) for t, s in enumerate(self.state) if s >= FIRST_FINAL]


def _pages(views: Views, size: int, state: str) -> list[module.ViewRow]:
    found: list[module.ViewRow] = []
    while page := views.results(1, found[-1].task if found else -1, size, state):
        found += page
    return found


# --- disposable -----------------------------------------------------------------------------------------------


def test_reopened_they_are_where_they_were(tmp_path: Path) -> None:
    views = Views.open(tmp_path / "views.db", "id")
    play(views, [finished(10, [1], [1])])
    views.close()
    views = Views.open(tmp_path / "views.db", "id", journal_position=1)
    assert views.position == 1 and len(views.results(1)) == 1
    views.project(1, [finished(10, [2], [2])])  # taken in already
    views.flush()
    assert len(views.results(1)) == 1
    views.close()


@pytest.mark.parametrize("doubt", ["ahead", "other", "version", "garbage", "truncated", "tables"])
def test_doubtful_views_are_rebuilt_from_the_start(tmp_path: Path, doubt: str) -> None:
    path = tmp_path / "views.db"
    views = Views.open(path, "id")
    play(views, [finished(10, list(range(500)), list(range(500)))])
    views.close()
    if doubt == "garbage":
        path.write_bytes(b"\x13" * 50_000)
    if doubt == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    if doubt in ("version", "tables"):
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 99" if doubt == "version" else "DROP TABLE place")
        connection.close()
    views = Views.open(path, "another" if doubt == "other" else "id", journal_position=0 if doubt == "ahead" else 1)
    assert views.position == 0 and views.results(1) == []
    play(views, [finished(10, [1], [1])])
    assert len(views.results(1)) == 1
    views.close()


def test_readers_do_not_wait_for_the_projector(views: Views) -> None:
    play(views, [finished(10, [1], [1])])
    views.project(2, [finished(20, [2], [2])])  # a transaction is open
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.append(len(views.results(1))))
    reader.start()
    reader.join(30)
    assert seen == [1] and views._connection.in_transaction  # answered while the other still writes
    views.flush()
    assert len(views.results(1)) == 2


def test_a_page_does_not_read_the_bag(views: Views) -> None:
    """Counted in steps of SQLite's machine, not in seconds."""
    for start in range(0, 40_000, 10_000):
        play(views, [finished(10, list(range(start, start + 10_000)), list(range(start, start + 10_000)))])
    play(views, [f.Ended(20, 1, [end(99_999, 39_000, "failed", FAILED, generation=1)])])
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    views._reader().set_progress_handler(count, 100)
    assert len(views.results(1, limit=10)) == 10
    assert len(views.results(1, after=35_000, limit=10)) == 10
    assert [row.task for row in views.results(1, state="failed")] == [39_000]
    assert steps < 100


def test_sums_stop_before_they_overflow(views: Views) -> None:
    n = 1100
    many = f.Finished(5, 1, 1, list(range(1, n + 1)), list(range(n)), [1] * n, [1 << 53] * n, [1] * n, [1] * n)
    play(views, [submitted()], [many], [f.Ended(6, 1, [end(5000, 5, "succeeded", SUCCEEDED)])])
    again = f.Finished(5, 1, 1, list(range(2001, n + 2001)), list(range(n)), [1] * n, [1 << 53] * n, [1] * n, [1] * n)
    play(views, [again])
    used = views.summary(1)["usage"]["succeeded"]
    assert 1 << 53 <= used["wall"] < 1 << 62 and isinstance(used["wall"], int) and used["cpu"] == 2 * n + 20
    assert not views._connection.in_transaction


def test_sums_over_many_lying_pilots_are_answered(views: Views) -> None:
    usage = "INSERT INTO usage VALUES (1, ?, 0, '', 1, 1, ?1, ?1, 0, 0, 0, ?1, 0)"
    play(views, [submitted()], [f.Finished(5, 1, 1, [1], [0], [1], [1], [1], [1])])
    views._connection.executemany(usage.replace("?1", str(module.tally.MOST)), [(pilot,) for pilot in range(2, 42)])
    assert 1 << 61 < views.statistics(1, 0, 0)["cpu"] < 1 << 63
    assert 1 << 61 < views.summary(1)["usage"]["succeeded"]["wall"] < 1 << 63


def test_any_failure_leaves_no_transaction_open(views: Views) -> None:
    play(views, [finished(10, [0], [0])])
    with pytest.raises(StoreError):
        play(views, [finished(10, [1], [1 << 70])])
    assert not views._connection.in_transaction and views.reached == views.position == 1
    play(views, [finished(10, [1], [1])])
    assert [row.task for row in views.results(1)] == [0, 1]


def test_a_full_disk_stops_the_views_where_they_are(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        views = Views.open(disk / "views.db")
        play(views, [finished(10, [0], [0])])
        ballast = fill(disk, leave=100_000)
        facts = [
            [f.Started(n, 1, [n + 1]), finished(n, list(range(n, n + 5000)), list(range(n, n + 5000)))]
            for n in range(1, 15_000, 5000)
        ]
        with pytest.raises(StoreError, match="full"):
            play(views, *facts)
        assert views.position == 1 and [row.task for row in views.results(1)] == [0]
        ballast.unlink()
        play(views, *facts)
        assert views.position == 4 and len(views.results(1, limit=100_000)) == 15_001
        views.close()


@pytest.mark.parametrize(("code", "signal", "why", "shown"), [
    (0, 0, "", 0), (3, 0, "exit", 3), (0, 0, "output", 0), (0, 9, "signal", None), (0, 15, "time", None),
    (0, 0, "start", None), (3, 0, "time", 3), (None, None, "gone", None),
])  # fmt: skip
def test_an_exit_code_is_shown_only_of_what_came_to_its_own_end(code, signal, why, shown) -> None:
    assert exit_of(code, signal, why) == shown


def test_waiting_begins_anew_with_a_retry_and_time_without_work_does_not_count(views: Views) -> None:
    shape = f.TargetShape("main", 10, [], 1, 0, 0, 0, 0, 0, 1_000, False, 3, 0, 0)
    submitted = f.BagSubmitted(1_000, 9, "ann", "bag", "", b"", [shape], False, "fcfs", False)
    week = 600_000_000
    views.project(1, [submitted])
    views.project(2, [f.TasksRetried(week, 9, [(2, 3), (7, 1)])])
    views.project(3, [f.TasksAppended(2 * week, 9, 0, 10, 2, "", b"", True)])
    tally = views._projection._tally
    born = [1_000] * 2 + [week] * 3 + [1_000] * 2 + [week] + [1_000] * 2 + [2 * week] * 2

    def waits() -> list[int]:
        return [tally.queued(9, [task], [0], [3 * week])[0] for task in range(12)]

    assert waits() == [3 * week - at for at in born]
    tally._born.clear()
    assert waits() == [3 * week - at for at in born], "the tables say the same"
    done = f.Finished(week + 50, 1, 9, [1], [2], [week + 10], [20], [0], [0])
    views.project(4, [done])
    views.flush()
    found = views.statistics(9, worked=60, began=week)
    assert found["wall_clock"] == 60 + 50 and found["queuing_longest"] < 1_000
    views.project(5, [f.BagRemoved(week, 9)])
    assert 9 not in tally._born


def test_query_that_finds_no_room_does_not_call_the_views_damaged(views: Views) -> None:
    full = sqlite3.connect(":memory:")
    full.execute("PRAGMA max_page_count = 2")
    with pytest.raises(StoreError, match="could not read .*views.db: .* full") as told, views.reading():
        full.execute("CREATE TABLE one AS SELECT zeroblob(100000)")
    assert not isinstance(told.value, ViewsDamaged)


def test_query_that_reads_nonsense_calls_the_views_damaged(views: Views) -> None:
    with pytest.raises(ViewsDamaged, match="views.db does not read back"), views.reading():
        sqlite3.connect(":memory:").execute("SELECT owner FROM bag")
