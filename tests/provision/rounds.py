"""SWARM, MSR and a broker on real Slurm clusters that others use, too: who waits least?

Each has two clusters of its own, which are alike, and in every round the same others before it in the queues: drawn
anew for the round, the same for all three.  So a round is a pair of observations for each comparison, and what they
differ by is the policy.  The test is exact, by all signs that the differences could have had.

    python -m tests.provision.rounds [ROUNDS [SEED]]
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from tests.live.real import until
from tests.provision import rig
from tests.provision.rig import Cluster

POLICIES = ("broker", "msr", "swarm")
TASKS, LASTING = 20, 4.0  # seconds
CPUS = {"x": 6, "y": 4}
AHEAD = (25.0, 70.0)  # seconds that a cluster is busy for when a round begins
MEAN = (3.0, 25.0)  # seconds of the jobs that make it so: a long queue may be a quick one
COMING = 10.0  # seconds between two more of them, on average
KNOWN = 22.0  # seconds until what is known of a site, asked for every twenty, is of this round
SHAPE = '[[shapes]]\nwalltime = "5min"\ncores = 1\n'


class Others:
    """The other users of a cluster: jobs that are there when a round begins, and some that arrive later."""

    def __init__(self, cluster: Cluster, cpus: int, seed: str) -> None:
        self.cluster, self.draw = cluster, random.Random(seed)
        self.mean = self.draw.uniform(*MEAN)
        self.submit(round(self.draw.uniform(*AHEAD) * cpus / self.mean))
        self.next = time.monotonic() + self.draw.expovariate(1 / COMING)

    def submit(self, jobs: int) -> None:
        for _ in range(jobs):
            done = self.cluster.slurm.ask(
                "sbatch", "-n1", "-t2", "-o", "/dev/null", "-J", "other", "--chdir=/",
                f"--wrap=sleep {self.mean * self.draw.uniform(0.5, 1.5):.1f}")
            assert done.returncode == 0, done.stderr

    def go_on(self) -> None:
        if time.monotonic() >= self.next:
            self.next += self.draw.expovariate(1 / COMING)
            self.submit(1)


class Arena:
    """Two clusters, and a user who asks for pilots there by one policy."""

    def __init__(self, policy: str, stack: ExitStack) -> None:
        self.policy = policy
        self.clusters = {name: stack.enter_context(rig.started(
            lambda name=name: Cluster(f"{name}{policy[0]}", nodes=1, cpus=CPUS[name]))) for name in CPUS}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windfall-rounds-")))
        self.person = stack.enter_context(rig.user(folder))
        for name, cluster in self.clusters.items():
            self.person.knows(cluster.login, f"front-{name}")
            self.person.site(name, "slurm", f'host = "front-{name}"\nmax-pilots = 60\nroom = true\n', SHAPE)
        self.person.serve()

    def play(self, number: int, seed: int) -> float:
        """Mean seconds from submission to start."""
        others = [Others(cluster, CPUS[name], f"{seed} {number} {name}") for name, cluster in self.clusters.items()]
        time.sleep(KNOWN)
        submitted = time.time() * 1000
        bag = self.person.bag(f"sleep {LASTING}", TASKS, f'time = "1min"\nexpect = "{LASTING:.0f}s"\n'
                              f'[policy]\nprovision = "{self.policy}"\n')
        while not self.person.client.bag(bag)["ended"]:
            for each in others:
                each.go_on()
            time.sleep(0.5)
        rows = list(self.person.client.results(bag))
        assert len(rows) == TASKS and all(row["state"] == "succeeded" for row in rows), rows
        for cluster in self.clusters.values():
            cluster.slurm.ask("scancel", "-n", "other")
            until(lambda cluster=cluster: not cluster.slurm.ask("squeue", "-h").stdout.strip(), 120)
        return sum(row["started"] - submitted for row in rows) / TASKS / 1000


def play(rounds: int, seed: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    with ExitStack() as stack:
        arenas = [Arena(policy, stack) for policy in POLICIES]
        pool = stack.enter_context(ThreadPoolExecutor(len(arenas)))
        for number in range(rounds):
            waits = list(pool.map(lambda arena, number=number: arena.play(number, seed), arenas))
            for policy, wait in zip(POLICIES, waits, strict=True):
                found[policy].append(wait)
            print(f"round {number + 1:2}: {_said(dict(zip(POLICIES, waits, strict=True)))}", flush=True)
    return found


def chance(differences: list[float]) -> float:
    """How often the mean would be as low as it is, or lower, if each difference might as well have had the other
    sign."""
    seen = sum(differences)
    signs = product((1, -1), repeat=len(differences))
    sums = [sum(s * d for s, d in zip(each, differences, strict=True)) for each in signs]
    return sum(total <= seen + 1e-9 for total in sums) / len(sums)


def _said(result: dict[str, float]) -> str:
    return "  ".join(f"{name} {result[name]:6.1f} s" for name in POLICIES)


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing is left running
    rounds, seed = (int(argv[0]) if argv else 15), (int(argv[1]) if len(argv) > 1 else 1)
    found = play(rounds, seed)
    print(f"mean:     {_said({name: sum(found[name]) / rounds for name in POLICIES})}")
    good = True
    for other in ("msr", "broker"):
        p = chance([a - b for a, b in zip(found["swarm"], found[other], strict=True)])
        good = good and p < 0.05
        print(f"swarm waits less than {other}: p = {p:.5f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
