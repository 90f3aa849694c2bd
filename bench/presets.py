"""Which preset of replication should be the default?

`bench/presets.py` runs the workloads of g-c, g-r and s-t2 with every preset, and prints the mean time that a bag takes
and its waste: attempts that were cancelled or discarded because another one was first, in percent of the tasks.
`--seeds` and `--part` (a share of g-r's jobs and hosts) set the size.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace

from common import ROOT  # noqa: F401  (puts src/ on the path)
from windfall.core.decide.replicas.candidates import PRESETS
from windfall.core.messages.lifecycle import O_CANCELLED, O_SUCCEEDED
from windfall.sim.experiments import condor, replicas, swarm_table
from windfall.sim.record import Record
from windfall.sim.world import Work

MOST_WASTE, CLOSE = 15.0, 1.05
Play = Callable[[int, str], tuple[float, float]]  # seed, preset → minutes, percent


def wasted(record: Record, tasks: int) -> float:
    vain = [each for each in record.attempts() if not each.counts and each.outcome in (O_SUCCEEDED, O_CANCELLED)]
    return 100 * len(vain) / tasks


def of_pool(seed: int, preset: str) -> tuple[float, float]:
    record = condor.run_through_windfall(seed, replicate=preset)
    return condor.accepted_ends(record)[-1] / condor.MINUTE, wasted(record, condor.TASKS)


def of_grids(part: float, scheduling: str) -> Play:
    whole = replicas.ReplicasCalibration()
    calibration = replace(whole, tasks=round(whole.tasks * part), hosts=round(whole.hosts * part))

    def play(seed: int, preset: str) -> tuple[float, float]:
        policy = replicas.PaperPolicy("disabled", scheduling, (0, 0, 0))
        row = replicas.run_on_our_server(seed, policy, calibration, preset)
        return row.turnaround * 60, row.waste

    return play


class Swarm(swarm_table.System):
    """The systems of the table; the third one replicates late tasks."""

    preset = "none"
    vain = 0  # attempts in the last round

    def row(self, script: swarm_table.UserScript) -> swarm_table.SystemTimes:
        bags = self.world.server.core.state.bags.values()
        Swarm.vain = sum(bag.replicas_granted for bag in bags if bag.provision == "swarm") or Swarm.vain
        return super().row(script)

    def work(self, calibration: swarm_table.SwarmCalibration, count: int, provision: str) -> Work:
        work = super().work(calibration, count, provision)
        work.replicate = self.preset if provision == "swarm" else "none"
        return work


def of_swarm(seed: int, preset: str) -> tuple[float, float]:
    Swarm.preset, Swarm.vain, swarm_table.System = preset, 0, Swarm  # type: ignore[misc]
    row = swarm_table.one_round(seed)["SWARM"]
    return row.real / 60, 100 * Swarm.vain / swarm_table.TASKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", type=float, default=0.1)
    options = parser.parse_args()
    workloads: dict[str, Play] = {
        "g-c": of_pool, "s-t2": of_swarm, "g-r": of_grids(options.part, "permissive"),
        "g-r, reliable hosts in the tail": of_grids(options.part, "restrictive"),
    }
    for name, play in workloads.items():
        found: dict[str, tuple[float, float]] = {}
        for preset in PRESETS:
            runs = [play(seed, preset) for seed in range(1, options.seeds + 1)]
            found[preset] = statistics.fmean(run[0] for run in runs), statistics.fmean(run[1] for run in runs)
        best = min(minutes for minutes, waste in found.values() if waste <= MOST_WASTE)
        for preset, (minutes, waste) in found.items():
            close = "within 5 % of the best" if minutes <= CLOSE * best else f"{minutes / best:.2f} times the best"
            print(f"{name:32}{preset:10} {minutes:7.1f} min, {waste:5.1f} % wasted, {close}", flush=True)


if __name__ == "__main__":
    main()
