"""Whoever starts pilots at a site, in virtual time: carries out the core's orders, and tells what came of them.

It decides nothing.  An order is carried out once per nonce, however often it is heard; what came of it is told until
that has been answered.  `crash` forgets all that, as the end of a process does, and leaves the jobs where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windfall.core import effects as x, events as e
from windfall.core.facts import Shape
from windfall.sim.engine import Engine
from windfall.sim.server import Server
from windfall.sim.site import Job, Mortal, Refused, Site

POLL = 20_000


class Tender:
    """`submit`, `cancel`, `listing`: ms that these take, or what says so.  `latency`: each way, to the server."""

    def __init__(
        self, engine: Engine, server: Server, site: Site, begin: Callable[[Job], Mortal], *, user: str = "user",
        name: str = "", submit: int | Callable[[], int] = 0, cancel: int | Callable[[], int] = 0, listing: int = 0,
        latency: int = 0,
    ) -> None:
        self.engine, self.server, self.site, self.begin, self.user = engine, server, site, begin, user
        self.name = name or site.name
        self._takes = {"submit": _timed(submit), "cancel": _timed(cancel)}
        self._listing, self._latency = listing, latency
        self.life = 0
        self.alive = False
        self.restart()

    def restart(self) -> None:
        """Knows nothing of what was done before."""
        self.life += 1
        self.alive = True
        self.seen = self.now = 0
        self.over = False
        self._names: dict[str, str] = {}  # nonce → what the batch system calls it; "": on its way
        self._stops: dict[tuple[str, str], bool] = {}  # under way; True: its submission has to land first
        self._news: dict[str, dict[Any, Any]] = {"accepted": {}, "refused": {}, "stopped": {}}
        self._looking = False
        self._tell(self.life, hello=True)

    def crash(self) -> None:
        """Submissions that are on their way arrive, and nobody hears of it."""
        self.alive = False

    # --- the exchange -------------------------------------------------------------------------------------------------

    def _tell(self, life: int, hello: bool = False, wait: int = 0, **more: Any) -> None:
        if not self.alive or life != self.life:
            return
        news = {kind: list(said.items()) for kind, said in self._news.items()}
        stopped = [key for key, _ in news["stopped"]]
        event = e.Tend(0, self.site.name, f"{self.name} {self.life}", hello, self.seen, news["accepted"],
                       news["refused"], stopped, info=self.site.info(), wait=wait, **more)

        def back(effect: Any) -> None:
            self.engine.after(self._latency, self._answered, life, effect, news, wait > 0 or hello)

        self.engine.after(self._latency, self.server.put, event, back)

    def _answered(self, life: int, orders: Any, news: dict[str, list[Any]], polled: bool) -> None:
        if not self.alive or life != self.life or not isinstance(orders, x.Orders):
            return
        if orders.over:
            if polled:
                self.engine.after(POLL, self._tell, life, True)
            return
        for kind, said in news.items():
            for key, _ in said:
                self._news[kind].pop(key, None)
        self.seen, self.now = max(self.seen, orders.number), max(self.now, orders.now)
        for nonce, shape in orders.start:
            self._start(nonce, shape)
        for nonce, name in orders.stop:
            self._stop(nonce, name)
        if orders.list and not self._looking:
            self._looking = True
            self.engine.after(self._listing, self._list, life, self.now)
        if polled:
            self._tell(life, wait=POLL)

    def _list(self, life: int, began: int) -> None:
        self._looking = False
        self._tell(life, listed=self.site.listing(self.user), began=began)

    def _say(self, life: int, kind: str, key: Any, value: Any) -> None:
        self._news[kind][key] = value
        self._tell(life)

    # --- orders -------------------------------------------------------------------------------------------------------

    def _start(self, nonce: str, shape: Shape) -> None:
        name = self._names.get(nonce)
        if name is None:
            self._names[nonce] = ""
            self.engine.after(self._takes["submit"](), self._submit, self.life, nonce, shape)
        elif name:
            self._news["accepted"][nonce] = name

    def _submit(self, life: int, nonce: str, shape: Shape) -> None:
        try:
            name = self.site.submit(self.user, nonce, shape, self.begin)
        except Refused as refused:
            if life == self.life:
                del self._names[nonce]
                self._landed(nonce)
                self._say(life, "refused", nonce, str(refused))
            return
        if life == self.life:
            self._names[nonce] = name
            self._landed(nonce)
            self._say(life, "accepted", nonce, name)

    def _stop(self, nonce: str, name: str) -> None:
        if (nonce, name) in self._stops:
            return
        on_its_way = self._names.get(nonce) == ""
        self._stops[nonce, name] = on_its_way
        if not on_its_way:
            self.engine.after(self._takes["cancel"](), self._cancel, self.life, nonce, name)

    def _landed(self, nonce: str) -> None:
        for key in [key for key, waits in self._stops.items() if waits and key[0] == nonce]:
            self._stops[key] = False
            self.engine.after(self._takes["cancel"](), self._cancel, self.life, *key)

    def _cancel(self, life: int, nonce: str, name: str) -> None:
        wanted = {name} if name else {job.id for job in self.site.jobs.values()
                                              if (job.user, job.nonce) == (self.user, nonce)}
        for each in sorted(wanted):
            self.site.cancel(each)
        if life == self.life:
            self._stops.pop((nonce, name), None)
            self._say(life, "stopped", (nonce, name), None)


def _timed(value: int | Callable[[], int]) -> Callable[[], int]:
    return value if callable(value) else lambda: value
