"""Users' scripts in virtual time: a script submits bags one after the other, and waits until all results are there.

    Poller      asks about all bags at once, every few seconds
    Collector   takes the bags in the order of submission: waits for the end of one, fetches its result, goes on
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windfall.sim.world import Work, World

Takes = Callable[[], int]  # ms


class Script:
    """A script that submits `works`, each after `call()` ms, the first one not before `before` ms."""

    def __init__(self, world: World, works: Iterable[Work], *, before: int = 0, call: Takes = lambda: 0) -> None:
        self.world, self.engine = world, world.engine
        self.began, self.ended = self.engine.now, -1
        self.bags: list[int] = []
        self._works, self._call = iter(works), call
        self.engine.after(before, self._next)

    def _next(self) -> None:
        work = next(self._works, None)
        if work is None:
            self._look_after()
        else:
            self.engine.after(self._call(), self.world.submit, work, self._taken)

    def _taken(self, bag: int) -> None:
        self.bags.append(bag)
        self._next()

    def _look_after(self) -> None:
        raise NotImplementedError

    def _over(self, bag: int) -> int:
        """Return when a bag ended; 0 while it runs."""
        return self.world.server.core.state.bags[bag].ended


class Poller(Script):
    def __init__(self, world: World, works: Iterable[Work], *, poll: int, before: int = 0, call: Takes = lambda: 0,
                 after: int = 0) -> None:
        """Poll every `poll` ms; once all bags have ended, the results take another `after` ms."""
        super().__init__(world, works, before=before, call=call)
        self._poll, self._after = poll, after

    def _look_after(self) -> None:
        if all(self._over(bag) for bag in self.bags):
            self.ended = self.engine.now + self._after
        else:
            self.engine.after(self._poll, self._look_after)


class Collector(Script):
    def __init__(self, world: World, works: Iterable[Work], *, poll: int, before: int = 0, call: Takes = lambda: 0,
                 notice: Takes = lambda: 0, fetch: Takes = lambda: 0) -> None:
        """Poll every `poll` ms.  A bag's end is known after `notice()` ms; fetching its result takes `fetch()` ms."""
        super().__init__(world, works, before=before, call=call)
        self._poll, self._notice, self._fetch = poll, notice, fetch
        self._at = 0
        self._known: dict[int, int] = {}  # bag → when its end becomes known

    def _look_after(self) -> None:
        if self._at == len(self.bags):
            self.ended = self.engine.now
            return
        bag = self.bags[self._at]
        if self._over(bag) and bag not in self._known:
            self._known[bag] = self._over(bag) + self._notice()
        if bag in self._known and self._known[bag] <= self.engine.now:
            self._at += 1
            self.engine.after(self._fetch(), self._look_after)
        else:
            self.engine.after(self._poll, self._look_after)
