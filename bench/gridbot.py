"""How much do the numbers matter that the GridBot paper leaves open?

`bench/gridbot.py g-r` (or g-8, g-9, g-n) runs the study with each number of its calibration changed by itself, and
prints a table for docs/explanation/experiments.md.  `--part` makes the study smaller: a share of its jobs and hosts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from common import ROOT  # noqa: F401  (puts src/ on the path)
from windfall.sim.experiments import bags, naive, replicas, several

Change = tuple[str, tuple[str, Any]]  # description; field of the calibration, its new value
R: list[Change] = [
    ("hosts: 3,000 → 2,700", ("hosts", 2_700)),
    ("hosts: 3,000 → 3,300", ("hosts", 3_300)),
    ("what hosts lose: 0.07 and 0.27 → 0.05 and 0.38", ("loses", (0.05, 0.38))),
    ("all hosts lose a tenth", ("loses", (0.0999, 0.1))),
    ("what good hosts lost before, of what they lose now: 0.01 → 0.1", ("clean", 0.1)),
    ("spread of the speeds: 0.15 → 0", ("spread", 0.0)),
    ("spread of the speeds: 0.15 → 0.3", ("spread", 0.3)),
    ("minutes that a preempted host is away: 10 → 0", ("away", 0.0)),
    ("minutes that a preempted host is away: 10 → 30", ("away", 30.0)),
    ("deadline, min: 55 → 45", ("deadline", 45.0)),
    ("deadline, min: 55 → 65", ("deadline", 65.0)),
    ("jobs in the queue that are few: 15,000 → 6,000", ("buffer", 6_000)),
    ("jobs in the queue that are few: 15,000 → 10,000", ("buffer", 10_000)),
    ("seconds after which a pilot without work leaves: 10 → 120", ("idle", 120.0)),
    ("minutes until it is back: 30 → 10", ("returns", 10.0)),
]
EIGHT: list[Change] = [
    ("hosts of grids: 300 → 200", ("grid", 200)),
    ("hosts of grids: 300 → 500", ("grid", 500)),
    ("part of them that loses much: 0.25 → 0.1", ("bad", 0.1)),
    ("part of them that loses much: 0.25 → 0.4", ("bad", 0.4)),
    ("what these lose: 0.06 → 0.03", ("loses", (0.0001, 0.03))),
    ("what these lose: 0.06 → 0.12", ("loses", (0.0001, 0.12))),
    ("what the others lose: 0.0001 → 0.005", ("loses", (0.005, 0.06))),
    ("hosts of the cluster: 100 → 50", ("cluster", 50)),
    ("spread of the speeds: 0.15 → 0", ("spread", 0.0)),
    ("spread of the speeds: 0.15 → 0.4", ("spread", 0.4)),
    ("minutes that a preempted host is away: 10 → 60", ("away", 60.0)),
    ("deadline, min: 60 → 30", ("deadline", 30.0)),
    ("deadline, min: 60 → 120", ("deadline", 120.0)),
]
NINE: list[Change] = [
    ("hosts of grids: 3,000 → 2,000", ("grid", 2_000)),
    ("hosts of grids: 3,000 → 4,000", ("grid", 4_000)),
    ("volunteers: 22,000 → 15,000", ("volunteers", 15_000)),
    ("volunteers: 22,000 → 30,000", ("volunteers", 30_000)),
    ("volunteers who never answer: 0.1 → 0.03", ("volunteers_lose", 0.03)),
    ("share of a volunteer's time: median 0.2, spread 1 → 0.25, 0.6", ("gives", (0.25, 0.6))),
    ("hours until a volunteer asks again: 0.25 → 1", ("contacts", 1.0)),
    ("deadline in grids, min: 25 → 50", ("deadline", 50.0)),
    ("deadline of volunteers, h: 8 → 24", ("patience", 24.0)),
    ("replicas are added up to a queue of: 30,000 → 13,000", ("buffer", 13_000)),
    ("jobs in the queue that are the tail: 8,000 → 3,000", ("few", 3_000)),
    ("R4's tail, jobs left: 2,000 → 4,000", ("left", 4_000)),
]
NAIVE: list[Change] = [
    ("hosts of grids: 165 → 100", ("grid", 100)),
    ("hosts of grids: 165 → 300", ("grid", 300)),
    ("volunteers: 300 → 100", ("volunteers", 100)),
    ("volunteers: 300 → 900", ("volunteers", 900)),
    ("part of the grids' hosts that loses much: 0.25 → 0.1", ("grid_bad", 0.1)),
    ("what the grids' hosts lose: 0.01 and 0.37 → 0.03 and 0.31", ("grid_loses", (0.03, 0.31))),
    ("volunteers who never answer: 0.1 → 0.02", ("volunteers_lose", 0.02)),
    ("volunteers who never answer: 0.1 → 0.3", ("volunteers_lose", 0.3)),
    ("share of a volunteer's time, on average: 0.3 → 0.5", ("calls", 1.0)),
    ("deadline, h: 72 → 24", ("deadline", 24.0)),
    ("minutes that a preempted host is away: 10 → 60", ("away", 60.0)),
    ("tasks of 20 to 40 minutes → 5 to 10", ("minutes", (5.0, 10.0))),
]
SIZES = ("tasks", "hosts", "buffer", "grid", "volunteers", "cluster", "few", "left")


def smaller(calibration: Any, part: float) -> Any:
    sizes = {name: round(part * getattr(calibration, name)) for name in SIZES if hasattr(calibration, name)}
    return replace(calibration, **sizes)


def of_r(calibration: replicas.ReplicasCalibration, seeds: range) -> str:
    rows = [[replicas.run_on_papers_server(seed, policy, calibration) for policy in replicas.POLICIES]
            for seed in seeds]
    means = [sum(run[at].turnaround for run in rows) / len(rows) for at in range(len(replicas.POLICIES))]
    return " | ".join([*(f"{mean:.1f}" for mean in means), f"{sum(map(replicas.is_in_order, rows))} of {len(rows)}"])


def of_8(calibration: bags.FiveBagsCalibration, seeds: range) -> str:
    runs = [bags.play(seed, calibration) for seed in seeds]
    cells = [f"{sum(getattr(run[at], name) for run in runs) / len(runs):.0f}"
             for at, name in ((0, "tail"), (1, "tail"), (2, "tail"), (2, "turnaround"), (3, "turnaround"), (3, "tail"),
                              (4, "tail"))]
    return " | ".join([*cells, ", ".join(str(sum(map(holds, runs))) for _, holds in bags.CLAIMS)])


def of_9(calibration: several.FourBagsCalibration, seeds: range) -> str:
    runs = [several.play(seed, calibration) for seed in seeds]
    cells = [f"{sum(run[at].turnaround for run in runs) / len(runs):.0f}, "
             f"{sum(run[at].replicas for run in runs) / len(runs):.0f} %" for at in range(4)]
    return " | ".join([*cells, ", ".join(str(sum(map(holds, runs))) for _, holds in several.CLAIMS)])


def of_n(calibration: naive.NaiveCalibration, seeds: range) -> str:
    hours = [[naive.turnaround(naive.play(seed, policies, calibration)) for seed in seeds]
             for policies in (False, True)]
    return f"{min(hours[0]):.0f} | {sum(hours[0]) / len(seeds):.0f} | {sum(hours[1]) / len(seeds):.1f}"


STUDIES: dict[str, tuple[Any, list[Change], Callable[[Any, range], str], str]] = {
    "g-r": (replicas.ReplicasCalibration(), R, of_r,
            "pp, h | rr | pr | disabled/permissive | disabled/restrictive | in order"),
    "g-8": (bags.FiveBagsCalibration(), EIGHT, of_8,
            "tail of B1, min | of B2 | of B3 | all of B3 | all of B4 | tail of B4 | of B5 | seeds in which each holds"),
    "g-9": (several.FourBagsCalibration(), NINE, of_9, "R1: min, replicas | R2 | R3 | R4 | seeds in which each holds"),
    "g-n": (naive.NaiveCalibration(), NAIVE, of_n, "naive, the best, h | all | with policies"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=201)
    parser.add_argument("--part", type=float, default=0.1)
    options = parser.parse_args()
    calibration, changes, row, head = STUDIES[options.study]
    seeds = range(options.first, options.first + options.seeds)
    print(f"| changed | {head} |\n|{'---|' * (2 + head.count('|'))}")
    print(f"| nothing | {row(smaller(calibration, options.part), seeds)} |", flush=True)
    for name, (field, value) in changes:
        print(f"| {name} | {row(smaller(replace(calibration, **{field: value}), options.part), seeds)} |", flush=True)


if __name__ == "__main__":
    main()
