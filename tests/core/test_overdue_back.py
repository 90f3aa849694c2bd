"""What is overdue, and whose first host comes back."""

from __future__ import annotations

import pytest

from tests.core.conftest import GONE_SILENT, Bench, shape


def _pass(bench: Bench, ms: int, *alive: int) -> None:
    for _ in range(0, ms, 10_000):
        bench.wait(10_000)
        for pilot in alive:
            bench.exchange(pilot)


@pytest.mark.parametrize(("most", "live"), [(2, 2), (3, 3)])
def test_an_attempt_that_comes_back_counts_among_those_that_may_be(bench: Bench, most: int, live: int) -> None:
    """`replicas-per-task` holds for overdue tasks, too."""
    bag = bench.submit(shape(1), policy={"attempt-deadline": "30", "replicas-per-task": str(most)})
    lost, busy, idle = (bench.pilot(host=name) for name in ("lost", "busy", "idle"))
    [(first, _)] = bench.take(lost)
    _pass(bench, GONE_SILENT, busy, idle)
    [(second, _)] = bench.take(busy)
    bench.exchange(busy, started=[second])
    _pass(bench, 40_000, busy, idle)
    assert bench.core.state.overdue
    bench.exchange(lost, held=[first], started=[first])
    bench.exchange(idle, want=1)
    assert bench.core.state.bags[bag].tasks.live[0] == live
