"""How much longer does a graph take than a list schedule of it that costs nothing?

`bench/graphs.py [FILE.json …]` runs graphs as `sleep` tasks of 100 ms on 2 slots: a chain, forks and joins, random
graphs, and recorded workflows.  A list schedule gives the first free slot to the first task that may begin, and takes
no time to do so.  The makespan is compared with two list schedules: one of tasks of 100 ms, and one of tasks as long as
the pilot reports, which excludes the time to start `sleep`.  The bar is 5 %.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import ENV, Server, home, spread

SECONDS, SLOTS = 0.1, 2


def synthetic() -> dict[str, dict[str, list[str]]]:
    """Return the parents of each task in each graph."""
    draw = random.Random(1)
    chain = {f"t{n}": [f"t{n - 1}"] if n else [] for n in range(30)}
    forks: dict[str, list[str]] = {"t0": []}
    for block in range(6):
        first = f"t{len(forks) - 1}"
        wide = [f"t{len(forks) + n}" for n in range(10)]
        forks.update({name: [first] for name in wide})
        forks[f"t{len(forks)}"] = wide
    mixed = {f"t{n}": [f"t{m}" for m in draw.sample(range(n), min(n, draw.choice((0, 1, 2, 3))))] for n in range(120)}
    return {"chain of 30": chain, "6 forks of 10": forks, "random, 120": mixed}


def instance(name: str, parents: dict[str, list[str]]) -> bytes:
    tasks = [{"name": task, "id": task, "parents": before, "children": []} for task, before in parents.items()]
    return json.dumps({"name": name, "schemaVersion": "1.5", "workflow": {"specification": {"tasks": tasks}}}).encode()


def ideal(edges: list[tuple[int, int]], seconds: list[float]) -> float:
    """Return the makespan of the list schedule."""
    after: dict[int, list[int]] = {}
    pending = [0] * len(seconds)
    for a, b in edges:
        after.setdefault(a, []).append(b)
        pending[b] += 1
    ready = [task for task, count in enumerate(pending) if not count]
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < SLOTS:
            task = heapq.heappop(ready)
            heapq.heappush(running, (now + seconds[task], task))
        now, task = heapq.heappop(running)
        for other in after.get(task, ()):
            pending[other] -= 1
            if not pending[other]:
                heapq.heappush(ready, other)
    return now


@contextmanager
def two_slots() -> Iterator[Server]:
    with home() as folder:
        server = Server(folder, tls=False)
        environment = {**ENV, "WINDFALL_HOME": str(folder)}
        windfall = [sys.executable, "-m", "windfall"]
        ticket = str(folder / "ticket.json")
        subprocess.run([*windfall, "token", "add", "--scope", "enrol", "--site", "two", "-o", ticket], check=True,
                       env=environment, stdout=subprocess.DEVNULL)
        pilot = subprocess.Popen([*windfall, "pilot", "--ticket", ticket, "--cores", str(SLOTS), "--dir",
                                  str(folder / "pilot"), "--quiet"], env=environment)
        try:
            yield server
        finally:
            pilot.terminate()
            pilot.wait(30)
            server.stop()


def measure(server: Server, data: bytes, name: str, times: int) -> None:
    from windfall.workflow.wfformat.instance import loads
    from windfall.workflow.wfformat.sleep_tasks import timed

    workflow = loads(data, name)
    bag = timed(workflow, [SECONDS] * workflow.tasks)
    edges = [tuple(edge) for edge in bag.edges]
    whole, without = [], []
    with server.client() as client:
        for _ in range(times):
            number = client.submit(bag)
            client.wait(number)
            rows = list(client.results(number))
            took = (max(row["ended"] for row in rows) - min(row["started"] for row in rows)) / 1000
            lasted = [row["wall"] / 1000 for row in rows]
            whole.append(100 * (took / ideal(edges, [SECONDS] * len(rows)) - 1))
            without.append(100 * (took / ideal(edges, lasted) - 1))
    print(f"{name:44} {workflow.tasks:4} tasks: {spread(whole)} % over 100 ms each; {spread(without)} % over what they "
          "took", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.json")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with two_slots() as server:
        for name, parents in synthetic().items():
            measure(server, instance(name, parents), name, options.times)
        for path in options.files:
            measure(server, path.read_bytes(), path.stem, options.times)


if __name__ == "__main__":
    main()
