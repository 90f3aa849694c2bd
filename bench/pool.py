"""How much faster do short tasks end on an HTCondor pool through pilots than as jobs of their own?

The benchmark repeats GridBot's g-c on a real pool: 3,000 tasks of 0.1 to 1 s, one way after the other.  With few slots
the tasks themselves take most of the time, and little can be won: with eight slots not even a factor of 1.5.  It needs
the testbed (`tests/testbed/install`), and root.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from common import ROOT

BAR = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=3_000)
    parser.add_argument("--slots", type=int, default=64)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.provision import shorts
    from tests.testbed.base import require

    require()
    with tempfile.TemporaryDirectory(prefix="windfall-pool-") as folder:
        seen = shorts.run(Path(folder), options.tasks, options.slots)
    print(f"{seen.tasks:,} tasks of 0.1 to 1 s on {seen.slots} slots; {seen.least:.1f} s at least")
    for name, way in (("jobs of their own", seen.direct), ("through pilots", seen.pilots)):
        rate, each = seen.tasks / way.seconds, 1_000 * way.processor / seen.tasks
        print(f"{name:18} {way.seconds:8.1f} s  {rate:6.1f} tasks/s  {way.seconds / seen.least:5.2f} × the least, "
              f"{each:5.1f} ms of processor a task")
    print(f"ratio {seen.ratio:.2f} (bar {BAR:g})")


if __name__ == "__main__":
    main()
