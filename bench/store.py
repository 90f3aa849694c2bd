"""How long does a commit take?

A commit is one durable append of a group of facts.  Three stores flush each commit before they acknowledge it: a file
of our own with `fdatasync`, SQLite as `store/journal.py` sets it up, LMDB (`pip install lmdb`).  The stores take turns,
round by round, so that a busy disk slows all of them alike.

    python bench/store.py [--rounds 7] [--commits 1000] [--warm-up 2000] [--directory DIR]

SQLite's log grows at first and is overwritten later, which is cheaper; `--warm-up 0` measures a fresh journal, the
default a journal in use.

"rest" is the processor time of a commit without its flush: the cost of the store to the server's loop.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from windfall.store.journal import Journal

BODIES = {"1 report (200 B)": 200, "100 reports (2.5 kB)": 2_500, "a large grant (50 kB)": 50_000}

Append = Callable[[bytes], object]


@contextmanager
def own_file(directory: Path, flush: bool) -> Iterator[Append]:
    descriptor = os.open(directory / "own", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def append(body: bytes) -> None:
        os.write(descriptor, len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body)
        if flush:
            os.fdatasync(descriptor)

    yield append
    os.close(descriptor)


@contextmanager
def sqlite(directory: Path, flush: bool) -> Iterator[Append]:
    journal = Journal.open(directory / "journal.db")
    if not flush:
        journal._connection.execute("PRAGMA synchronous = OFF")
    yield lambda body: journal.append(1, body)
    journal.close()


@contextmanager
def lmdb(directory: Path, flush: bool) -> Iterator[Append]:
    import lmdb as driver

    (directory / "lmdb").mkdir()
    environment = driver.open(str(directory / "lmdb"), map_size=4 << 30, sync=flush, metasync=flush)
    position = 0

    def append(body: bytes) -> None:
        nonlocal position
        position += 1
        with environment.begin(write=True) as transaction:
            transaction.put(position.to_bytes(8, "big"), zlib.crc32(body).to_bytes(4, "little") + body, append=True)

    yield append
    environment.close()


def ways() -> dict[str, Callable[[Path, bool], object]]:
    found: dict[str, Callable[[Path, bool], object]] = {"own file, fdatasync": own_file, "SQLite, WAL, FULL": sqlite}
    try:
        import lmdb as _  # noqa: F401
    except ImportError:
        print("LMDB is not installed: left out")
    else:
        found["LMDB"] = lmdb
    return found


def measure(way, body: bytes, given: argparse.Namespace, flush: bool) -> tuple[list[float], float]:
    """Return the seconds of every commit, and the processor seconds of one."""
    with tempfile.TemporaryDirectory(dir=given.directory) as name, way(Path(name), flush) as append:
        for _ in range(given.warm_up):
            append(body)
        cpu, last, times = time.thread_time(), time.perf_counter(), []
        for _ in range(given.commits):
            append(body)
            now = time.perf_counter()
            times.append(now - last)
            last = now
        return times, (time.thread_time() - cpu) / given.commits


def table(given: argparse.Namespace) -> None:
    print("| commit of | store | commits/s, median of rounds (least – most) | p50 µs | p99 µs | rest µs |")
    print("|---|---|---|---|---|---|")
    found = ways()
    for label, size in BODIES.items():
        body = os.urandom(size)
        rates: dict[str, list[float]] = {name: [] for name in found}
        every: dict[str, list[float]] = {name: [] for name in found}
        rest: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(given.rounds):
            for name, way in found.items():
                times, _ = measure(way, body, given, flush=True)
                rates[name].append(given.commits / sum(times))
                every[name] += times
                rest[name].append(measure(way, body, given, flush=False)[1])
        for name in found:
            print(row(label, name, rates[name], sorted(every[name]), rest[name]))


def row(label: str, name: str, rates: list[float], times: list[float], rest: list[float]) -> str:
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    return (
        f"| {label} | {name} | {statistics.median(rates):,.0f} ({min(rates):,.0f} – {max(rates):,.0f}) "
        f"| {p50 * 1e6:.0f} | {p99 * 1e6:.0f} | {statistics.median(rest) * 1e6:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=2000, help="commits before the measured ones")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    table(parser.parse_args())


if __name__ == "__main__":
    main()
