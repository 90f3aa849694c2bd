"""How long does it take to match the demand of many bags to the limits of many sites?

`bench/matching.py` matches 10 × 4, 100 × 20 and 1,000 × 100 classes and sites.  Seven of ten pairs are possible, demand
exceeds room, and a pilot has 1 to 16 slots.
"""

from __future__ import annotations

import random
import time

from common import ROOT  # noqa: F401  (puts src/ on the path)
from windfall.core.decide.provision.matching import spread


def problem(classes: int, sites: int) -> tuple[list[int], list[int], dict[tuple[int, int], int]]:
    r = random.Random(1)
    left, rooms = [r.randrange(1, 2_000) for _ in range(classes)], [r.randrange(1, 500) for _ in range(sites)]
    slots = {(s, c): r.choice((1, 2, 4, 8, 16)) for s in range(sites) for c in range(classes) if r.random() < 0.7}
    return left, rooms, slots


def main() -> None:
    spread([2, 2], [1], {(0, 0): 1, (0, 1): 1})  # loads the library
    for classes, sites in ((10, 4), (100, 20), (1_000, 100)):
        left, rooms, slots = problem(classes, sites)
        began = time.perf_counter()
        found = spread(left, rooms, slots)
        taken = time.perf_counter() - began
        print(f"{classes:>6} classes × {sites:>3} sites: {taken * 1000:7.1f} ms, {sum(found.values()):,} of "
              f"{sum(left):,} slots")


if __name__ == "__main__":
    main()
