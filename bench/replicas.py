"""How long does the core take to find late tasks to replicate?

`bench/replicas.py` lets all tasks of a bag run, 1,000 to 100,000 of them on hosts of 100 cores, and then lets one more
host ask for work again and again: each answer grants a replica, by the bag's preset or expression.  Printed is the time
of one request (in the core, without network and disk).  "Losers" is the time of one result of a replicated task: the
core looks up the other attempt and cancels it.

"Waiting": 500 and 4,000 hosts wait for work beside a bag that none of them matches, while every task of a `tail-safe`
bag is granted.  Printed is the time of the report of a start, and of a failure, whose task goes to the first waiting
pilot.
"""

from __future__ import annotations

import statistics
import time

from common import ROOT  # noqa: F401  (puts src/ on the path)
from windfall.core.config import Config
from windfall.core.messages import effects as x, events as e, facts as f
from windfall.core.step import Core
from windfall.sim.world import target_shape

CORES = 100
POLICIES = {
    "by expression": "NumberOfReplicas < 2 && Task.Replica1.Host.Name =!= \"idle\"",
    "tail-safe": "tail-safe",
    "tail-fast": "tail-fast",
}
LATE = 7_200_000  # ms


class World:
    def __init__(self, tasks: int, replicate: str) -> None:
        self.core, self.now, self.seq = Core(Config(lease=1 << 40, silence=1 << 40)), 1_000_000, 0
        self.do(e.AddSite(1, "here", "ann", "local"))
        shape = target_shape("main", tasks, expect=60_000, grace=1_000)
        self.submit(shape, {"replicate": replicate})
        for n in range(tasks // CORES):
            pilot = self.enrol(f"h{n}", CORES)
            while held := self.ask(pilot, CORES):
                self.exchange(pilot, started=held)
        self.now += LATE

    def do(self, event: e.Event) -> list[x.Effect]:
        return self.core.step(self.now, [event]).effects

    def submit(self, shape: f.TargetShape, policy: dict[str, str]) -> None:
        self.do(e.Submit(1, owner="ann", name="bag", idempotency="", spec=b"", targets=[shape], external=False,
                         select="fcfs", open=False, policy=policy))

    def enrol(self, host: str, cores: int) -> int:
        enrol = e.Enrol(1, site="here", nonce=host, host=host, host_name=host, cores=cores, memory=1 << 40, gpus=0,
                        disk=1 << 50, left=None, token=host.encode())
        return int(self.do(enrol)[0].pilot)  # type: ignore[attr-defined]

    def exchange(self, pilot: int, **fields: object) -> list[x.Effect]:
        self.seq += 1
        granted = self.core.state.pilots[pilot].granted
        return self.do(e.Exchange(1, pilot, 1, self.seq, granted, **fields))  # type: ignore[arg-type]

    def ask(self, pilot: int, want: int) -> list[int]:
        """Let a pilot ask for work; return the attempts that it was granted."""
        answers = [made for made in self.exchange(pilot, want=want) if isinstance(made, x.ExchangeReply)]
        return [a for answer in answers for _, groups in answer.grants for group in groups for a in group.attempts]


def timed(function: object) -> float:
    began = time.process_time()
    function()  # type: ignore[operator]
    return (time.process_time() - began) * 1e3


def measure(what: str, tasks: int, requests: int = 60) -> None:
    world = World(tasks, POLICIES[what])
    idle = world.enrol("idle", 4 * requests)
    taken, held = [], []
    for _ in range(requests):
        world.now += 10
        taken.append(timed(lambda: held.extend(world.ask(idle, 1))))
    losers = [timed(lambda a=a: world.exchange(idle, reports=[e.Report(a, wall=1_000)])) for a in held]
    print(f"{what:<14} {tasks:>7} tasks run: {statistics.median(taken):7.3f} ms, losers "
          f"{statistics.median(losers):7.3f} ms; {len(held)} replicas", flush=True)


def waiting(hosts: int, reports: int = 100) -> None:
    world = World(2 * CORES, "tail-safe")
    runs = [world.enrol(f"r{n}", 1) for n in range(2 * reports)]
    bag = target_shape("main", len(runs), expect=60_000, grace=1_000)
    world.submit(bag, {"replicate": "tail-safe"})
    held = [world.ask(pilot, 1) for pilot in runs]
    world.submit(bag, {"requirements": "Host.Memory < 1"})
    for n in range(hosts):
        world.exchange(world.enrol(f"w{n}", 1), want=1, wait=1 << 30)
    started = [timed(lambda p=p, a=a: world.exchange(p, started=a)) for p, a in zip(runs, held, strict=True)]
    failed = [timed(lambda p=p, a=a: world.exchange(p, reports=[e.Report(a[0], "failed", "exit", wall=1_000)]))
              for p, a in zip(runs[:reports], held, strict=False)]
    print(f"{hosts:>5} hosts wait: a start {statistics.median(started):7.3f} ms, a failure "
          f"{statistics.median(failed):7.3f} ms", flush=True)


def main() -> None:
    for what in POLICIES:
        for tasks in (1_000, 10_000, 100_000):
            measure(what, tasks)
    for hosts in (500, 4_000):
        waiting(hosts)


if __name__ == "__main__":
    main()
