"""Batching in Trellis Driver (thesis, chapter 5): 3,916 proteins, two phases, placeholders on a local network.

The model
  * A placeholder is a pilot of one core.  The command-line server is our server as one queue, which each call holds for
    0.35 s.  A call takes 0.66 s if no other call is before it, so the way there and the way back take 0.155 s each.
  * A protein's BLAST takes 2 to 8 s (table 6.1).  Sixteen proteins in a row are alike, and all times are scaled so that
    their sum is the 4:51:26 of the run in sequence.  A parsing job takes 0.56 to 0.70 s as a process of its own; the
    program that ran all of them in sequence took 0:08:33.
  * One number was fitted: `mqsub` and the shell around a bundle cost 0.7 s per bundle on the placeholder.
  * All jobs of a phase are submitted at once, and a phase begins when the one before it has ended.
  * Files lie on a shared volume and cost nothing to move, as in the thesis.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from windfall.core.config import Config
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Series, StudyResult
from windfall.sim.world import Work, World, WorldRules, target_shape

SOURCE = "Lamb, N.: Data-Conscious Scheduling of Workflows in Metacomputers. M.Sc. thesis, University of Alberta, 2005"
PROTEINS = 3_916
BLAST_ALONE, PARSING_ALONE = 17_486.0, 513.0  # seconds, in sequence
PLACEHOLDERS = (2, 4, 8, 16)
FACTORS = (2, 4, 8, 16, 32, 64)
SEEDS = 8
HOUR = 3_600_000

# Printed values, by placeholders; columns are FACTORS.
BLAST_SPEED_UP = {
    2: (1.74, 1.87, 1.95, 1.98, 2.00, 2.01),
    4: (3.49, 3.77, 3.92, 4.00, 4.02, 3.87),
    8: (6.81, 7.45, 7.79, 7.85, 7.68, 7.49),
    16: (12.38, 14.47, 15.03, 14.81, 14.68, 13.52),
}
PARSING_SPEED_UP = {
    2: (0.20, 0.27, 0.33, 0.39, 0.41, 0.42),
    4: (0.35, 0.52, 0.64, 0.72, 0.79, 0.82),
    8: (0.50, 0.84, 1.14, 1.37, 1.43, 1.47),
    16: (0.50, 1.01, 1.60, 2.15, 2.41, 2.53),
}
MAKESPAN = {  # seconds
    2: (12_602, 11_210, 10_483, 10_156, 9_987, 9_944),
    4: (6_455, 5_627, 5_264, 5_088, 5_002, 5_142),
    8: (3_592, 2_961, 2_695, 2_601, 2_637, 2_686),
    16: (2_442, 1_716, 1_485, 1_409, 1_404, 1_496),
}
UNBATCHED = {2: 15_434, 4: 8_300, 8: 5_163, 16: 4_121}
PIPELINES = {2: 12_377, 4: 6_235, 8: 3_632, 16: 2_414}


class BatchingCalibration(NamedTuple):
    """The numbers of the model, in ms.  The defaults are the study's calibration; other values show its sensitivity."""

    call: int = 660
    service: int = 350
    bundle: int = 700  # fitted
    parsing: tuple[int, int] = (560, 700)
    alike: int = 16  # proteins in a row that have the same size


CALIBRATION = BatchingCalibration()


def walls(phase: str, seed: int, setting: BatchingCalibration = CALIBRATION) -> list[int]:
    """Draw the run time of each protein, in ms."""
    draw = random.Random(f"{phase} {seed}")
    if phase == "parsing":
        return [draw.randint(*setting.parsing) for _ in range(PROTEINS)]
    drawn = [draw.uniform(2.0, 8.0) for _ in range(PROTEINS)]
    sizes = [drawn[place - place % setting.alike] for place in range(PROTEINS)]
    scale = 1000 * BLAST_ALONE / sum(sizes)
    return [round(size * scale) for size in sizes]


def world_of(placeholders: int, setting: BatchingCalibration = CALIBRATION) -> World:
    """Return a world of placeholders.  Leases and polls are long: a placeholder knew neither, and only reported."""
    config = Config(lease=HOUR, park=HOUR, idle=1 << 40)
    world = World(config=config, rules=WorldRules(service=setting.service))
    world.site("lan")
    world.pilots("lan", placeholders, latency=(setting.call - setting.service) // 2)
    return world


def makespan(phase: str, placeholders: int, factor: int, seed: int,
             setting: BatchingCalibration = CALIBRATION) -> float:
    """Return the seconds that one phase takes; factor 1 means no batching."""
    times = walls(phase, seed, setting)

    def wall(task: int, _draw: random.Random) -> int:
        return times[task] + (setting.bundle if task % factor == 0 else 0)

    world = world_of(placeholders, setting)
    world.submit(Work(PROTEINS, wall, expect=sum(times) // PROTEINS, batch=factor))
    world.run()
    return world.engine.now / 1000


def pipelines(placeholders: int, seed: int, setting: BatchingCalibration = CALIBRATION) -> float:
    """Return the seconds that both phases take when a protein's two jobs are one bundle."""
    first, second = walls("blast", seed, setting), walls("parsing", seed, setting)

    def wall(task: int, _draw: random.Random) -> int:
        return first[task] + setting.bundle if task < PROTEINS else second[task - PROTEINS]

    stages = [target_shape(name, PROTEINS, expect=sum(times) // PROTEINS, previous_stage=behind)
              for name, times, behind in (("blast", first, -1), ("parsing", second, 0))]
    world = world_of(placeholders, setting)
    world.submit(Work(2 * PROTEINS, wall, targets=stages))
    world.run()
    return world.engine.now / 1000


def _mean(options: Options, what: str, measure: Callable[[int], float]) -> float:
    seeds = options.seed_range(SEEDS)
    options.tell(what)
    return sum(measure(seed) for seed in seeds) / len(seeds)


Ours = dict[int, list[float]]


def _speed_ups(options: Options, phase: str, alone: float) -> Ours:
    """Return for each number of placeholders the speed-ups over one process, by factor."""
    def one(count: int, factor: int) -> float:
        return alone / _mean(options, _cell(count, factor), lambda seed: makespan(phase, count, factor, seed))

    return {count: [one(count, factor) for factor in FACTORS] for count in PLACEHOLDERS}


def _cell(count: int, factor: int) -> str:
    return f"{count} placeholders, factor {factor}" if factor > 1 else f"{count} placeholders, no batching"


def _figure(title: str, y: str, paper: Mapping[int, tuple[float, ...]], ours: Ours) -> Figure:
    x = [float(factor) for factor in FACTORS]
    series = [Series(f"{count}, ours", x, ours[count]) for count in PLACEHOLDERS]
    series += [Series(f"{count}, thesis", x, [float(value) for value in paper[count]]) for count in PLACEHOLDERS]
    return Figure(title, "batching factor", y, series)


def blast(options: Options) -> StudyResult:
    ours = _speed_ups(options, "blast", BLAST_ALONE)
    cells = [
        Cell(_cell(count, factor), paper, value, low=0.9 * paper, high=1.1 * paper)
        for count in PLACEHOLDERS
        for factor, paper, value in zip(FACTORS, BLAST_SPEED_UP[count], ours[count], strict=True)
    ]
    return StudyResult(cells, [_figure("BLAST by batching factor", "speed-up", BLAST_SPEED_UP, ours)])


def parsing(options: Options) -> StudyResult:
    ours = _speed_ups(options, "parsing", PARSING_ALONE)
    cells = [
        Cell(_cell(count, factor), paper, value, "", *_asked(count, factor))
        for count in PLACEHOLDERS
        for factor, paper, value in zip(FACTORS, PARSING_SPEED_UP[count], ours[count], strict=True)
    ]
    note = "asked: below 1 at 2 and 4 placeholders, above 1 at 16 from factor 4 on (the thesis has 0.50 at factor 2)"
    return StudyResult(cells, [_figure("Parsing by batching factor", "speed-up", PARSING_SPEED_UP, ours)], [note])


def _asked(count: int, factor: int) -> tuple[float | None, float | None]:
    if count <= 4:
        return None, 1.0
    return (1.0, None) if count == 16 and factor >= 4 else (None, None)


def combined(options: Options) -> StudyResult:
    """Run both phases, one after the other."""
    def both(count: int, factor: int) -> float:
        return _mean(options, _cell(count, factor), lambda seed: sum(
            makespan(phase, count, factor, seed) for phase in ("blast", "parsing")))

    ours = {count: [both(count, factor) for factor in FACTORS] for count in PLACEHOLDERS}
    cells = [Cell(_cell(count, 1), UNBATCHED[count], both(count, 1), "s") for count in PLACEHOLDERS]
    cells += [_piped(options, count) for count in PLACEHOLDERS]
    cells += [
        Cell(_cell(count, factor), paper, value, "s")
        for count in PLACEHOLDERS
        for factor, paper, value in zip(FACTORS, MAKESPAN[count], ours[count], strict=True)
    ]
    return StudyResult(cells, [_figure("Both phases by batching factor", "makespan, s", MAKESPAN, ours)])


def _piped(options: Options, count: int) -> Cell:
    name = f"{count} placeholders, pipelines"
    return Cell(name, PIPELINES[count], _mean(options, name, lambda seed: pipelines(count, seed)), "s")


EXPERIMENTS = [
    Experiment("t-5.2", "batching: makespan by factor and placeholders", f"{SOURCE}, table 5.2", combined),
    Experiment("t-5.4", "batching: BLAST speed-up", f"{SOURCE}, tables 5.3 and 5.4", blast),
    Experiment("t-5.6", "batching: parsing speed-up", f"{SOURCE}, tables 5.5 and 5.6", parsing),
]
