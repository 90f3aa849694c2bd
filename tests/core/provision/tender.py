"""A tender for tests: it carries out a site's orders at once, in a batch system that is a dict."""

from __future__ import annotations

from typing import Any

from tests.core.conftest import HOUR, Bench
from windfall.core.messages import events as e
from windfall.core.messages.facts import Limits, Shape
from windfall.core.messages.lifecycle import INTENT_STATES

ONE = Shape(1, 4 << 30, 0, 1 << 40, HOUR)


LANDING = 30_000


APART = 10_000  # ms between the two listings that must lack a job before the core takes it for gone


class Tender:
    """A tender that carries out its orders at once, in a batch system that is a dict: nonce → (id, running)."""

    def __init__(self, bench: Bench, site: str = "c1", name: str = "t1") -> None:
        self.bench, self.site, self.name = bench, site, name
        self.jobs: dict[str, tuple[str, bool]] = {}
        self.seen = self.now = 0
        self.orders: Any = None
        self.tell(hello=True)

    def tell(self, **more: Any) -> Any:
        """Report to the core; return its orders, or None if the request waits."""
        self.orders = self.bench.do(e.SiteReport(0, self.site, self.name, seen=self.seen, **more))
        if self.orders is not None and not self.orders.over:
            self.seen, self.now = self.orders.number, self.orders.now
        return self.orders

    def work(self, **more: Any) -> None:
        """Carry out orders and report, until no new ones come."""
        orders = self.tell(**more)
        while orders is not None and (orders.start or orders.stop):
            more = {"accepted": [(nonce, self.submit(nonce)) for nonce, _ in orders.start],
                    "stopped": [(nonce, name) for nonce, name in orders.stop]}
            for nonce, _ in orders.stop:
                self.jobs.pop(nonce, None)
            orders = self.tell(wait=1_000, **more)

    def submit(self, nonce: str) -> str:
        assert nonce not in self.jobs
        self.jobs[nonce] = (f"job-{nonce}", False)
        return f"job-{nonce}"

    def list(self, **more: Any) -> Any:
        return self.tell(listed=[e.ListedJob(n, i, r) for n, (i, r) in self.jobs.items()], began=self.now, **more)

    def list_twice(self) -> Any:
        """List twice, some time apart: a job that both listings lack is gone."""
        self.list()
        self.bench.wait(APART)
        self.tell()
        return self.list()

    def begin(self, nonce: str, left: int = HOUR) -> int:
        """Start the job of that nonce, and enrol its pilot."""
        self.jobs[nonce] = (self.jobs[nonce][0], True)
        return self.bench.pilot(nonce=nonce, site=self.site, left=left)


def site(bench: Bench, name: str = "c1", **limits: Any) -> None:
    limits.setdefault("shapes", [ONE])
    bench.step(e.AddSite(0, name, "ann", "slurm", limits=Limits(**limits)))


def states(bench: Bench, name: str = "c1") -> str:
    """Return the first letter of the state of each intent of a site."""
    intents = [i for i in bench.core.state.intents.values() if i.site == name]
    return "".join(INTENT_STATES[i.state][0] for i in intents)


def bag(
    bench: Bench, *targets: Any, provision: str = "swarm", external: bool = False, **options: int,
) -> int:
    event = e.Submit(0, "ann", "bag", "", b"spec", list(targets), external, "fcfs", False, b"", provision, options)
    number = int(bench.do(event).value)
    bench.wait(1_000)  # sites are provisioned once a second
    return number
