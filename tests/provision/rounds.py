"""SWARM, MSR and a broker on two real Slurm clusters that others use, too: who waits least?

As in SWARM's own test (its table 2), the three start within five seconds and compete: three bags of one server, the
same tasks, the same sites, one `provision` each.  Who submits first stands first in the queues, so each has that place
in a third of the rounds.  What the others in the queues do is drawn anew for every round.  A round is a pair of
observations for each comparison; the test is exact, by all signs that the differences could have had.

    python -m tests.provision.rounds [ROUNDS [SEED]]
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from tests.live.real import until
from tests.provision import rig
from tests.provision.rig import Cluster, User

POLICIES = ("broker", "msr", "swarm")
TASKS, LASTING = 10, 4.0  # seconds
APART = 5 / 3  # seconds: all three begin within five
OTHERS = (8, 28)  # jobs of others at each cluster when a round begins
LASTS = (3.0, 20.0)  # seconds of each
COMING = 20.0  # seconds between two more of them, on average
SHAPE = '[[shapes]]\nwalltime = "5min"\ncores = 1\n'


class Others:
    """Whoever else uses a cluster: jobs that are there when a round begins, and some that come later."""

    def __init__(self, cluster: Cluster, draw: random.Random) -> None:
        self.cluster, self.draw = cluster, draw
        self.next = time.monotonic() + draw.expovariate(1 / COMING)
        self.submit(draw.randint(*OTHERS))

    def submit(self, jobs: int) -> None:
        for _ in range(jobs):
            done = self.cluster.slurm.ask(
                "sbatch", "-n1", "-t2", "-o", "/dev/null", "-J", "other", "--chdir=/",
                f"--wrap=sleep {self.draw.uniform(*LASTS):.1f}")
            assert done.returncode == 0, done.stderr

    def go_on(self) -> None:
        if time.monotonic() >= self.next:
            self.next += self.draw.expovariate(1 / COMING)
            self.submit(1)


def one_round(person: User, clusters: list[Cluster], draw: random.Random, first: int) -> dict[str, float]:
    """Mean seconds from submission to start, by policy."""
    others = [Others(cluster, draw) for cluster in clusters]
    bags = {}
    for policy in POLICIES[first:] + POLICIES[:first]:
        time.sleep(APART * bool(bags))
        bags[policy] = person.bag(f"sleep {LASTING}", TASKS, f'time = "1min"\nexpect = "{LASTING:.0f}s"\n'
                                  f'[policy]\nprovision = "{policy}"\n'), time.time() * 1000
    while not all(person.client.bag(bag)["ended"] for bag, _ in bags.values()):
        for each in others:
            each.go_on()
        time.sleep(0.5)
    found = {policy: _queued(person, bag, at) for policy, (bag, at) in bags.items()}
    for cluster in clusters:
        cluster.slurm.ask("scancel", "-n", "other")
        until(lambda cluster=cluster: not cluster.slurm.ask("squeue", "-h").stdout.strip(), 120)
    return found


def _queued(person: User, bag: int, submitted: float) -> float:
    rows = list(person.client.results(bag))
    assert len(rows) == TASKS and all(row["state"] == "succeeded" for row in rows), rows
    return sum(row["started"] - submitted for row in rows) / TASKS / 1000


def chance(differences: list[float]) -> float:
    """How often the mean would be as low as it is, or lower, if each difference might as well have had the other
    sign."""
    seen = sum(differences)
    signs = product((1, -1), repeat=len(differences))
    sums = [sum(s * d for s, d in zip(each, differences, strict=True)) for each in signs]
    return sum(total <= seen + 1e-9 for total in sums) / len(sums)


def play(rounds: int, seed: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    with ExitStack() as stack:
        clusters = [stack.enter_context(rig.started(lambda name=name: Cluster(name, nodes=1, cpus=cpus)))
                    for name, cpus in (("x", 8), ("y", 6))]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windfall-rounds-")))
        person = stack.enter_context(rig.user(folder))
        for name, cluster in zip("xy", clusters, strict=True):
            person.knows(cluster.login, f"front-{name}")
            person.site(name, "slurm", f'host = "front-{name}"\nmax-pilots = 60\nroom = true\n', SHAPE)
        person.serve()
        for number in range(rounds):
            result = one_round(person, clusters, random.Random(seed * 1000 + number), number % 3)
            print(f"round {number + 1:2}: {_said(result)}", flush=True)
            for name, value in result.items():
                found[name].append(value)
    return found


def _said(result: dict[str, float]) -> str:
    return "  ".join(f"{name} {result[name]:6.1f} s" for name in POLICIES)


def main(argv: list[str]) -> int:
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
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.SubprocessError as error:
        sys.exit(f"rounds: {error}")
