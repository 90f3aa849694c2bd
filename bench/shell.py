"""How long does `./windfall run` of one trivial task take, from shell to shell, warm installation?"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time

from common import ENV, ROOT, home, spread


def once(folder: str) -> float:
    env = {k: v for k, v in ENV.items() if k != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as cwd:
        began = time.perf_counter()
        subprocess.run([str(ROOT / "windfall"), "run", "--", "/bin/true"], env={**env, "WINDFALL_HOME": folder},
                       cwd=cwd, check=True, capture_output=True)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15)
    options = parser.parse_args()
    with home() as folder:
        once(str(folder))
        times = [once(str(folder)) * 1000 for _ in range(options.times)]
    print(f"shell to shell, same home: {spread(times)} ms (bar 350)")
    fresh = []
    for _ in range(options.times):
        with home() as folder:
            fresh.append(once(str(folder)) * 1000)
    print(f"shell to shell, new home:  {spread(fresh)} ms")


if __name__ == "__main__":
    main()
