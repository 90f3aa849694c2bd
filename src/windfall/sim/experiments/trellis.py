"""The studies of data-conscious selection in the Trellis thesis: section 2.3 and chapter 6.

`CALIBRATION` is the one calibration of all studies (docs/explanation/experiments.md says why, and what each choice
changes):
  * 1,000 pipelines of BLAST and parsing, submitted in bundles of 16, all BLAST before all parsing.  A number u in 0…1
    describes a pipeline: its sequence has 250 + 600 u bytes, BLAST takes 2 + 6 u^bend s and leaves
    5,000 + 80,000 u^bend bytes, parsing takes 0.5 + 0.2 u s.  Pipelines of a bundle are alike: their u lie within
    `spread` of a middle that is drawn for the bundle, uniform in 0…1.
  * Sequences come from home, one file each.  Table 6.2's rates are bytes per unit of 10 ms.
  * A placeholder makes two calls per bundle, one to ask and one to report.  Each call takes table 6.2's invocation
    time, and holds the server, one queue, for the queuing delay.  Enrolling, leaving and reporting a start cost
    nothing: the thesis's placeholders make no such calls.
  * A placeholder without a grant leaves, and its turn comes again after `returns`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from windfall.core.config import Config
from windfall.core.messages import events as e, facts as f
from windfall.sim.experiments.base import Cell, Experiment, Figure, Options, Series, StudyResult
from windfall.sim.models.placeholder import OthersTurns
from windfall.sim.world import Work, World, WorldRules, target_shape

HOUR = 3_600_000
UNIT = 10  # ms: the thesis's unit of time
PIPELINES, BUNDLE = 1_000, 16
COUNTS = (2, 4, 8, 16, 32)
POLICIES = {"FCFS": "fcfs", "SJF": "sjf", "DC": "data-conscious"}
SEEDS = 20


class Net(NamedTuple):
    """A network of table 6.2.  Times are ms."""

    name: str
    words: str
    call: int
    start: int  # per file
    rate: float  # bytes per second


WAN = Net("WAN", "a wide-area network", 1_300, 1_200, 500_000)
LAN = Net("LAN", "a local network", 660, 580, 2_000_000)
DELAY = 350


class Choices(NamedTuple):
    """The choices that the thesis leaves open."""

    bend: float = 1.5
    spread: float = 0.4
    alike: bool = True  # are the pipelines of a bundle alike?
    barrier: bool = True  # does parsing wait for all of BLAST?
    returns: int = 15_000  # ms
    calls: int = 2  # per bundle
    within: bool = True  # is the queuing delay part of the invocation time?
    withhold: bool = True
    sequences: bool = True  # does the factor of the file sizes apply to sequences, too?


CALIBRATION = Choices()
APART = Choices(alike=False)


# --- the workload ---------------------------------------------------------------------------------------------------


class Bundle(NamedTuple):
    pipelines: int
    blast: int  # ms
    parse: int
    reads: int  # bytes
    leaves: int


def workload(seed: int, choices: Choices = CALIBRATION) -> list[Bundle]:
    draw = random.Random(seed)
    made = []
    for first in range(0, PIPELINES, BUNDLE):
        middle = draw.random()
        low, high = max(0.0, middle - choices.spread), min(1.0, middle + choices.spread)
        if not choices.alike:
            low, high = 0.0, 1.0
        sizes = [draw.uniform(low, high) for _ in range(min(BUNDLE, PIPELINES - first))]
        bent = sum(u**choices.bend for u in sizes)
        n = len(sizes)
        made.append(Bundle(
            n, round(1000 * (2 * n + 6 * bent)), round(1000 * (0.5 * n + 0.2 * sum(sizes))),
            round(250 * n + 600 * sum(sizes)), round(5_000 * n + 80_000 * bent)))
    return made


# --- one run --------------------------------------------------------------------------------------------------------


class RunNumbers(NamedTuple):
    makespan: float  # units
    response: float  # units, mean over the bundles of both phases
    affinity: float  # share of the jobs that found their input in place


class Case(NamedTuple):
    net: Net
    policy: str
    placeholders: int
    factor: int = 1  # by which all file sizes are multiplied
    delay: int = DELAY
    choices: Choices = CALIBRATION


class Ledger:
    """The numbers of a run, counted from its facts."""

    def __init__(self, bundles: list[Bundle]) -> None:
        self.bundles = bundles
        self.released = [0, 0]
        self.waited: list[int] = []
        self.local = self.end = 0

    def see(self, facts: list[Any]) -> None:
        for fact in facts:
            if isinstance(fact, f.Granted):
                far = {move.attempt for move in fact.transfers}
                for group in fact.groups:
                    self.local += sum(self.bundles[task % len(self.bundles)].pipelines
                                      for attempt, task in zip(group.attempts, group.tasks, strict=True)
                                      if attempt not in far)
            elif isinstance(fact, f.Finished):
                for task in fact.tasks:
                    self._ended(fact.at, task >= len(self.bundles))
            elif isinstance(fact, f.Ended):
                for end in fact.ends:
                    self._ended(fact.at, end.task >= len(self.bundles))

    def _ended(self, at: int, second: bool) -> None:
        self.waited.append(at - self.released[second])
        self.end = at
        if len(self.waited) == len(self.bundles):
            self.released[1] = at


@lru_cache(maxsize=20_000)
def play(case: Case, seed: int) -> RunNumbers:
    choices, bundles = case.choices, workload(seed, case.choices)
    world = World(seed, _config(), WorldRules(service=case.delay, charges=_call if choices.calls == 2 else _report))
    ledger = Ledger(bundles)
    world.server.observe(ledger.see)
    world.site("grid")
    world.link("*", "*", start=case.net.start, rate=case.net.rate)
    world.submit(_bag(case, bundles))
    latency = (case.net.call - (DELAY if choices.within else 0)) // 2
    world.placeholders("grid", case.placeholders, OthersTurns(after_nothing=choices.returns), latency)
    world.run()
    return RunNumbers(ledger.end / UNIT, sum(ledger.waited) / len(ledger.waited) / UNIT, ledger.local / 2 / PIPELINES)


def _config() -> Config:
    """Return a configuration without prefetch, in which a pilot without a grant leaves at once."""
    return Config(lease=400 * HOUR, park=HOUR, idle=0, prefetch=0, silence=800 * HOUR)


def _call(event: e.Event) -> bool:
    return isinstance(event, e.Exchange) and bool(event.want or event.reports)


def _report(event: e.Event) -> bool:
    return isinstance(event, e.Exchange) and bool(event.reports)


def _bag(case: Case, bundles: list[Bundle]) -> Work:
    n = len(bundles)
    walls = [each.blast for each in bundles] + [each.parse for each in bundles]
    targets = [_target("blast", walls[:n], []), _target("parse", walls[n:], [0] if case.choices.barrier else [])]
    files, none = [each.pipelines for each in bundles], [0] * n
    outside = case.factor if case.choices.sequences else 1
    data = f.DataShape(
        _column("<i8", [outside * each.reads for each in bundles] + none), _column("<i4", files + none),
        _column("<i8", [case.factor * each.leaves for each in bundles] + none), _column("<i4", files + none))
    pairs = np.array([(task, task + n) for task in range(n)], dtype="<i4")
    data_selection = None
    if case.policy == "data-conscious":
        data_selection = f.DataSelection(latency=case.net.call // 2, unit=UNIT, withhold=case.choices.withhold)
    return Work(2 * n, lambda task, _draw: walls[task], select=case.policy, targets=targets, edges=pairs.tobytes(),
                data=data, data_selection=data_selection)


def _target(name: str, walls: list[int], after: list[int]) -> f.TargetShape:
    mean = sum(walls) // len(walls)
    return target_shape(name, len(walls), after=after, expect=mean, costs=_column("<f4", walls))


def _column(kind: str, values: Sequence[float]) -> bytes:
    return np.array(values, dtype=kind).tobytes()


def mean(case: Case, options: Options) -> RunNumbers:
    seeds = options.seed_range(SEEDS)
    options.tell(f"{case.net.name} ×{case.factor}, {case.policy}, {case.placeholders} placeholders")
    return RunNumbers(*(sum(column) / len(seeds) for column in zip(*(play(case, seed) for seed in seeds), strict=True)))


# --- chapter 6 ------------------------------------------------------------------------------------------------------

# Printed: (net, factor, placeholders) → makespans by FCFS, SJF, DC
MAKESPANS: dict[tuple[Net, int, int], tuple[float | None, float | None, float | None]] = {
    (WAN, 1, 2): (3.78e5, 3.71e5, 3.39e5),
    (WAN, 1, 8): (1.04e5, 1.05e5, 9.00e4),
    (WAN, 1, 32): (None, None, 3.11e4),
    (WAN, 10, 8): (1.12e5, 1.14e5, 9.07e4),
    (WAN, 100, 2): (6.33e5, None, None),
    (WAN, 100, 16): (1.07e5, 1.09e5, 5.05e4),
    (LAN, 1, 2): (3.18e5, 3.15e5, 3.00e5),
    (LAN, 1, 32): (2.88e4, 2.74e4, 2.91e4),
    (LAN, 100, 2): (3.73e5, None, None),
    (LAN, 100, 8): (1.07e5, None, 8.02e4),
}
# Printed: reductions by DC, in per cent, against FCFS and SJF
REDUCTIONS: dict[tuple[Net, int, int], tuple[float | None, float | None]] = {
    (WAN, 1, 8): (13.5, 14.3), (WAN, 1, 32): (6.9, None), (WAN, 10, 8): (19.0, 20.4), (WAN, 100, 16): (52.8, 53.7),
    (LAN, 100, 8): (25.0, None),
}  # fmt: skip
RESPONSES: dict[tuple[Net, int, int], tuple[float | None, float | None, float | None]] = {
    (WAN, 100, 32): (None, 1.62e4, 8.75e3),
    (LAN, 100, 16): (None, 1.42e4, 1.18e4),
}
FASTER: dict[tuple[Net, int, int], tuple[float | None, float | None]] = {
    (WAN, 100, 32): (None, 46.0), (LAN, 100, 16): (None, 16.9),
}  # fmt: skip
QUEUING = {250: (2.83e4, 2.76e4), 150: (2.79e4, 2.67e4)}  # LAN ×1, 32 placeholders: FCFS, DC
NAMES = tuple(POLICIES)


def _time_cell(name: str, paper: float | None, ours: float) -> Cell:
    asked = (0.9 * paper, 1.1 * paper) if paper is not None else (None, None)
    return Cell(name, paper, round(ours), "units", *asked)


def _saved_cell(name: str, paper: float | None, ours: float) -> Cell:
    asked = (paper - 4, paper + 4) if paper is not None else (None, None)
    return Cell(name, paper, round(ours, 1), "%", *asked)


def _times(name: str, got: dict[str, float], papers: Sequence[float | None],
           saved: Sequence[float | None]) -> list[Cell]:
    """Return the cells of the three policies at one count, and of what DC saves against the others."""
    cells = [_time_cell(f"{policy}, {name}", paper, got[policy])
             for policy, paper in zip(NAMES, papers, strict=True)]
    return cells + [
        _saved_cell(f"DC against {other}, {name}", paper, 100 * (1 - got["DC"] / got[other]))
        for other, paper in zip(NAMES, saved, strict=False)
    ]


def _makespans(net: Net, factor: int) -> Callable[[Options], StudyResult]:
    def run(options: Options) -> StudyResult:
        runs = _grid(net, factor, options)
        cells = []
        for count in COUNTS:
            key = (net, factor, count)
            got = {policy: runs[policy, count].makespan for policy in NAMES}
            cells += _times(f"{count} placeholders", got, MAKESPANS.get(key, (None,) * 3),
                            REDUCTIONS.get(key, (None, None)))
            cells += [_affinity(policy, count, runs[policy, count].affinity) for policy in NAMES]
        if (net, factor) == (LAN, 1):
            cells += _queuing(options)
        figures = [_figure(f"Makespan, {net.name}, files ×{factor}", "units of 10 ms", runs, "makespan"),
                   _figure(f"Affinity, {net.name}, files ×{factor}", "part of the jobs", runs, "affinity")]
        return StudyResult(cells, figures, _independent(net, factor, options, "makespan"))

    return run


def _affinity(policy: str, count: int, ours: float) -> Cell:
    paper, least = (0.5, 0.49) if policy == "DC" else (None, None)
    return Cell(f"{policy} affinity, {count} placeholders", paper, round(ours, 3), "", least)


def _responses(net: Net, factor: int) -> Callable[[Options], StudyResult]:
    def run(options: Options) -> StudyResult:
        runs = _grid(net, factor, options)
        cells = []
        for count in COUNTS:
            key = (net, factor, count)
            got = {policy: runs[policy, count].response for policy in NAMES}
            cells += _times(f"{count} placeholders", got, RESPONSES.get(key, (None,) * 3),
                            FASTER.get(key, (None, None)))
        title = f"Mean response time, {net.name}, files ×{factor}"
        return StudyResult(cells, [_figure(title, "units of 10 ms", runs, "response")],
                       _independent(net, factor, options, "response"))

    return run


def _grid(net: Net, factor: int, options: Options) -> dict[tuple[str, int], RunNumbers]:
    return {(policy, count): mean(Case(net, POLICIES[policy], count, factor), options)
            for count in COUNTS for policy in NAMES}


def _figure(title: str, y: str, runs: dict[tuple[str, int], RunNumbers], what: str) -> Figure:
    series = [Series(policy, [float(n) for n in COUNTS], [getattr(runs[policy, n], what) for n in COUNTS])
              for policy in NAMES]
    return Figure(title, "placeholders", y, series)


def _queuing(options: Options) -> list[Cell]:
    """Return the cells of 32 placeholders in a LAN, with shorter queuing delays at the server."""
    cells = []
    for delay, papers in QUEUING.items():
        for policy, paper in zip(("FCFS", "DC"), papers, strict=True):
            ours = mean(Case(LAN, POLICIES[policy], 32, 1, delay), options).makespan
            cells.append(_time_cell(f"{policy}, 32 placeholders, queuing delay {delay / 1000} s", paper, ours))
    return cells


def _independent(net: Net, factor: int, options: Options, what: str) -> list[str]:
    """Return a note on the same runs with sizes that are independent within a bundle."""
    lines = [f"With independent sizes, {what} in units:"]
    for count in COUNTS:
        runs = [mean(Case(net, policy, count, factor, choices=APART), options) for policy in POLICIES.values()]
        times = [getattr(run, what) for run in runs]
        first, short, dc = times
        lines.append(f"  {count:>2} placeholders: " + ", ".join(
            f"{name} {time:,.0f}" for name, time in zip(NAMES, times, strict=True))
            + f"; DC saves {100 * (1 - dc / first):.1f} % and {100 * (1 - dc / short):.1f} %, "
            f"affinity {runs[2].affinity:.2f}")
    return ["\n".join(lines)]


# --- section 2.3 ----------------------------------------------------------------------------------------------------

BLAST, MOVE, PARSE = (3_800, 3_300, 3_000), (1_100, 1_100, 1_000), (500, 600, 700)  # ms, table 2.2
HOSTS = {"wan-1": "A", "wan-2": "B"}
SLOW = 100_000  # bytes per second: a transfer of 1.1 s moves 110 kB


class Example(NamedTuple):
    ended: int  # ms
    turns: list[tuple[int, str, str]]  # of each grant: ms, host, job


def example(select: str, data_selection: f.DataSelection | None = None) -> Example:
    """Run three pipelines on two hosts, on which a foreign job of 1 s runs after each turn of ours."""
    walls = [ms for pair in zip(BLAST, PARSE, strict=True) for ms in pair]
    leaves = [bytes_ for ms in MOVE for bytes_ in (ms * SLOW // 1000, 0)]
    world = World(config=_config(), watch=True)
    turns: list[tuple[int, str, str]] = []

    def observe(facts: list[f.Fact]) -> None:
        for fact in facts:
            if isinstance(fact, f.Granted):
                host = world.server.core.state.pilots[fact.pilot].host
                task = fact.groups[0].tasks[0]
                turns.append((fact.at, HOSTS[host], f"{('BLAST', 'Parsing')[task % 2]} {task // 2 + 1}"))

    world.server.observe(observe)
    world.site("wan")
    world.link("*", "*", start=0, rate=SLOW)
    edges = np.array([(0, 1), (2, 3), (4, 5)], dtype="<i4").tobytes()
    data = f.DataShape(leaves=_column("<i8", leaves), leave_files=_column("<i4", [1, 0] * 3))
    if select == "data-conscious" and data_selection is None:
        data_selection = f.DataSelection()
    world.submit(Work(6, lambda task, _draw: walls[task], expect=2_000, select=select, edges=edges, data=data,
                      data_selection=data_selection))
    world.placeholders("wan", 2, OthersTurns(after_work=1_000, after_nothing=1_000))
    world.run()
    return Example(world.server.core.state.bags[1].ended, turns)


def _example(_options: Options) -> StudyResult:
    cells, notes = [], []
    for name, select, paper in (("FCFS", "fcfs", 12.2), ("DC", "data-conscious", 10.6)):
        found = example(select)
        cells.append(Cell(f"{name} makespan", paper, found.ended / 1000, "s", low=paper, high=paper))
        notes.append(f"{name}: " + ", ".join(f"{job} on {host} at {at / 1000} s" for at, host, job in found.turns))
    return StudyResult(cells, notes=notes)


THESIS = "Lamb, N.: Data-Conscious Scheduling of Workflows in Metacomputers. M.Sc. thesis, University of Alberta, 2005"


LARGER = {1: "", 10: ", files ten times as large", 100: ", files a hundred times as large"}


def _study(id_: str, what: str, net: Net, factor: int, run: Callable[[Options], StudyResult]) -> Experiment:
    return Experiment(id_, f"{what} in {net.words}{LARGER[factor]}", f"{THESIS}, figure {id_[2:]}", run)


EXPERIMENTS = [
    Experiment("t-2.3", "three pipelines on two hosts, first come first served and data-conscious",
               f"{THESIS}, section 2.3", _example),
    *(_study(id_, "makespan and affinity", net, factor, _makespans(net, factor))
      for id_, net, factor in (("t-6.2", WAN, 1), ("t-6.4", WAN, 10), ("t-6.6", WAN, 100),
                               ("t-6.8", LAN, 1), ("t-6.10", LAN, 10), ("t-6.12", LAN, 100))),
    *(_study(id_, "mean response time", net, factor, _responses(net, factor))
      for id_, net, factor in (("t-6.15", WAN, 1), ("t-6.16", LAN, 1), ("t-6.17", WAN, 100), ("t-6.18", LAN, 100))),
]
