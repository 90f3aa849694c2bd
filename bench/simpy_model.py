"""How fast is the simulator beside SimPy on the same model?

The model is that of `simulate.py`: hosts of one slot, tasks of 30 minutes on average, a tenth of the attempts lost with
their pilot and retried.  In SimPy a server is a queue of tasks, a pilot a process that asks, runs and reports.

The SimPy model has no sessions (enrolment, acknowledgement, resending), leases, long polls, reports of starts,
journaled facts, limits, owners, counted retries or checked promises.  So the figures show the cost of the protocol over
a bare queue; SimPy would need as many more events to simulate it.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections import deque
from typing import Any, NamedTuple

from common import ROOT  # noqa: F401  (puts src/ on the path)
from simulate import HOUR, half_an_hour, simulate


class Model:
    """The model in SimPy.  `events` counts all that SimPy processes: timeouts, requests, grants, ends of processes."""

    def __init__(self, simpy: Any, tasks: int, hosts: int, loses: float = 0.1, seed: int = 1) -> None:
        self.simpy, self.env, self.random = simpy, simpy.Environment(), random.Random(seed)
        self.backlog: deque[int] = deque(range(tasks))
        self.left, self.loses = tasks, loses
        self.attempts = self.exchanges = self.events = 0
        self.done = self.env.event()
        for _ in range(hosts):
            self.env.process(self.pilot())

    def run(self) -> None:
        step, env, done = self.env.step, self.env, self.done
        while not done.processed:
            step()
            self.events += 1
        self.end = env.now

    def pilot(self) -> Any:
        """Ask, run and report in turns; a lost pilot is followed by another one a second later."""
        while self.left:
            task = yield from self.ask()
            wall = half_an_hour(task, self.random)
            self.attempts += 1
            if self.random.random() < self.loses:
                yield self.env.timeout(self.random.randrange(wall))
                self.backlog.append(task)
                yield self.env.timeout(1_000)
            else:
                yield self.env.timeout(wall)
                yield from self.report()

    def ask(self) -> Any:
        self.exchanges += 1
        answer = self.env.event()
        while not self.backlog:
            yield self.env.timeout(60_000)  # the queue is empty
        answer.succeed(self.backlog.popleft())
        return (yield answer)

    def report(self) -> Any:
        self.exchanges += 1
        self.left -= 1
        if not self.left:
            self.done.succeed()
        answer = self.env.event()
        answer.succeed()
        yield answer


def measure(simpy: Any, tasks: int, hosts: int) -> None:
    model = Model(simpy, tasks, hosts)
    gc.collect()
    gc.disable()
    began = time.process_time()
    model.run()
    taken = time.process_time() - began
    gc.enable()
    tell("SimPy, request, grant, report", tasks, Totals(taken, model.events, model.exchanges, model.end))


class Totals(NamedTuple):
    """The totals of a simulation."""

    processor: float  # s
    events: int
    exchanges: int
    end: int  # ms of virtual time


def tell(name: str, tasks: int, totals: Totals) -> None:
    taken, events, exchanges, end = totals
    print(
        f"{name:30} {taken:7.1f} s of processor, {taken / tasks * 1e6:5.0f} µs a task, "
        f"{events / taken:9,.0f} events/s, {exchanges / tasks:.2f} exchanges a task, {end / HOUR:,.1f} h", flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--hosts", type=int, default=1_000)
    options = parser.parse_args()
    taken, world = simulate(options.tasks, options.hosts)
    tell("Windfall, the live protocol", options.tasks,
         Totals(taken.processor, world.engine.events, world.server.exchanges, world.engine.now))
    try:
        import simpy
    except ImportError:
        print("SimPy is not installed (pip install 'windfall[bench]'): nothing to compare with")
        return
    measure(simpy, options.tasks, options.hosts)


if __name__ == "__main__":
    main()
