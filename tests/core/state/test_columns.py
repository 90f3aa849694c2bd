"""NumPy tables of tasks, hosts and attempts."""

from __future__ import annotations

from windfall.core.state.columns import Tasks


def test_task_takes_at_most_16_bytes() -> None:
    tasks = Tasks(1_000)
    width = sum(getattr(tasks, "np_" + name).itemsize for name, _ in tasks.LAYOUT)
    assert width <= 16
