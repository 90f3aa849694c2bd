"""The order book of a tender: turns the core's orders into commands, and the commands' outcomes into news.

Rules
  * The tender carries an order out once per nonce, however often the core repeats it, and reports the outcome until
    the core acknowledges that.
  * Starts of one shape with consecutive nonces are one submission, of as many pilots as the site takes at once.
  * A stop waits while the submission of its job is under way.
  * A submission without an answer is neither accepted nor refused: a listing begun long enough after it tells which.
  * Replies may overtake each other.  An older reply only acknowledges news: the newer one repeats all its orders.
The book reads no clock, performs nothing and decides nothing; it forgets the outcomes that the core has acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from windfall.core.messages.facts import Shape

Pair = tuple[str, str]  # nonce, the batch system's name; "" where it is not known


class Orders(Protocol):
    """The orders of one reply: the server's `TendReply`, or the core's `SiteOrders` in the simulator."""

    @property
    def number(self) -> int: ...

    @property
    def now(self) -> int: ...

    @property
    def start(self) -> list[tuple[str, Shape]]: ...

    @property
    def stop(self) -> list[Pair]: ...

    @property
    def look(self) -> bool: ...

    @property
    def salvage(self) -> list[str]: ...


class Submit(NamedTuple):
    shape: Shape
    nonces: tuple[str, ...]


class Cancel(NamedTuple):
    jobs: tuple[Pair, ...]


class ListJobs(NamedTuple):
    """List this server's jobs in the batch system."""

    began: int  # the core's time of the newest answer


class Salvage(NamedTuple):
    """Look for results that these pilots could not deliver, and send them to the server."""

    nonces: tuple[str, ...]


Command = Submit | Cancel | ListJobs | Salvage


class News(NamedTuple):
    accepted: list[Pair]
    refused: list[Pair]
    stopped: list[Pair]
    unstopped: list[Pair]
    salvaged: list[tuple[str, int]]


class OrderBook:
    """The book.  `most`: pilots in one submission; `many`: jobs in one cancellation; `company`: pilots in one
    salvage."""

    def __init__(self, most: int = 1, many: int = 1, company: int = 1) -> None:
        self.most, self.many, self.company = most, many, company
        self.now = self.seen = 0
        self._names: dict[str, str] = {}  # nonce → the batch system's name; "": the submission is under way
        self._stops: dict[Pair, bool] = {}  # stops not carried out yet; True: the stop waits for its submission
        self._unsure: dict[str, None] = {}  # nonces of submissions without an answer
        self._looking = False
        self._accepted: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._stopped: dict[Pair, None] = {}
        self._unstopped: dict[Pair, None] = {}
        self._seeking: dict[str, None] = {}
        self._alone: dict[str, None] = {}  # nonces to salvage one by one: a salvage of several failed
        self._salvaged: dict[str, int] = {}

    def news(self) -> News:
        """Return the outcomes that the core has not acknowledged."""
        return News(list(self._accepted.items()), list(self._refused.items()), list(self._stopped),
                    list(self._unstopped), list(self._salvaged.items()))

    def name(self, nonce: str) -> str:
        return self._names.get(nonce, "")

    @property
    def unsure(self) -> bool:
        return bool(self._unsure)

    # --- orders -------------------------------------------------------------------------------------------------------

    def answered(self, orders: Orders, news: News) -> list[Command]:
        """Take a reply; return the commands that it orders.  `news` went out with the request of this reply."""
        self._heard(news)
        if (orders.now, orders.number) < (self.now, self.seen):
            return []
        self.now, self.seen = orders.now, orders.number
        commands: list[Command] = [*self._starts(orders.start), *self._cancels(self._stop(orders.stop))]
        if orders.look and not self._looking:
            self._looking = True
            commands.append(ListJobs(self.now))
        return [*commands, *self._seek(orders.salvage)]

    def _seek(self, nonces: Iterable[str]) -> Iterator[Salvage]:
        fresh = [nonce for nonce in nonces if nonce not in self._seeking and nonce not in self._salvaged]
        self._seeking.update(dict.fromkeys(fresh))
        together = tuple(nonce for nonce in fresh if nonce not in self._alone)
        for at in range(0, len(together), self.company):
            yield Salvage(together[at : at + self.company])
        for nonce in fresh:
            if self._alone.pop(nonce, self) is None:
                yield Salvage((nonce,))

    def _heard(self, news: News) -> None:
        for nonce, _ in news.accepted:
            if self._accepted.pop(nonce, ""):
                self._names.pop(nonce, None)
        for nonce, _ in news.refused:
            self._refused.pop(nonce, None)
        for pair in news.stopped:
            self._stopped.pop(pair, None)
        for pair in news.unstopped:
            self._unstopped.pop(pair, None)
        for nonce, _ in news.salvaged:
            self._salvaged.pop(nonce, None)

    def _starts(self, start: Iterable[tuple[str, Shape]]) -> Iterator[Submit]:
        fresh = [(nonce, shape) for nonce, shape in start if nonce not in self._names and nonce not in self._refused]
        self._names.update(dict.fromkeys((nonce for nonce, _ in fresh), ""))
        return self._groups(fresh)

    def _groups(self, start: Iterable[tuple[str, Shape]]) -> Iterator[Submit]:
        group: list[str] = []
        of = None
        for nonce, shape in start:
            if group and (shape != of or len(group) == self.most or not follows(group[-1], nonce)):
                yield Submit(of or shape, tuple(group))
                group = []
            group.append(nonce)
            of = shape
        if group and of is not None:
            yield Submit(of, tuple(group))

    def _stop(self, stop: Iterable[Pair]) -> Iterator[Pair]:
        for nonce, name in stop:
            if (nonce, name) in self._stops or (nonce, name) in self._stopped:
                continue
            waits = self._names.get(nonce) == ""
            self._stops[nonce, name] = waits
            if not waits:
                yield nonce, name

    def _cancels(self, pairs: Iterable[Pair]) -> Iterator[Cancel]:
        every = list(pairs)
        for at in range(0, len(every), self.many):
            yield Cancel(tuple(every[at : at + self.many]))

    def still_wanted(self, submit: Submit) -> list[Submit]:
        """Return the part of a submission that is still wanted.  Report the rest as stopped: it was never submitted."""
        for pair in [pair for pair, waits in self._stops.items() if waits and pair[0] in dict.fromkeys(submit.nonces)]:
            del self._stops[pair]
            self._names.pop(pair[0], None)
            self._stopped[pair] = None
        return list(self._groups((nonce, submit.shape) for nonce in submit.nonces if nonce in self._names))

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def accepted(self, names: Mapping[str, str]) -> list[Cancel]:
        """Record submitted jobs (nonce → name); return the cancellations that waited for them."""
        for nonce, name in names.items():
            self._names[nonce] = self._accepted[nonce] = name
            self._unsure.pop(nonce, None)
        return self._landed(names)

    def refused(self, nonces: Iterable[str], why: str) -> list[Cancel]:
        """Record jobs that were surely not submitted; return the cancellations that waited for them."""
        gone = list(nonces)
        for nonce in gone:
            self._names.pop(nonce, None)
            self._unsure.pop(nonce, None)
            self._refused[nonce] = why
        return self._landed(gone)

    def lost(self, submit: Submit) -> None:
        """Record a submission without an answer: the batch system may have taken it."""
        self._unsure.update(dict.fromkeys(submit.nonces))

    def resolve(self, there: Mapping[str, str], why: str) -> list[Cancel]:
        """Record from a listing (nonce → name) which submissions without an answer were taken.  The listing began after
        the last moment at which any of them could still arrive."""
        found = {nonce: there[nonce] for nonce in self._unsure if nonce in there}
        return [*self.accepted(found), *self.refused(list(self._unsure), why)]

    def _landed(self, nonces: Iterable[str]) -> list[Cancel]:
        landed = dict.fromkeys(nonces)
        ready = [pair for pair, waits in self._stops.items() if waits and pair[0] in landed]
        self._stops.update(dict.fromkeys(ready, False))
        return list(self._cancels(ready))

    def cancelled(self, cancel: Cancel) -> None:
        for pair in cancel.jobs:
            self._stops.pop(pair, None)
            self._stopped[pair] = None

    def not_cancelled(self, cancel: Cancel) -> None:
        """Report a cancellation that failed; the core orders it again, after others."""
        for pair in cancel.jobs:
            self._stops.pop(pair, None)
            self._unstopped[pair] = None

    def salvaged(self, found: Mapping[str, int]) -> None:
        """Report how many results of each pilot were found and sent; -1: the pilot lives."""
        for nonce, many in found.items():
            self._seeking.pop(nonce, None)
            self._salvaged[nonce] = many

    def not_salvaged(self, nonces: Iterable[str], alone: bool) -> None:
        """Forget a salvage that failed, so that the core orders it again; `alone`: each pilot then gets its own
        command, so that none holds up the others."""
        for nonce in nonces:
            self._seeking.pop(nonce, None)
            if alone:
                self._alone[nonce] = None

    def listing_ended(self) -> None:
        """Note the end of a listing, successful or not: the next order to list is a new one."""
        self._looking = False


def follows(before: str, after: str) -> bool:
    """Is `after` the nonce that follows `before`?"""
    mark, _, number = before.rpartition("-")
    return number.isdigit() and after == f"{mark}-{int(number) + 1}"
