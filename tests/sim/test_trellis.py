"""The studies of data-conscious selection: the example exactly, chapter 6 with few seeds and wide tolerances.

`scripts/soak experiments` runs all of them.
"""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from windfall.core.messages.facts import DataSelection
from windfall.sim.experiments import trellis as t
from windfall.sim.experiments.base import Options

FEW = Options(seeds=3)


def test_example_of_section_2_3_matches_thesis_to_the_millisecond() -> None:
    """The decisions are the thesis's, too: B takes Parsing 1 or Parsing 2, Parsing 3 goes to A or waits for B."""
    fcfs, conscious = t.example("fcfs"), t.example("data-conscious")
    assert (fcfs.ended, conscious.ended) == (12_200, 10_600)
    assert fcfs.turns[2:] == [(4_300, "B", "Parsing 1"), (4_800, "A", "Parsing 2"), (6_900, "B", "BLAST 3"),
                              (10_500, "A", "Parsing 3")]
    assert conscious.turns[2:] == [(4_300, "B", "Parsing 2"), (4_800, "A", "Parsing 1"), (5_900, "B", "BLAST 3"),
                                   (9_900, "B", "Parsing 3")]
    assert fcfs.turns[:2] == conscious.turns[:2] == [(0, "A", "BLAST 1"), (0, "B", "BLAST 2")]
    assert all(cell.holds for cell in t.EXPERIMENTS[0].run(FEW).cells)


@pytest.mark.parametrize(("changed", "ended"), [
    ({"penalty": 1.0}, 10_600), ({"penalty": 100.0}, 10_600), ({"latency": 10}, 10_600), ({"latency": 1_300}, 10_600),
    ({"unit": 1}, 10_600), ({"unit": 1_000}, 10_600), ({"arrivals": 1}, 10_600), ({"withhold": False}, 11_000),
])  # fmt: skip
def test_example_depends_on_withholding_but_on_no_other_parameter(changed: dict[str, Any], ended: int) -> None:
    assert t.example("data-conscious", DataSelection(**changed)).ended == ended


@pytest.mark.parametrize(("net", "factor", "count"), [(t.WAN, 1, 8), (t.WAN, 100, 16), (t.LAN, 100, 8)])
def test_makespans_lie_near_printed_ones(net: t.Net, factor: int, count: int) -> None:
    papers = t.MAKESPANS[net, factor, count]
    for name, paper in zip(t.NAMES, papers, strict=True):
        ours = t.mean(t.Case(net, t.POLICIES[name], count, factor), FEW)
        assert paper is None or ours.makespan == pytest.approx(paper, rel=0.15)
        assert name != "DC" or ours.affinity >= 0.49


def test_data_conscious_gain_at_32_placeholders_needs_quicker_server() -> None:
    """In a LAN with 32 placeholders data-conscious selection is no better than FCFS, unless the server is quicker."""
    gains = []
    for delay in (350, 150):
        blind, conscious = (t.mean(t.Case(t.LAN, policy, 32, 1, delay), FEW) for policy in ("fcfs", "data-conscious"))
        gains.append(1 - conscious.makespan / blind.makespan)
    assert gains[0] < 0.03 < gains[1] + 0.02 and gains[1] > gains[0]


def test_response_time_gain_lies_near_printed_one() -> None:
    sjf, dc = (t.mean(t.Case(t.WAN, policy, 32, 100), FEW).response for policy in ("sjf", "data-conscious"))
    assert 1 - dc / sjf == pytest.approx(0.46, abs=0.08)


def test_workload_lies_within_printed_ranges() -> None:
    for choices in (t.CALIBRATION, t.APART):
        bundles = t.workload(5, choices)
        assert sum(each.pipelines for each in bundles) == 1_000 and len(bundles) == 63
        for each in bundles:
            assert 2_000 * each.pipelines <= each.blast <= 8_000 * each.pipelines
            assert 500 * each.pipelines <= each.parse <= 700 * each.pipelines
            assert 250 * each.pipelines <= each.reads <= 850 * each.pipelines
            assert 5_000 * each.pipelines <= each.leaves <= 85_000 * each.pipelines
    assert t.workload(1) != t.workload(2)


def test_pipelines_of_bundle_are_alike_by_calibration() -> None:
    alike, apart = (statistics.stdev(each.blast for each in t.workload(1, choices)[:-1])
                    for choices in (t.CALIBRATION, t.APART))
    assert alike > 2 * apart
