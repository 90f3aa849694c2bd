"""OrderCache: the ready list as hosts are to see it, kept from one request to the next.

Rules
  * Hosts that are alike in all that policies now speak of share an order: the key is what their ads say, and what is so
    at the moment.  What is the same for a minute is looked up for a minute.  Bags of owners whom a host does not serve
    are not evaluated there.
  * An order knows what each bag's own attributes were when it was made.  Where one has changed since, that bag alone is
    evaluated again, and the order is sorted again only if its place is another one.
  * Orders hold while the ready list and the policies are what they were.  Where policies speak of the time they hold
    for the second that they were made in; where those of many bags do, for as many seconds as there are fifties of
    these, by one time for all: or every host would have all of them evaluated every second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windfall.core.expressions import attributes
from windfall.core.expressions.attributes import Subject
from windfall.core.expressions.classads import MOST_PROGRAMS, Value
from windfall.core.expressions.rules import Rules, rules_of
from windfall.core.state.world import BagState, PilotState, State, TaskClass

TIMED_AT_ONCE = 50  # bags that speak of the time, or classes of those that speak of tasks, too, evaluated in a second
MOST_KEPT = 250_000  # entries of all orders together

Entry = tuple[tuple[Any, ...], int]  # as in State.ready
Values = tuple[Value, ...]


@dataclass(slots=True)
class Listed:
    """A class on the ready list."""

    entry: Entry
    bag: BagState
    cls: TaskClass
    rules: Rules | None  # None: it has no expressions


@dataclass(slots=True)
class Order:
    entries: list[Entry]  # as the host sees them
    places: list[Entry | None]  # of each class on the ready list; None: it is not for this host
    own: list[Values]  # what those that move were then


class OrderCache:
    """Volatile: everything here follows from the state."""

    def __init__(self) -> None:
        self.paths: tuple[str, ...] = ()  # published attributes that policies now speak of
        self.steady = True  # orders hold until something is heard of
        self.kept: dict[tuple[Values, Values, tuple[str, ...]], Order] = {}
        self._listed: list[Listed] = []
        self._moving: list[tuple[int, Listed]] = []  # those whose own attributes matter, and where they stand
        self._moment: list[attributes.Read] = []
        self._timed = False
        self._second = 0
        self._tick = 0  # ms for which time stands still here

    def renew(self, listed: list[Listed]) -> None:
        """The ready list, or a policy, may have changed."""
        if _same(listed, self._listed):
            return
        self._listed = listed
        rules = [each.rules for each in listed if each.rules is not None]
        self.steady = all(each.steady for each in rules)
        paths = tuple(dict.fromkeys(path for each in rules for path in each.published))
        self.paths = self.paths if self.paths == paths else paths
        moment = list(dict.fromkeys(path for each in rules for path in each.moment))
        self._moment = [read for path in moment if (read := attributes.reader(path)) is not None]
        self._timed = any(path in attributes.TIMED for path in moment)
        timed = dict.fromkeys((each.bag.number, each.rules.by_task and each.cls.number)
                              for each in listed if each.rules is not None and each.rules.timed)
        self._tick = len(timed) // TIMED_AT_ONCE * 1000
        self._moving = [(place, each) for place, each in enumerate(listed) if each.rules is not None and each.rules.own]
        self.kept.clear()

    def get(
        self, subject: Subject, key: Values, published: Mapping[str, Value], owners: tuple[str, ...]
    ) -> list[Entry]:
        """For a host of these owners whose ad has this key; of the subject only the bag and the class are changed."""
        if self._tick:
            subject.now, subject.slack = subject.now - subject.now % self._tick, self._tick
        if self._timed and subject.now // 1000 != self._second:
            self._second = subject.now // 1000
            self.kept.clear()
        moment = tuple([read(subject) for read in self._moment])
        own = self._own(subject, owners)
        found = self.kept.get((key, moment, owners))
        if found is None:
            if len(self.kept) * len(self._listed) > MOST_KEPT:
                self.kept.clear()
            places = [_place(each, subject, published) if each.bag.owner in owners else None for each in self._listed]
            found = self.kept[key, moment, owners] = Order(self._sorted(places), places, own)
        elif found.own != own:
            self._mend(found, own, subject, published)
        return found.entries

    def _own(self, subject: Subject, owners: tuple[str, ...]) -> list[Values]:
        found: list[Values] = []
        for _, each in self._moving:
            subject.bag, subject.cls = each.bag, each.cls
            reads = each.rules.own if each.bag.owner in owners else ()  # type: ignore[union-attr]
            found.append(tuple([read(subject) for read in reads]))
        return found

    def _mend(self, order: Order, own: list[Values], subject: Subject, published: Mapping[str, Value]) -> None:
        moved = False
        for (place, each), now, then in zip(self._moving, own, order.own, strict=True):
            if now != then:
                entry = _place(each, subject, published)
                moved = moved or entry != order.places[place]
                order.places[place] = entry
        order.own = own
        if moved:
            order.entries = self._sorted(order.places)

    def _sorted(self, places: list[Entry | None]) -> list[Entry]:
        """By rank, each owner's in the places that were that owner's."""
        of: dict[str, list[Entry]] = {}
        for entry, each in zip(places, self._listed, strict=True):
            if entry is not None:
                of.setdefault(each.bag.owner, []).append(entry)
        if len(of) == 1:
            return sorted(*of.values())
        heads = {owner: iter(sorted(entries)) for owner, entries in of.items()}
        return [next(heads[each.bag.owner]) for entry, each in zip(places, self._listed, strict=True) if entry]


def _place(each: Listed, subject: Subject, published: Mapping[str, Value]) -> Entry | None:
    if each.rules is None:
        return each.entry
    subject.bag, subject.cls = each.bag, each.cls
    if not each.rules.admit(subject, published):
        return None
    key, number = each.entry
    place = each.rules.place(key, subject, published)
    return each.entry if place is key else (place, number)


def _same(these: list[Listed], those: list[Listed]) -> bool:
    """A class is one object for life, and so are a bag's rules while its policy is the same."""
    if len(these) != len(those):
        return False
    pairs = zip(these, those, strict=True)
    return all(a.cls is b.cls and a.rules is b.rules and a.entry == b.entry for a, b in pairs)


def listed(state: State, rules: Callable[[BagState], Rules]) -> list[Listed]:
    """The ready list as it is; `rules` gives those of a bag."""
    found = []
    for entry in state.ready:
        cls = state.classes[entry[1]]
        bag = state.bags[cls.bag]
        found.append(Listed(entry, bag, cls, rules(bag) if cls.has_expressions else None))
    return found

MINUTE = 60_000  # ms for which an ad stands


@dataclass(slots=True)
class Ad:
    """Of a host, as it was published last."""

    at: int
    values: dict[str, Value]
    paths: tuple[str, ...] = ()  # those of the values that policies now speak of
    key: tuple[Value, ...] = ()  # and these values: hosts with the same are alike


class HostOrders:
    """Volatile: everything here follows from the state."""

    def __init__(self) -> None:
        self._ads: dict[int, Ad] = {}  # by pilot
        self._rules: dict[int, Rules] = {}  # by bag
        self._most = MOST_PROGRAMS  # of them, those of bags that are gone included
        self._stamp: tuple[int, int] = (-1, -1)  # of what the orders are made of
        self._orders = OrderCache()
        self._in_vain: dict[tuple[int, tuple[Value, ...]], None] = {}  # class of pilots, key of their ads
        self._in_vain_at = -1  # in this version

    @property
    def steady(self) -> bool:
        """Orders hold until something is heard of."""
        return self._orders.steady

    def order(self, state: State, now: int, pilot: PilotState) -> list[Entry]:
        """The ready list as this pilot is to see it: what may go there, the highest rank first."""
        ad, orders = self._ad(state, now, pilot), self._orders
        if self._stamp != (state.ready_version, state.limits_changed):
            self._most = max(MOST_PROGRAMS, 2 * len(state.bags))  # or every look would read all of them again
            orders.renew(listed(state, self._rules_of))
            self._stamp = (state.ready_version, state.limits_changed)
        if ad.paths is not orders.paths:
            ad.paths, ad.key = orders.paths, tuple([ad.values[path] for path in orders.paths])
        bag = state.bags[state.classes[state.ready[0][1]].bag]
        subject = Subject(state, now, bag, state.sites[pilot.site], None, pilot)
        return orders.get(subject, ad.key, ad.values, state.pilot_classes[pilot.cls].owners)

    def admits(self, state: State, now: int, pilot: PilotState, cls: TaskClass) -> bool:
        """May it have tasks of that class, as far as expressions go?"""
        if not cls.has_expressions:
            return True
        bag, ad = state.bags[cls.bag], self._ad(state, now, pilot)
        subject = Subject(state, now, bag, state.sites[pilot.site], cls, pilot)
        return self._rules_of(bag).admit(subject, ad.values)

    def published(self, state: State, now: int, pilot: PilotState) -> Mapping[str, Value]:
        """Its host's ad."""
        return self._ad(state, now, pilot).values

    def with_others(
        self, state: State, now: int, pilot: PilotState, ready: list[Entry], more: list[TaskClass]
    ) -> list[Entry]:
        """The same order with some more classes in it."""
        there = {number for _, number in ready}
        found = [*ready]
        for cls in more:
            if cls.number not in there and self.admits(state, now, pilot, cls):
                found.append((self.place(state, now, pilot, cls), cls.number))
        return sorted(found) if len(found) > len(ready) else ready

    def place(self, state: State, now: int, pilot: PilotState, cls: TaskClass) -> tuple[Any, ...]:
        """Where its tasks stand among its owner's, for such a pilot."""
        if not cls.has_expressions:
            return cls.order_key
        bag, ad = state.bags[cls.bag], self._ad(state, now, pilot)
        subject = Subject(state, now, bag, state.sites[pilot.site], cls, pilot)
        return self._rules_of(bag).place(cls.order_key, subject, ad.values)

    def note_in_vain(self, state: State, pilot: PilotState) -> None:
        """Nothing fits it: nor does anything fit others of its class whose hosts are alike."""
        if not self._orders.steady:
            return
        if self._in_vain_at != state.version:
            self._in_vain_at, self._in_vain = state.version, {}
        self._in_vain[pilot.cls, self._ads[pilot.number].key] = None

    def in_vain(self, state: State, now: int, pilot: PilotState) -> bool:
        """Was one like it turned away, and nothing has changed since?"""
        if self._in_vain_at != state.version:
            return False
        ad = self._ads.get(pilot.number)
        if ad is None or ad.paths is not self._orders.paths or now - ad.at >= MINUTE:
            return False
        return (pilot.cls, ad.key) in self._in_vain

    def forget(self, pilot: int) -> None:
        self._ads.pop(pilot, None)

    def _rules_of(self, bag: BagState) -> Rules:
        rules = self._rules.get(bag.number)
        if rules is None or rules.policy is not bag.policy:
            if len(self._rules) >= self._most:
                self._rules.clear()
            rules = self._rules[bag.number] = rules_of(bag.policy)
        return rules

    def _ad(self, state: State, now: int, pilot: PilotState) -> Ad:
        ad = self._ads.get(pilot.number)
        if ad is None or now - ad.at >= MINUTE:
            ad = self._ads[pilot.number] = Ad(now, attributes.host_ad(state, pilot, now))
        return ad
