"""Many worlds: `python -m tests.property.soak --seeds 1000` from the repository's root; `--plan '{…}'` replays one."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from .plan import Plan, random_plan
from .world import Broken, World


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--plan", help="replay this one")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    args = parser.parse_args()
    if args.plan:
        World(Plan.parse(args.plan)).run()
        print("every promise held")
        return 0
    return soak(range(args.first, args.first + args.seeds), args.stop)


def soak(seeds: range, stop: bool) -> int:
    began, bad = time.monotonic(), 0
    totals: Counter[str] = Counter()
    for seed in seeds:
        try:
            world = World(random_plan(seed)).run()
        except Broken as error:
            bad += 1
            print(f"seed {seed}: {error}", flush=True)
        except Exception:
            bad += 1
            print(f"seed {seed}: {random_plan(seed).text()}")
            traceback.print_exc()
        else:
            totals.update(crashes=world.server.crashes, rows=len(world.server.disk.rows), worlds=1)
        if bad and stop:
            break
    seconds = time.monotonic() - began
    print(f"{len(seeds)} seeds, {bad} bad, {seconds:.1f} s; {dict(totals)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
