"""How many Python calls a second go through `Executor`, each of them durable?  How much does a future cost?

The server has a pilot of its own and listens on its Unix socket; a bare process pool runs the same calls in the same
run.  Processor time per call is shown for each process.  `--futures N` measures `as_completed` alone, over N futures
that the benchmark settles itself.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gc
import os
import resource
import tempfile
import time
from pathlib import Path

import psutil

from common import Server


def processor_time() -> dict[str, float]:
    """Return the processor seconds by kind of process: the server, the pilot's processes by depth, the client."""
    found: dict[str, float] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            times, words = process.cpu_times(), " ".join(process.cmdline())
        except psutil.Error:
            continue
        kind = "runners" if "runner.py" in words else "server" if " serve" in words else f"pilot {_depth(process)}"
        found[kind] = found.get(kind, 0.0) + times.user + times.system
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found["client"] = usage.ru_utime + usage.ru_stime
    return found


def _depth(process: psutil.Process) -> int:
    return len(process.parents())


def timed(name: str, count: int, function) -> float:  # type: ignore[no-untyped-def]
    before, began = processor_time(), time.perf_counter()
    function()
    took, after = time.perf_counter() - began, processor_time()
    spent = {key: (after[key] - before.get(key, 0.0)) / count * 1e6 for key in after}
    print(f"{name}: {count / took:,.0f}/s  ({took:.2f} s for {count:,})", flush=True)
    print("    µs of processor per call: " + ", ".join(f"{key} {spent[key]:.1f}" for key in sorted(spent)), flush=True)
    return count / took


def submitted(executor: concurrent.futures.Executor, count: int) -> None:
    futures = [executor.submit(int) for _ in range(count)]
    for future in futures:
        future.result()


def mapped(executor: concurrent.futures.Executor, count: int, **more: int) -> None:
    assert sum(1 for _ in executor.map(abs, range(count), **more)) == count


def calls(options: argparse.Namespace) -> None:
    from windfall import Executor

    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), tls=False, pilot=True)
        try:
            with Executor(server.profile) as executor:
                submitted(executor, 2000)
                for _ in range(options.repeat):
                    timed("submit", options.n, lambda: submitted(executor, options.n))
                timed("map", options.map, lambda: mapped(executor, options.map))
        finally:
            server.process.terminate()
            server.process.wait(20)
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        submitted(pool, 500)
        timed("a process pool, submit", options.n, lambda: submitted(pool, options.n))


def futures_alone(count: int) -> None:
    """Measure futures that another thread settles in batches of a thousand, as results come."""
    import threading

    from windfall import as_completed
    from windfall.client.functions.futures import CallFuture, settle

    class Dispatcher:
        condition = threading.Condition()

    def settle_all() -> None:
        for start in range(0, count, 1000):
            with Dispatcher.condition:
                for future in made[start : start + 1000]:
                    settle(future, None, None)
                Dispatcher.condition.notify_all()

    gc.collect()
    before = _resident()
    made = [CallFuture(Dispatcher) for _ in range(count)]  # type: ignore[arg-type]
    size = (_resident() - before) / count
    thread = threading.Thread(target=settle_all)
    began = time.perf_counter()
    thread.start()
    assert sum(1 for _ in as_completed(made)) == count
    took = time.perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{count:,} futures: {size:.0f} bytes each, {(most - before) / count:.0f} at the most while waited for; "
          f"as_completed {took / count * 1e6:.2f} µs each")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=20_000)
    parser.add_argument("--map", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--futures", type=int, default=0)
    options = parser.parse_args()
    if options.futures:
        futures_alone(options.futures)
    else:
        calls(options)


if __name__ == "__main__":
    main()
