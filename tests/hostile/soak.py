"""The fuzzers of the API at length: `python -m tests.hostile.soak REQUESTS SEED`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.hostile import boundaries, by_document, liars, raw_bytes
from tests.hostile.ground import ground, watching

IDLE_S = 3.0  # in which the machine's own delays show


def main(most: int, seed: int) -> None:
    for fuzzer in (boundaries, by_document, raw_bytes, liars):
        with tempfile.TemporaryDirectory() as folder, ground(Path(folder) / "home", seed) as made:
            before = made.memory()
            with watching(made.caller.profile) as idle:
                time.sleep(IDLE_S)
            with watching(made.caller.profile) as times:
                count = fuzzer.run(made, most)
            print(f"{fuzzer.__name__}, seed {seed}: {count:,} requests; slowest answer to another client "
                  f"{times[-1] * 1000:.0f} ms (without the fuzzer {idle[-1] * 1000:.0f} ms); "
                  f"memory {before >> 20} to {made.memory() >> 20} MiB", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
