"""The backlog of a class: ready tasks in the order in which they are granted."""

from __future__ import annotations

from windfall.core.state.backlog import Backlog
from windfall.core.state.columns import Tasks


def test_backlog_walks_its_runs_in_order_and_returned_tasks_first() -> None:
    tasks = Tasks(30)
    backlog = Backlog(tasks, 0)
    backlog.add_run(0, 3)
    backlog.add_run(10, 2)
    backlog.add_run(20, 3)
    taken = backlog.take(4)
    assert taken == [0, 1, 2, 10]
    tasks.np_state[taken] = 1
    tasks.state[1] = 0
    backlog.put(1)
    assert backlog.take(9) == [1, 11, 20, 21, 22]


def test_backlog_skips_gaps_larger_than_a_span() -> None:
    tasks = Tasks(20_000)
    tasks.np_state[:19_990] = 4
    backlog = Backlog(tasks, 0)
    backlog.add_run(0, 20_000)
    assert backlog.take(3) == [19_990, 19_991, 19_992]


def test_backlog_rewinds_when_many_tasks_are_put_back() -> None:
    tasks = Tasks(500)
    backlog = Backlog(tasks, 0)
    backlog.add_run(0, 500)
    assert len(backlog.take(500)) == 500
    backlog.put_all(100, 300)
    assert backlog.take(1) == [0]  # all are ready, so the backlog walks from the start
    assert backlog.heap == []
