"""How much of the machine's spawn rate is left when 10,000 × /bin/true go through `windfall run`?

Each round runs two bare `posix_spawn` loops side by side, then one `windfall run` in the same environment.  `--rivals`
adds xargs, GNU parallel and HyperQueue's wheel where they are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ENV, ROOT, home, spread

LOOP = """
import os, sys
n = int(sys.argv[1]); env = dict(os.environ)
for _ in range(n):
    os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], env), 0)
"""


def bare(n: int, env: dict[str, str]) -> float:
    """Return the tasks per second of two loops side by side."""
    began = time.perf_counter()
    loops = [subprocess.Popen([sys.executable, "-S", "-c", LOOP, str(n // 2)], env=env) for _ in range(2)]
    for loop in loops:
        loop.wait()
    return n / (time.perf_counter() - began)


def windfall(n: int, env: dict[str, str]) -> float:
    """Return the tasks per second by the command's own clock, without set-up and start of the interpreters."""
    with home() as folder, tempfile.TemporaryDirectory() as cwd:
        got = subprocess.run(
            [sys.executable, "-m", "windfall", "run", "--json", "--sweep", f"x=1..{n}", "--", "/bin/true"],
            env={**env, "WINDFALL_HOME": str(folder)}, cwd=cwd, capture_output=True, text=True, check=False,
        )
        if got.returncode:
            raise SystemExit(got.stderr or got.stdout)
        answer = json.loads(got.stdout)
        assert answer["succeeded"] == n, answer
        return n / answer["elapsed"]


def rivals(n: int, env: dict[str, str]) -> None:
    if shutil.which("xargs"):
        began = time.perf_counter()
        numbers = "\n".join(map(str, range(n)))
        subprocess.run(["xargs", "-P2", "-n1", "/bin/true"], input=numbers, text=True, env=env, check=True)
        print(f"xargs -P2 -n1: {n / (time.perf_counter() - began):,.0f} tasks/s")
    if shutil.which("parallel"):
        few = n // 5
        began = time.perf_counter()
        numbers = "\n".join(map(str, range(few)))
        subprocess.run(["parallel", "-j2", "/bin/true"], input=numbers, text=True, env=env, check=True)
        print(f"GNU parallel: {few / (time.perf_counter() - began):,.0f} tasks/s")
    if importlib.util.find_spec("hyperqueue"):
        _hyperqueue(n)


def _hyperqueue(n: int) -> None:
    """Time HyperQueue, on the local cluster of its wheel, from submission to the end of the last task."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=2))
        client = cluster.client()
        job = Job()
        for _ in range(n):
            job.program(["/bin/true"], stdout=None, stderr=None)
        began = time.perf_counter()
        client.wait_for_jobs([client.submit(job)])
        print(f"HyperQueue: {n / (time.perf_counter() - began):,.0f} tasks/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--rivals", action="store_true")
    options = parser.parse_args()
    env = {k: v for k, v in ENV.items() if k in ("PATH", "HOME", "LANG", "PYTHONPATH", "TMPDIR")}
    floors, ours, ratios = [], [], []
    for _ in range(options.times):
        floor = bare(options.n, env)
        mine = windfall(options.n, env)
        floors.append(floor)
        ours.append(mine)
        ratios.append(mine / floor)
        print(f"  bare {floor:,.0f}/s  windfall {mine:,.0f}/s  ratio {mine / floor:.3f}", flush=True)
    print(f"two bare posix_spawn loops: {spread(floors)} tasks/s")
    print(f"windfall run:               {spread(ours)} tasks/s")
    print(f"ratio: median {statistics.median(ratios):.3f}  [{min(ratios):.3f} … {max(ratios):.3f}] (bar 0.75)")
    if options.rivals:
        rivals(options.n, env)


if __name__ == "__main__":
    assert Path(ROOT, "src").exists() and os.path.exists("/bin/true")
    main()
