"""Run the command line: `python -m windfall`."""

import gc
import sys

gc.set_threshold(100_000, 20, 20)  # imports and results make many objects and hardly any cycles

from windfall.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
