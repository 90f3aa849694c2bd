"""How many tasks a second does the server grant, and take the results of, durably, over TLS?

    python bench/dispatch.py            the three bars
    python bench/dispatch.py --growth   rates by the number of pilots, queued tasks and bags
    python bench/dispatch.py --policies 50 bags, each with expressions
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing as mp
import time
from typing import NamedTuple

from common import Server, raise_file_limit, server, spread


class Load(NamedTuple):
    """The load of one measurement."""

    pilots: int
    want: int  # tasks per grant
    goal: int  # tasks to finish
    queued: int = 0  # tasks queued at the start, at least
    bags: int = 1
    policy: dict[str, str] = {}


def _farm(profile: dict, token: str, load: Load, out: mp.Queue) -> None:  # type: ignore[type-arg]
    import gc

    from nullpilots import Farm, run

    raise_file_limit()

    async def main() -> None:
        farm = Farm(profile, token, load.pilots, load.want, cores=load.want)
        await farm.enrol()
        gc.freeze()
        gc.disable()
        farm.goal = max(load.goal // 10, 1)
        farm.start()
        await farm.reached.wait()  # warm
        farm.reached.clear()
        began, tasks = time.perf_counter(), farm.tasks
        farm.goal = tasks + load.goal
        await farm.reached.wait()
        out.put((farm.tasks - tasks) / (time.perf_counter() - began))
        farm.stopped = True
        await asyncio.sleep(0.05)

    run(main())


def measure(s: Server, load: Load) -> float:
    """Return the tasks per second that the server finishes under a load."""
    client = s.client()
    client.add_site("null", "null")
    token = client.add_token("enrol", site="null")["token"]
    from windfall.model.spec import Bag, Policy, Range, Sweep, Target

    each = max(load.queued, int(load.goal * 1.3) + load.pilots * load.want * 4) // load.bags + 1
    for i in range(load.bags):
        sweep = Sweep(axes=[Range(name="x", first=1, last=each)])
        target = Target(command=["/bin/echo", "{x}"], source=sweep)
        own = {key: text.format(n=i % 7) for key, text in load.policy.items()}
        client.submit(Bag(name=f"null-{i}", targets=[target], policy=Policy(**own)))
    out: mp.Queue[float] = mp.get_context("spawn").Queue()
    process = mp.get_context("spawn").Process(target=_farm, args=(s.profile, token, load, out))
    cpu = s.cpu()
    process.start()
    rate = out.get(timeout=300)
    process.join(20)
    print(f"      server: {(s.cpu() - cpu):.2f} s CPU, {s.rss() >> 20} MiB", flush=True)
    return rate


BARS = ((10, 10, 40_000, 200_000), (100, 1, 8_000, 40_000), (10, 100, 150_000, 600_000))


def bars(times: int) -> None:
    for pilots, want, bar, goal in BARS:
        rates = []
        for _ in range(times):
            with server() as s:
                rates.append(measure(s, Load(pilots, want, goal)))
        print(f"{pilots} connections, grants of {want}: {spread(rates)} tasks/s (bar {bar:,})", flush=True)


POLICIES = {
    "none": {},
    "of hosts only": {"requirements": "Host.Memory >= 1 && (Host.ErrorRate is undefined || Host.ErrorRate < 0.5)",
                      "rank": "{n} - Host.Attempts / 1000000.0"},
    "of changing attributes": {"requirements": "!Tail || Host.ErrorRate is undefined || Host.ErrorRate < 0.5",
                               "rank": "{n} + Host.Load - Bag.JobsLeft / 1000000.0"},
}
MINUTE_OF_TASKS = 150_000  # enough for a minute at twice the bar's rate, in which the core publishes hosts anew


def policies(times: int) -> None:
    for name, policy in POLICIES.items():
        rates = []
        for _ in range(times):
            with server() as s:
                rates.append(measure(s, Load(100, 1, MINUTE_OF_TASKS, bags=50, policy=policy)))
        print(f"50 bags, expressions {name}, grants of 1: {spread(rates)} tasks/s (bar 2,000)", flush=True)


def growth() -> None:
    for pilots in (1, 10, 100, 1_000, 10_000):
        with server() as s:
            print(f"{pilots} pilots, grants of 10: {measure(s, Load(pilots, 10, 100_000)):,.0f} tasks/s", flush=True)
    for queued in (10**3, 10**5, 10**7):
        with server() as s:
            print(f"{queued} queued: {measure(s, Load(10, 10, 100_000, queued=queued)):,.0f} tasks/s", flush=True)
    for bags in (1, 10, 100, 1_000):
        with server() as s:
            print(f"{bags} bags: {measure(s, Load(10, 10, 100_000, bags=bags)):,.0f} tasks/s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    raise_file_limit()
    if options.growth:
        growth()
    else:
        policies(options.times) if options.policies else bars(options.times)
