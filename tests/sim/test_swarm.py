"""The studies of the SWARM paper, through the core, the agenda and the tender as they are."""

from __future__ import annotations

from windfall.sim.experiments.base import Options
from windfall.sim.experiments.swarm import figure, run_f1, run_f2


def test_figure_1_replicates_start_in_vain_before_the_last_task() -> None:
    starts = figure("msr")
    assert max(starts.tasks) == 6_000 and sum(at < 6_000 for at in starts.redundant) == 10
    assert all(cell.holds for cell in run_f1(Options()).cells)


def test_figure_2_a_swarm_wastes_nothing_before_the_last_task() -> None:
    starts = figure("swarm")
    assert sorted(starts.tasks) == [100, 1_000, 1_000, 1_000, 1_100]
    assert not [at for at in starts.redundant if at < 1_100]
    assert all(cell.holds for cell in run_f2(Options()).cells)


def test_with_fast_cancellation_replication_gains() -> None:
    """So the figure's ten redundant starts are the price of cancellations that take their time."""
    assert max(figure("msr", cancelling=0).tasks) < max(figure("msr").tasks)
