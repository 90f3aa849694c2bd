"""How fast is the simulator, and how does it grow?

`bench/simulate.py` simulates 2.2 million tasks of 30 minutes on 10,000 hosts of one slot, a tenth of the attempts lost
with their pilot and retried, under a lease of one hour (GridBot's scale; the bar is 5 minutes and 2 GiB on one core).
`--tasks` and `--hosts` make it smaller, `--growth` varies both.  A third of the time goes into accesses to cold memory,
so the allocator matters: `--memory jemalloc` (the default where it is installed) and `glibc` use huge pages, `plain` is
Python's own.  `--replicate tail-safe` replicates late tasks at the end.
"""

from __future__ import annotations

import argparse
import ctypes.util
import gc
import os
import random
import resource
import sys
import time
from typing import NamedTuple

from common import ROOT  # noqa: F401  (puts src/ on the path)
from windfall.core.config import Config
from windfall.sim.world import Work, World

HOUR = 3_600_000
CONF = "thp:always,metadata_thp:always,dirty_decay_ms:-1"
JEMALLOC = ctypes.util.find_library("jemalloc") or ""
MEMORY = {
    "jemalloc": {"PYTHONMALLOC": "malloc", "LD_PRELOAD": JEMALLOC, "MALLOC_CONF": CONF},
    "glibc": {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    "plain": {"PYTHONMALLOC": "pymalloc"},
}


def use_memory(kind: str) -> None:
    """Start this process again with an allocator, which must be chosen before a process starts."""
    if "PYTHONMALLOC" not in os.environ:
        os.execve(sys.executable, sys.orig_argv, os.environ | MEMORY[kind])


def half_an_hour(_task: int, draw: random.Random) -> int:
    return round(draw.expovariate(1 / (HOUR / 2))) + 1


class Taken(NamedTuple):
    """The seconds of a simulation; on a shared machine the processor's say more than the clock's."""

    processor: float
    wall: float


def simulate(tasks: int, hosts: int, sites: int = 1, replicate: str = "none") -> tuple[Taken, World]:
    world = World(1, Config(lease=HOUR, park=HOUR * 5 // 6, deaths=200, idle=1 << 40))
    for number in range(sites):
        world.site(f"site{number}")
        world.pilots(f"site{number}", hosts // sites, loses=0.1)
    world.submit(Work(tasks, half_an_hour, retries=100, replicate=replicate))
    gc.collect()
    gc.freeze()
    gc.disable()
    began = time.process_time(), time.perf_counter()
    world.run()
    taken = Taken(time.process_time() - began[0], time.perf_counter() - began[1])
    gc.enable()
    return taken, world


def tell(tasks: int, hosts: int, sites: int = 1, replicate: str = "none") -> None:
    taken, world = simulate(tasks, hosts, sites, replicate)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{tasks:>9,} tasks, {hosts:>6,} hosts, {sites:>3} sites: {taken.processor:6.1f} s of processor "
        f"({taken.wall:.1f} s by the clock), {taken.processor / tasks * 1e6:5.0f} µs a task, "
        f"{world.engine.events / taken.processor:,.0f} events/s, {world.server.exchanges:,} exchanges, "
        f"{world.tally.lost / world.tally.attempts:.1%} lost, "
        f"{world.engine.now / HOUR:,.0f} h, {memory} MiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2_200_000)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--replicate", default="none", metavar="PRESET", help="e.g. tail-safe")
    parser.add_argument("--memory", choices=MEMORY, default="jemalloc" if JEMALLOC else "glibc")
    options = parser.parse_args()
    if options.memory == "jemalloc" and not JEMALLOC:
        parser.error("jemalloc is not installed here (Debian: libjemalloc2); --memory glibc goes without it")
    use_memory(options.memory)
    print(f"memory by {options.memory}", flush=True)
    if not options.growth:
        tell(options.tasks, options.hosts, replicate=options.replicate)
        return
    for tasks in (10_000, 100_000, 300_000):
        tell(tasks, 1_000)
    for hosts in (10, 100, 1_000, 10_000):
        tell(100_000, hosts)
    for sites in (1, 10, 100):
        tell(100_000, 1_000, sites)


if __name__ == "__main__":
    main()
