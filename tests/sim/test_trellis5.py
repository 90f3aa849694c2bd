"""The thesis's batching studies, a few cells with one seed each; `scripts/soak experiments` runs all of them."""

from __future__ import annotations

import pytest

from windfall.sim.experiments import trellis5 as t


@pytest.mark.parametrize(("placeholders", "factor"), [(2, 2), (4, 16), (8, 64), (16, 2), (16, 8), (16, 64)])
def test_blast_speeds_up_as_printed(placeholders: int, factor: int) -> None:
    paper = t.BLAST_SPEED_UP[placeholders][t.FACTORS.index(factor)]
    ours = t.BLAST_ALONE / t.makespan("blast", placeholders, factor, 1)
    assert 0.9 * paper < ours < 1.1 * paper


@pytest.mark.parametrize(("placeholders", "factor"), [(2, 64), (4, 2), (4, 64), (16, 4), (16, 64)])
def test_parsing_speeds_up_only_on_many_placeholders(placeholders: int, factor: int) -> None:
    ours = t.PARSING_ALONE / t.makespan("parsing", placeholders, factor, 1)
    assert ours < 1 if placeholders <= 4 else ours > 1


def test_batching_helps_until_bundles_are_too_few() -> None:
    times = {factor: t.makespan("blast", 16, factor, 1) for factor in (1, 2, 8, 64)}
    assert times[8] < times[2] < times[1] and times[8] < times[64]


def test_homogeneous_batching_beats_pipelines_and_both_beat_none() -> None:
    for placeholders in (4, 16):
        piped = t.pipelines(placeholders, 1)
        plain, fours = (sum(t.makespan(phase, placeholders, factor, 1) for phase in ("blast", "parsing"))
                        for factor in (1, 4))
        assert fours < piped < plain
    assert t.pipelines(2, 1) == pytest.approx(t.PIPELINES[2], rel=0.05)


def test_blast_times_sum_to_printed_time_in_sequence() -> None:
    for seed in (1, 2):
        times = t.walls("blast", seed)
        assert abs(sum(times) / 1000 - t.BLAST_ALONE) < 3 and len(times) == t.PROTEINS
    assert t.walls("blast", 1) != t.walls("blast", 2)
    assert 0.62 < sum(t.walls("parsing", 1)) / 1000 / t.PROTEINS < 0.64


def test_printed_speed_ups_agree_with_printed_makespans() -> None:
    """Speed-ups and makespans are printed in different tables of the thesis; they must agree."""
    for count in t.PLACEHOLDERS:
        for place in range(len(t.FACTORS)):
            both = t.BLAST_ALONE / t.BLAST_SPEED_UP[count][place] + t.PARSING_ALONE / t.PARSING_SPEED_UP[count][place]
            assert both == pytest.approx(t.MAKESPAN[count][place], rel=0.02)
