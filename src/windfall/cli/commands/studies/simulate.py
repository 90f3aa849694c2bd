"""`windfall simulate`: play a scenario, an ended bag or a log of jobs in virtual time.

The core that serves live users also decides for a scenario (TOML), and for an ended bag (`--replay`), as it was or with
changes.  A log of jobs (`--swf`) goes through a model of a batch queue, and the command prints the waits.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windfall.cli.present.output import duration, print_json, print_table, shown
from windfall.errors import BadInput
from windfall.model.units import plural

if TYPE_CHECKING:
    from windfall.sim.scenario import Scenario

EXAMPLES = """examples:
  windfall simulate examples/scenarios/two-clusters.toml -o plots
  windfall simulate scenario.toml --seeds 20 --json
  windfall simulate --replay 7 --select sjf
  windfall simulate --swf log.swf.gz --discipline fcfs"""
MAX_SEEDS = 10_000
REDRAW = 0.2  # seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="SCENARIO", nargs="?", type=Path, help="a scenario file (TOML)")
    parser.add_argument("--seed", metavar="N", type=int, help="the first seed (default: the scenario's, or 1)")
    parser.add_argument("--seeds", metavar="N", type=int, default=1, help="play it with N seeds, one after the other")
    parser.add_argument("-o", dest="directory", metavar="DIR", type=Path,
                        help="write tables, a Gantt chart and plots to DIR; with --swf, every job's wait")
    parser.add_argument("--replay", metavar="BAG", help="play an ended bag again, or the .json of an --export")
    parser.add_argument("--select", metavar="POLICY", help="with --replay: what if this policy had chosen the tasks?")
    for key in ("requirements", "rank", "replicate", "per-host"):
        parser.add_argument(f"--{key}", metavar="EXPR", help=f"with --replay: what if this had been its {key}?")
    parser.add_argument("--sites", metavar="FILE", type=Path,
                        help="with --replay: what if the bag had run at these sites (TOML)?")
    parser.add_argument("--provision", metavar="POLICY",
                        help="with --sites: what if this policy had started the pilots?")
    parser.add_argument("--export", metavar="BAG", help="write what --replay needs of an ended bag, as JSON (-o FILE)")
    parser.add_argument("--swf", metavar="FILE", type=Path, help="a log of jobs in Standard Workload Format, or .gz")
    parser.add_argument("--procs", metavar="N", type=int,
                        help="processors of the machine (default: by the log's header)")
    parser.add_argument("--discipline", choices=("easy", "fcfs"), default="easy",
                        help="discipline of its batch queue (default: easy)")


def execute(args: argparse.Namespace) -> int:
    ways = {"scenario": _scenario, "swf": _log, "replay": _replay, "export": _export}
    named = [name for name in ways if getattr(args, name) is not None]
    if len(named) != 1:
        raise BadInput("there is not one thing to simulate",
                       "windfall simulate SCENARIO, or one of --replay, --export and --swf")
    of_replay = ("select", "sites", "provision", "requirements", "rank", "replicate", "per-host")
    for option, needs in (*((option, "replay") for option in of_replay), ("procs", "swf")):
        if getattr(args, option.replace("-", "_")) is not None and needs not in named:
            raise BadInput(f"--{option} goes with --{needs}")
    return ways[named[0]](args)


def _replay(args: argparse.Namespace) -> int:
    from windfall.cli.commands.studies.replay import replay
    from windfall.model.bagfile import words
    from windfall.sim.scenario_words import PROVISION

    if args.select is not None:
        words.select(args.select, "--select")
    if args.provision is not None:
        words.one_of(*PROVISION)(args.provision, "--provision")
    return replay(args)


def _export(args: argparse.Namespace) -> int:
    from windfall.cli.commands.studies.replay import export

    return export(args)


# --- a scenario ------------------------------------------------------------------------------------------------------


def _scenario(args: argparse.Namespace) -> int:
    from windfall.sim import scenario

    if not 1 <= args.seeds <= MAX_SEEDS:
        raise BadInput(f"--seeds must be from 1 to {MAX_SEEDS:,}, not {args.seeds:,}")
    if args.seed is not None and not 0 <= args.seed < 1 << 62:
        raise BadInput(f"--seed must be from 0 to 2^62 - 1, not {args.seed}")
    found = scenario.load(args.scenario)
    first = found.seed if args.seed is None else args.seed
    if not args.json:
        print(f"{found.name}: {plural(found.tasks, 'task')}, {plural(args.seeds, 'run')}\n", flush=True)
    runs = [_play(found, seed, args) for seed in range(first, first + args.seeds)]
    if args.json:
        print_json({"name": found.name, "tasks": found.tasks, "runs": runs})
    else:
        _tell(runs)
        if args.directory is not None:
            print(f"\ntables and plots are in {args.directory}")
    return 0 if all(run["finished"] for run in runs) else 1


def _play(found: Scenario, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    from windfall.sim import pages
    from windfall.sim.play import Run

    run = Run(found, seed)
    bar = _Bar(found.name, found.tasks, args.json)
    record = run.play(bar)
    bar.finish()
    if args.directory is not None:
        pages.write(record, args.directory if args.seeds == 1 else args.directory / f"seed-{seed}")
    world = run.world
    return {"seed": seed, "time": world.engine.now, "finished": run.finished, "why": run.why,
            "events": world.engine.events, "exchanges": world.server.exchanges, "bags": run.summaries()}


class _Bar:
    """Shows on a terminal how far a run is."""

    def __init__(self, name: str, tasks: int, quiet: bool) -> None:
        self.name, self.tasks = name, tasks
        self._shown = not quiet and sys.stderr.isatty()
        self._next, self._drawn = time.monotonic() + REDRAW, False

    def __call__(self, now: int, done: int) -> None:
        if self._shown and time.monotonic() >= self._next:
            self._next, self._drawn = time.monotonic() + REDRAW, True
            sys.stderr.write(f"\r{self.name[:20]}  {done:,}/{self.tasks:,} tasks  {duration(now)}\x1b[K")
            sys.stderr.flush()

    def finish(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")


COLUMNS = (
    ("tasks", lambda bag: f"{bag['accepted']:,}/{bag['tasks']:,}"), ("attempts", lambda bag: bag["attempts"]),
    ("failed", lambda bag: bag["failures"]), ("makespan", lambda bag: duration(bag["wall_clock"])),
    ("queuing", lambda bag: duration(round(bag["queuing_average"]))),
    ("longest", lambda bag: duration(bag["queuing_longest"])), ("real time", lambda bag: duration(bag["real"])),
    ("redundant", lambda bag: duration(bag["redundant"])), ("speed-up", lambda bag: f"{bag['speed_up']:.2f}"),
    ("sites", lambda bag: ", ".join(site["name"] for site in bag["sites"])),
)  # fmt: skip


def _tell(runs: list[dict[str, Any]]) -> None:
    rows = [[bag["name"], run["seed"], *(cell(bag) for _, cell in COLUMNS)] for run in runs for bag in run["bags"]]
    print_table(["bag", "seed", *(title for title, _ in COLUMNS)], rows, right=range(1, 11))
    late = [run for run in runs if not run["finished"]]
    for run in late[:5]:
        print(f"\nseed {run['seed']}: not everything had ended after {duration(run['time'])}"
              + (f"; {shown(run['why'], 1000)}" if run["why"] else ""))
    if len(runs) > 1:
        _means(runs)


def _means(runs: list[dict[str, Any]]) -> None:
    from statistics import fmean, stdev

    print()
    for name in dict.fromkeys(bag["name"] for run in runs for bag in run["bags"]):
        spans = [bag["wall_clock"] for run in runs for bag in run["bags"] if bag["name"] == name]
        off = f" ± {duration(round(stdev(spans)))}" if len(spans) > 1 else ""
        print(f"{name}: makespan {duration(round(fmean(spans)))}{off}, "
              f"from {duration(min(spans))} to {duration(max(spans))}")


# --- a log -----------------------------------------------------------------------------------------------------------


def _log(args: argparse.Namespace) -> int:
    from windfall.sim.models import swf
    from windfall.sim.replay import replay, write_waits

    procs = args.procs if args.procs is not None else swf.processors(args.swf)
    if procs is None:
        raise BadInput(f"{args.swf} does not say how many processors its machine has", "give the number with --procs N")
    jobs = swf.read(args.swf)
    found = replay(jobs, procs, args.discipline)
    file = write_waits(jobs, found, args.directory) if args.directory is not None else None
    answer = {
        "jobs": found.jobs, "mean_wait": found.mean_wait, "mean_bounded_slowdown": found.mean_bounded_slowdown,
        "procs": procs, "discipline": args.discipline, **({"waits": str(file)} if file else {}),
    }
    if args.json:
        print_json(answer)
    else:
        print(f"{plural(found.jobs, 'job')} on {procs:,} processors, {args.discipline}")
        print(f"mean wait              {found.mean_wait:,.2f} s")
        print(f"mean bounded slowdown  {found.mean_bounded_slowdown:,.4f}")
        if file is not None:
            print(f"every job's wait is in {file}")
    return 0
