"""The order in which each host sees the ready list, kept from one request to the next.

Rules
  * Hosts share an order if they are alike in all attributes that policies now use.  The key of an order is the values
    of these attributes in the host's ad, and the values of the attributes that depend on the moment.  An ad stands
    for a minute.  A host evaluates no bag of an owner that it does not serve.
  * An order remembers each bag's own attributes.  When one changes, that bag alone is evaluated again, and the order is
    sorted again only if the bag's place changes.
  * Orders hold while the ready list and the policies stay as they are.  Where policies use the time, an order holds for
    the second in which it was made.  Where those of many bags do, time stands still for all of them, one second for
    every fifty such bags; otherwise every host would evaluate all of them every second.
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

TIMED_AT_ONCE = 50  # bags whose expressions use the time (classes, if they use the task, too) evaluated in a second
MOST_KEPT = 250_000  # entries of all orders together

Entry = tuple[tuple[Any, ...], int]  # as in State.ready
Values = tuple[Value, ...]


@dataclass(slots=True)
class ReadyClass:
    """A class on the ready list."""

    entry: Entry
    bag: BagState
    cls: TaskClass
    rules: Rules | None  # None: it has no expressions


@dataclass(slots=True)
class Order:
    entries: list[Entry]  # as the host sees them
    places: list[Entry | None]  # of each class on the ready list; None: the host may not have it
    own: list[Values]  # the bags' own attributes when the order was made


class OrderCache:
    """Orders by kind of host.  Volatile: all of them follow from the state."""

    def __init__(self) -> None:
        self.paths: tuple[str, ...] = ()  # published attributes that policies now use
        self.steady = True  # orders hold until an event changes the state
        self.kept: dict[tuple[Values, Values, tuple[str, ...]], Order] = {}
        self._listed: list[ReadyClass] = []
        self._moving: list[tuple[int, ReadyClass]] = []  # classes whose bags' own attributes matter, with their places
        self._moment: list[attributes.Read] = []
        self._timed = False
        self._second = 0
        self._tick = 0  # ms for which time stands still for expressions

    def renew(self, listed: list[ReadyClass]) -> None:
        """Follow a changed ready list, or a changed policy."""
        if _is_same(listed, self._listed):
            return
        self._listed = listed
        ruled = [(place, each, each.rules) for place, each in enumerate(listed) if each.rules is not None]
        rules = [each for _, _, each in ruled]
        self.steady = all(each.steady for each in rules)
        self._follow_attributes(rules)
        timed = {(each.bag.number, rules.by_task and each.cls.number): None for _, each, rules in ruled if rules.timed}
        self._tick = len(timed) // TIMED_AT_ONCE * 1000
        self._moving = [(place, each) for place, each, rules in ruled if rules.own]
        self.kept.clear()

    def _follow_attributes(self, rules: list[Rules]) -> None:
        """Note which attributes the expressions now use: of ads, and of the moment."""
        paths = tuple(dict.fromkeys(path for each in rules for path in each.published))
        self.paths = self.paths if self.paths == paths else paths
        moment = list(dict.fromkeys(path for each in rules for path in each.moment))
        self._moment = [read for path in moment if (read := attributes.reader(path)) is not None]
        self._timed = any(path in attributes.TIMED for path in moment)

    def get(
        self, subject: Subject, key: Values, published: Mapping[str, Value], owners: tuple[str, ...]
    ) -> list[Entry]:
        """Return the order for a host of these owners whose ad has this key; overwrite the subject's bag and class."""
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
        """Sort by rank: each owner's classes keep, among themselves, the places that were that owner's."""
        of: dict[str, list[Entry]] = {}
        for entry, each in zip(places, self._listed, strict=True):
            if entry is not None:
                of.setdefault(each.bag.owner, []).append(entry)
        if len(of) == 1:
            return sorted(*of.values())
        heads = {owner: iter(sorted(entries)) for owner, entries in of.items()}
        return [next(heads[each.bag.owner]) for entry, each in zip(places, self._listed, strict=True) if entry]


def _place(each: ReadyClass, subject: Subject, published: Mapping[str, Value]) -> Entry | None:
    if each.rules is None:
        return each.entry
    subject.bag, subject.cls = each.bag, each.cls
    if not each.rules.admit(subject, published):
        return None
    key, number = each.entry
    place = each.rules.place(key, subject, published)
    return each.entry if place is key else (place, number)


def _is_same(these: list[ReadyClass], those: list[ReadyClass]) -> bool:
    """Compare by identity: a class is one object for life, and so are a bag's rules while its policy stays."""
    if len(these) != len(those):
        return False
    pairs = zip(these, those, strict=True)
    return all(a.cls is b.cls and a.rules is b.rules and a.entry == b.entry for a, b in pairs)


def ready_classes(state: State, rules: Callable[[BagState], Rules]) -> list[ReadyClass]:
    """Return the ready list, with the rules of each bag that has expressions."""
    found = []
    for entry in state.ready:
        cls = state.classes[entry[1]]
        bag = state.bags[cls.bag]
        found.append(ReadyClass(entry, bag, cls, rules(bag) if cls.has_expressions else None))
    return found

MINUTE = 60_000  # ms for which an ad stands


@dataclass(slots=True)
class Ad:
    """The ad of a pilot's host, as it was published last."""

    at: int
    values: dict[str, Value]
    paths: tuple[str, ...] = ()  # attributes that policies now use
    key: tuple[Value, ...] = ()  # and their values: hosts with the same key are alike


class HostOrders:
    """Orders, admission and places, as expressions decide them.  Volatile: all of them follow from the state."""

    def __init__(self) -> None:
        self._ads: dict[int, Ad] = {}  # by pilot
        self._rules: dict[int, Rules] = {}  # by bag
        self._most = MOST_PROGRAMS  # rules kept, those of removed bags included
        self._stamp: tuple[int, int] = (-1, -1)  # versions of the ready list and the policies that the orders follow
        self._orders = OrderCache()
        self._in_vain: dict[tuple[int, tuple[Value, ...]], None] = {}  # class of pilots, key of their ads
        self._in_vain_at = -1  # `State.version` that these were refused at

    @property
    def steady(self) -> bool:
        """Do orders hold until an event changes the state?"""
        return self._orders.steady

    def order(self, state: State, now: int, pilot: PilotState) -> list[Entry]:
        """Return the ready list as the pilot sees it: what its host may have, the highest rank first."""
        ad, orders = self._ad(state, now, pilot), self._orders
        if self._stamp != (state.ready_version, state.limits_changed):
            self._most = max(MOST_PROGRAMS, 2 * len(state.bags))  # fewer would read all rules again for every request
            orders.renew(ready_classes(state, self._rules_of))
            self._stamp = (state.ready_version, state.limits_changed)
        if ad.paths is not orders.paths:
            ad.paths, ad.key = orders.paths, tuple([ad.values[path] for path in orders.paths])
        bag = state.bags[state.classes[state.ready[0][1]].bag]
        subject = Subject(state, now, bag, state.sites[pilot.site], pilot=pilot)
        return orders.get(subject, ad.key, ad.values, state.pilot_classes[pilot.cls].owners)

    def admits(self, state: State, now: int, pilot: PilotState, cls: TaskClass) -> bool:
        """May the pilot have tasks of that class, as far as expressions go?"""
        if not cls.has_expressions:
            return True
        bag, ad = state.bags[cls.bag], self._ad(state, now, pilot)
        subject = Subject(state, now, bag, state.sites[pilot.site], cls=cls, pilot=pilot)
        return self._rules_of(bag).admit(subject, ad.values)

    def published(self, state: State, now: int, pilot: PilotState) -> Mapping[str, Value]:
        """Return the ad of the pilot's host."""
        return self._ad(state, now, pilot).values

    def place(self, state: State, now: int, pilot: PilotState, cls: TaskClass) -> tuple[Any, ...]:
        """Return the sort key of the class among its owner's classes, for such a pilot; lower goes first."""
        if not cls.has_expressions:
            return cls.order_key
        bag, ad = state.bags[cls.bag], self._ad(state, now, pilot)
        subject = Subject(state, now, bag, state.sites[pilot.site], cls=cls, pilot=pilot)
        return self._rules_of(bag).place(cls.order_key, subject, ad.values)

    def note_in_vain(self, state: State, pilot: PilotState) -> None:
        """Note that no task fits the pilot, nor others of its class on hosts that are alike."""
        if not self._orders.steady:
            return
        if self._in_vain_at != state.version:
            self._in_vain_at, self._in_vain = state.version, {}
        self._in_vain[pilot.cls, self._ads[pilot.number].key] = None

    def in_vain(self, state: State, now: int, pilot: PilotState) -> bool:
        """Was a pilot like it refused, and has nothing changed since?"""
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
