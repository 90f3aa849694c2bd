"""`python -m tests.provision.soak [TASKS]`: the whole of `everywhere`, for `scripts/soak sites`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from tests.provision import everywhere
from tests.testbed.base import require


def main() -> int:
    require()
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory(prefix="windfall-sites-") as folder:
        seed = int(os.environ.get("SEED", "0"))  # 0: faults when they usually come
        print(json.dumps(everywhere.run(Path(folder), tasks, 0.4, 300, seed), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
