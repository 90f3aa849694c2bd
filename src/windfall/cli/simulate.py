"""`windfall simulate`: what would happen, in virtual time.

A log of jobs (`--swf`) goes through a model of a batch queue, and its waits are told.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import BadInput
from .output import plural, print_json

EXAMPLES = """examples:
  windfall simulate --swf log.swf.gz --discipline fcfs
  windfall simulate --swf log.swf --procs 128 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--swf", metavar="FILE", type=Path, help="a log of jobs in Standard Workload Format, or .gz")
    parser.add_argument("--procs", metavar="N", type=int, help="processors of the machine (what the log's header says)")
    parser.add_argument("--discipline", choices=("easy", "fcfs"), default="easy", help="of its batch queue")


def execute(args: argparse.Namespace) -> int:
    if args.swf is None:
        raise BadInput("simulate what?", "windfall simulate --swf FILE")
    return _log(args)


def _log(args: argparse.Namespace) -> int:
    from ..sim import swf
    from ..sim.replay import replay

    procs = args.procs if args.procs is not None else swf.processors(args.swf)
    if procs is None:
        raise BadInput(f"{args.swf} does not say how many processors its machine has", "say it: --procs N")
    found = replay(swf.read(args.swf), procs, args.discipline)
    answer = {
        "jobs": found.jobs, "mean_wait": found.mean_wait, "mean_bounded_slowdown": found.mean_bounded_slowdown,
        "procs": procs, "discipline": args.discipline,
    }
    if args.json:
        print_json(answer)
    else:
        print(f"{plural(found.jobs, 'job')} on {procs:,} processors, {args.discipline}")
        print(f"mean wait              {found.mean_wait:,.2f} s")
        print(f"mean bounded slowdown  {found.mean_bounded_slowdown:,.4f}")
    return 0
