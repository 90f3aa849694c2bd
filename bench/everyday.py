"""On a server with ten million finished tasks, how long do `ls`, `show` and `results | head` take, shell to shell?

The home is made without a real pilot: the core gets the exchanges of a pilot that reports at once, and its facts go
through the journal and the views as always.  `bench/everyday.py 1000000` makes a smaller home.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from common import ENV, Server, home, repeat, spread

CORES = 4_000
BAR_MS = 300
FAILING = 33  # one in so many fails


def fill(folder: Path, tasks: int) -> int:
    """Fill a home with finished bags of a million tasks; return the number of the last bag."""
    from windfall.core.config import Config
    from windfall.core.decide.requests.intake import submission
    from windfall.core.messages import events as e
    from windfall.core.step import Core
    from windfall.model.spec import Bag, Range, Sweep, Target
    from windfall.server.local.data_folder import user
    from windfall.store import codec
    from windfall.store.journal import Journal
    from windfall.store.views import Views

    core, journal = Core(Config()), Journal.open(folder / "journal.db")
    views = Views.open(folder / "views.db", journal.identity, journal.position)
    now, owner = int(time.time() * 1000) - 3_600_000, user()

    def step(event: e.Event):  # type: ignore[no-untyped-def]
        nonlocal now
        now += 1
        made = core.step(now, [event])
        if made.facts:
            views.project(journal.append(now, codec.encode(made.facts)), made.facts)
        return made.effects[0]

    step(e.AddSite(1, "filling", owner, "local"))
    pilot = step(e.Enrol(1, site="filling", nonce="n", host="h", host_name="host", cores=CORES, memory=1 << 40, gpus=0,
                         disk=0, left=None, token=b"t" * 32)).pilot
    bag = 0
    for first in range(0, tasks, 1_000_000):
        count = min(1_000_000, tasks - first)
        sweep = Sweep(axes=[Range(name="x", first=first, last=first + count - 1)])
        target = Target(command="simulate {x}", source=sweep, retries=0)
        bag = step(submission(1, owner, Bag(name=f"part-{first}", targets=[target]))).value
        seq = 0
        while True:
            seq += 1
            answer = step(e.Exchange(1, pilot, 1, seq, core.state.pilots[pilot].granted, want=CORES))
            held = [a for _, groups in answer.grants for g in groups for a in g.attempts]
            if not held:
                break
            bad, good = held[::FAILING], [a for place, a in enumerate(held) if place % FAILING]
            step(e.Exchange(1, pilot, 1, seq, 1 << 40, reports=[e.Report(a, wall=1_000 + a % 977) for a in good]))
            step(e.Exchange(1, pilot, 1, seq, 1 << 40, reports=[
                e.Report(a, "failed", "exit", exit=1 + a % 6, wall=50) for a in bad]))
    step(e.Exchange(1, pilot, 1, 1 << 30, 1 << 40, bye="stopped"))
    views.close()
    meta, chunks, drop = core.snapshot()
    journal.save_snapshot(journal.position, meta, chunks, drop)
    journal.close()
    return bag


def shell(folder: Path, line: str) -> float:
    """Run a command line in a shell; return its milliseconds."""
    env = {**ENV, "WINDFALL_HOME": str(folder)}
    began = time.perf_counter()
    subprocess.run(["/bin/sh", "-c", line.replace("windfall", f"{sys.executable} -m windfall", 1)], env=env, check=True,
                   stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with home() as folder:
        began = time.perf_counter()
        bag = fill(folder, tasks)
        size = sum(file.stat().st_size for file in folder.iterdir()) >> 20
        print(f"{tasks:,} tasks done in {time.perf_counter() - began:.0f} s, {size:,} MiB", flush=True)
        began = time.perf_counter()
        server = Server(folder, tls=False)
        print(f"serving after {time.perf_counter() - began:.2f} s, {server.rss() >> 20} MiB", flush=True)
        try:
            for line in (
                "windfall ls", f"windfall show {bag}", f"windfall results {bag} | head",
                f"windfall results {bag} --state failed | head", f"windfall results {bag} --csv | head -1",
            ):
                first, *more = repeat(6, lambda line=line: shell(folder, line))  # type: ignore[misc]
                print(f"{line:42} first {first:6.0f} ms, then {spread(more)} ms (bar {BAR_MS})", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
