"""The tender of a simulated site: the real tender's state machine, with commands that take virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from windfall.core.messages import effects as x, events as e
from windfall.core.messages.facts import Shape
from windfall.provision.order_book import Cancel, Command, ListJobs, News, OrderBook, Salvage, Submit
from windfall.sim.models.server import Server
from windfall.sim.models.site import BatchJob, JobProcess, JobRefused, SimulatedSite

POLL = 20_000


class TenderOptions(NamedTuple):
    """A tender's user at the site, and the ms that its commands and messages take."""

    user: str = "user"
    submit: int | Callable[[], int] = 0
    cancel: int | Callable[[], int] = 0
    listing: int = 0
    latency: int = 0  # each way between tender and server


class SimulatedTender:
    """The tender of one site; `begin(job)` starts the pilot of a job that runs."""

    def __init__(self, server: Server, site: SimulatedSite, begin: Callable[[BatchJob], JobProcess],
                 options: TenderOptions) -> None:
        self.engine, self.server, self.site, self.begin, self.user = site.engine, server, site, begin, options.user
        self._takes = {"submit": _timed(options.submit), "cancel": _timed(options.cancel)}
        self._listing, self._latency = options.listing, options.latency
        self.life = 0
        self.alive = False
        self.restart()

    def restart(self) -> None:
        """Start a new process of the tender, which knows nothing of the jobs of the one before."""
        self.life += 1
        self.alive = True
        self._book = OrderBook()
        self._tell(self.life, hello=True)

    def crash(self) -> None:
        """End the tender's process.  Its jobs stay, and its submissions under way still arrive, unreported."""
        self.alive = False

    # --- the exchange -------------------------------------------------------------------------------------------------

    def _tell(self, life: int, hello: bool = False, wait: int = 0, **more: Any) -> None:
        if not self.alive or life != self.life:
            return
        news = self._book.news()
        event = e.SiteReport(
            0, site=self.site.name, provisioner=f"{self.site.name} {self.life}", hello=hello, seen=self._book.seen,
            accepted=news.accepted, refused=news.refused, stopped=news.stopped, info=self.site.info(), wait=wait,
            **more)
        answered = partial(self._answered, life, news, wait > 0 or hello)

        def back(effect: Any) -> None:
            self.engine.after(self._latency, answered, effect)

        self.engine.after(self._latency, self.server.put, event, back)

    def _answered(self, life: int, news: News, polled: bool, orders: Any) -> None:
        if not self.alive or life != self.life or not isinstance(orders, x.SiteOrders):
            return
        if orders.over:
            if polled:
                self.engine.after(POLL, self._tell, life, True)
            return
        for command in self._book.answered(orders, news):
            self._carry_out(command)
        if polled:
            self._tell(life, wait=POLL)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _carry_out(self, command: Command) -> None:
        """Schedule the end of a command.  The order book's default: a submission starts one pilot, a cancellation ends
        one job."""
        match command:
            case Submit(shape, nonces):
                self.engine.after(self._takes["submit"](), self._submit, self.life, nonces[0], shape)
            case Cancel(jobs):
                self.engine.after(self._takes["cancel"](), self._cancel, self.life, *jobs[0])
            case ListJobs(began):
                self.engine.after(self._listing, self._list, self.life, began)
            case Salvage():
                raise AssertionError("a simulated tender cannot salvage files")

    def _list(self, life: int, began: int) -> None:
        if life == self.life:
            self._book.listing_ended()
        self._tell(life, listed=self.site.listing(self.user), began=began)

    def _submit(self, life: int, nonce: str, shape: Shape) -> None:
        try:
            name = self.site.submit(self.user, nonce, shape, self.begin)
        except JobRefused as refused:
            name, why = "", str(refused)
        if life != self.life:
            return
        landed = self._book.accepted({nonce: name}) if name else self._book.refused([nonce], why)
        for cancel in landed:
            self._carry_out(cancel)
        self._tell(life)

    def _cancel(self, life: int, nonce: str, name: str) -> None:
        wanted = {name} if name else {job.id for job in self.site.jobs.values()
                                              if (job.user, job.nonce) == (self.user, nonce)}
        for each in sorted(wanted):
            self.site.cancel(each)
        if life == self.life:
            self._book.cancelled(Cancel(((nonce, name),)))
            self._tell(life)


def _timed(value: int | Callable[[], int]) -> Callable[[], int]:
    return value if callable(value) else lambda: value
