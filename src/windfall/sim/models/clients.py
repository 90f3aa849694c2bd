"""Users' scripts in virtual time: a script submits bags one after the other, and waits until all results are there.

    Poller      asks about all bags at once, every few seconds
    Collector   takes the bags in the order of submission: waits for the end of one, fetches its result, goes on
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from windfall.sim.world import Work, World


def at_once() -> int:
    return 0


class ScriptTimes(NamedTuple):
    """The times of a script, in ms."""

    poll: int  # between two polls
    before: int = 0  # before the first submission
    call: Callable[[], int] = at_once  # of a submission
    notice: Callable[[], int] = at_once  # a Collector's: from the end of a bag until the script can know it
    fetch: Callable[[], int] = at_once  # a Collector's: to bring a result home


class UserScript:
    """A script that submits one bag after the other, then waits for the results."""

    def __init__(self, world: World, works: Iterable[Work], times: ScriptTimes) -> None:
        self.world, self.engine, self.times = world, world.engine, times
        self.began, self.ended = self.engine.now, -1
        self.bags: list[int] = []
        self._works = iter(works)
        self.engine.after(times.before, self._next)

    def _next(self) -> None:
        work = next(self._works, None)
        if work is None:
            self._wait_for_results()
        else:
            self.engine.after(self.times.call(), self.world.submit, work, self._submitted)

    def _submitted(self, bag: int) -> None:
        self.bags.append(bag)
        self._next()

    def _wait_for_results(self) -> None:
        raise NotImplementedError

    def _ended_at(self, bag: int) -> int:
        """Return when a bag ended; 0 while it runs."""
        return self.world.server.core.state.bags[bag].ended


class Poller(UserScript):
    """A script that asks about all bags at once."""

    def _wait_for_results(self) -> None:
        if all(self._ended_at(bag) for bag in self.bags):
            self.ended = self.engine.now
        else:
            self.engine.after(self.times.poll, self._wait_for_results)


class Collector(UserScript):
    """A script that waits for the bags in the order of submission, and fetches the result of each."""

    def __init__(self, world: World, works: Iterable[Work], times: ScriptTimes) -> None:
        super().__init__(world, works, times)
        self._at = 0
        self._known: dict[int, int] = {}  # bag → when its end becomes known

    def _wait_for_results(self) -> None:
        if self._at == len(self.bags):
            self.ended = self.engine.now
            return
        bag = self.bags[self._at]
        if self._ended_at(bag) and bag not in self._known:
            self._known[bag] = self._ended_at(bag) + self.times.notice()
        if bag in self._known and self._known[bag] <= self.engine.now:
            self._at += 1
            self.engine.after(self.times.fetch(), self._wait_for_results)
        else:
            self.engine.after(self.times.poll, self._wait_for_results)
