"""Many worlds: `python -m tests.property.soak --seeds 1000 --jobs 2` from the repository's root.

A seed that breaks a promise prints the command that replays it: `--seed N`, or `--plan '{…}'`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pool

from .plan import (
    Plan,
    data_plan,
    failing_plan,
    growing_plan,
    hole_plan,
    left_plan,
    policy_plan,
    random_plan,
    repeat_plan,
    replica_plan,
)
from .world import Broken, World, replay

WITH_MORE = 2  # of so many seeds one
MORE: tuple[Callable[[int], Plan], ...] = (
    data_plan, partial(data_plan, sites=True), hole_plan, replica_plan, failing_plan, growing_plan, policy_plan,
    repeat_plan, left_plan,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--plan", help="replay this one")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    args = parser.parse_args()
    if args.plan is not None or args.seed is not None:
        said, _ = play(Plan.parse(args.plan) if args.plan is not None else random_plan(args.seed))
        print(said or "every promise held")
        return 1 if said else 0
    return soak(range(args.first, args.first + args.seeds), args.jobs, args.stop)


def soak(seeds: range, jobs: int, stop: bool) -> int:
    began, done, bad = time.monotonic(), 0, 0
    totals: Counter[str] = Counter()
    for said, counts in _played(seeds, jobs):
        totals.update(counts)
        done += 1
        if said:
            bad += 1
            print(said, flush=True)
            if stop:
                break
    seconds = time.monotonic() - began
    print(f"{done} seeds, {bad} bad, {seconds:.1f} s; {dict(totals)}")
    return 1 if bad else 0


def _played(seeds: range, jobs: int) -> Iterator[tuple[str, dict[str, int]]]:
    if jobs <= 1:
        yield from map(_play_seed, seeds)
        return
    with Pool(jobs) as pool:
        yield from pool.imap(_play_seed, seeds, chunksize=20)


def _play_seed(seed: int) -> tuple[str, dict[str, int]]:
    """Play the world of a seed; for every so many seeds, also a world of one of the kinds in MORE."""
    told, totals = [], Counter[str]()
    for plan in (random_plan(seed), *([MORE[seed // WITH_MORE % len(MORE)](seed)] if seed % WITH_MORE == 0 else ())):
        said, counts = play(plan)
        totals.update(counts)
        if said:
            told.append(f"seed {seed}: {said}")
    return "\n".join(told), dict(totals)


def play(plan: Plan) -> tuple[str, dict[str, int]]:
    """Play a plan; return what went wrong, or nothing, and counts of what happened."""
    try:
        world = World(plan).run()
    except Broken as error:
        return str(error), {}
    except Exception:
        return f"{traceback.format_exc()}replay: {replay(plan)}", {}
    return "", {"crashes": world.server.crashes, "rows": len(world.server.disk.rows), "worlds": 1}


if __name__ == "__main__":
    sys.exit(main())
