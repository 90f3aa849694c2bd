"""Matchmaking: which bags' expressions let a host have their tasks, and which of them goes first there (G3, G4, G7).

    requirements   hosts that the bag's tasks may run on
    sites          sites where they may, and where pilots are started for them
    rank           which of an owner's bags a host serves first; without one a bag's priority counts

Rules
  * An expression that is undefined, or an error, matches nothing.  A rank that is counts as 0.
  * Expressions are evaluated for a class of tasks and a host, and only again when the value of an attribute that they
    speak of has changed (`classads.py` remembers by these).  The order of classes is kept while the ready list and the
    policies are what they were, for all hosts whose ads are alike in what policies speak of; unless it depends on what
    may change with every request.
  * Rank is among one's own: it moves an owner's bags among their own places in the order, never before others'.
  * What has changed since a host was turned away it learns when it asks again, or, if policies have, at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windfall.core import ads
from windfall.core.ads import Subject
from windfall.core.classads import MOST_PROGRAMS, Result, Value, available, matches, program, why_not
from windfall.core.lifecycle import LIVE
from windfall.core.replication import PRESETS
from windfall.core.state import LIFTED, MATCHED, BagState, PilotState, SiteState, State, TaskClass
from windfall.errors import BadInput
from windfall.model import expressions

if TYPE_CHECKING:
    from windfall.core.engine import Core

DECIDE = ("sites", "requirements")  # those that must match
POLICIES = ("requirements", "rank", "sites", "per-host", "replicate", "attempt-deadline")
MINUTE = 60_000  # ms for which an ad stands
MOST_KEPT = 500_000  # entries of all orders together
MOST_HOSTS = 1_000  # that are looked at to warn of a policy that matches none

Entry = tuple[tuple[Any, ...], int]  # as in State.ready


def wrong_policy(policy: Mapping[str, str]) -> BadInput | None:
    """Why these cannot be a bag's policies."""
    for key, text in policy.items():
        if key not in POLICIES:
            return BadInput(f"there is no policy called {key[:40]!r} yet", f"there is {', '.join(POLICIES)}")
        try:
            if key != "replicate" or text not in PRESETS:
                expressions.check(text, key)
        except BadInput as error:
            error.message = f"{key}, {error.message}"
            return error
    if policy and not available():
        return BadInput("this server cannot evaluate expressions: it has no classad2", "install htcondor beside it")
    return None


class Rule:
    """One expression, and how the values that it takes are found: in the host's ad, or by reading the state."""

    __slots__ = ("known", "program", "reads")

    def __init__(self, text: str) -> None:
        self.program = program(text)
        self.known = self.program.known
        self.reads = [(path, ads.reader(path)) for path in self.program.uses]

    def result(self, subject: Subject, published: Mapping[str, Value]) -> Result:
        values = tuple([read(subject) if read is not None else published[path] for path, read in self.reads])
        found = self.known.get(values)
        return self.program.result(values) if found is None else found


@dataclass(slots=True)
class Rules:
    """Of a bag."""

    policy: dict[str, str]  # that they were made of
    decide: list[Rule]
    rank: Rule | None
    published: list[str]  # attributes of hosts and sites that they speak of
    steady: bool  # nothing that they speak of changes by itself


def _rules(policy: dict[str, str]) -> Rules:
    uses = [path for key in MATCHED if key in policy for path in program(policy[key]).uses]
    decide = [Rule(policy[key]) for key in DECIDE if key in policy]
    steady = all(path in ads.LASTING or path in ads.LEARNT for path in uses)
    published = [path for path in uses if ads.reader(path) is None]
    return Rules(policy, decide, Rule(policy["rank"]) if "rank" in policy else None, published, steady)


@dataclass(slots=True)
class Ad:
    """Of a host, as it was published last."""

    at: int
    values: dict[str, Value]
    paths: tuple[str, ...] = ()  # those of the values that policies now speak of
    key: tuple[Value, ...] = ()  # and these values: hosts with the same are alike


class Matchmaker:
    """Volatile: everything here follows from the state."""

    def __init__(self) -> None:
        self._ads: dict[int, Ad] = {}  # by pilot
        self._rules: dict[int, Rules] = {}  # by bag
        self._stamp: tuple[int, int] = (-1, -1)  # of what the following three are made of
        self._paths: tuple[str, ...] = ()
        self._orders: dict[tuple[Value, ...], list[Entry]] = {}  # by what hosts publish
        self.steady = True  # orders hold until something is heard of

    def order(self, core: Core, pilot: PilotState) -> list[Entry]:
        """The ready list as this pilot is to see it: what may go there, the highest rank first."""
        state, ad = core.state, self._ad(core, pilot)
        if self._stamp != (state.version, state.allowed):
            self._renew(state)
        if not self.steady:
            return self._sorted(core, pilot, ad)
        if ad.paths is not self._paths:
            ad.paths, ad.key = self._paths, tuple([ad.values[path] for path in self._paths])
        found = self._orders.get(ad.key)
        if found is None:
            if len(self._orders) * len(state.ready) > MOST_KEPT:
                self._orders.clear()
            found = self._orders[ad.key] = self._sorted(core, pilot, ad)
        return found

    def _renew(self, state: State) -> None:
        """The ready list, or a policy, has changed."""
        paths: dict[str, None] = {}
        self.steady = True
        for _, number in state.ready:
            cls = state.classes[number]
            if cls.ruled:
                rules = self._rules_of(state.bags[cls.bag])
                self.steady = self.steady and rules.steady
                paths.update(dict.fromkeys(rules.published))
        self._paths = self._paths if self._paths == tuple(paths) else tuple(paths)
        self._orders.clear()
        self._stamp = (state.version, state.allowed)

    def admits(self, core: Core, pilot: PilotState, cls: TaskClass) -> bool:
        """May it have tasks of that class, as far as expressions go?"""
        if not cls.ruled:
            return True
        bag, ad = core.state.bags[cls.bag], self._ad(core, pilot)
        subject = Subject(core.state, core.now, bag, core.state.sites[pilot.site], cls, pilot)
        return _all_match(self._rules_of(bag).decide, subject, ad.values)

    def published(self, core: Core, pilot: PilotState) -> Mapping[str, Value]:
        """Its host's ad."""
        return self._ad(core, pilot).values

    def with_others(self, core: Core, pilot: PilotState, ready: list[Entry], more: list[TaskClass]) -> list[Entry]:
        """The same order with some more classes in it."""
        listed = {number for _, number in ready}
        found = [*ready]
        for cls in more:
            if cls.number not in listed and self.admits(core, pilot, cls):
                found.append((self._place(core, pilot, cls), cls.number))
        return sorted(found) if len(found) > len(ready) else ready

    def _place(self, core: Core, pilot: PilotState, cls: TaskClass) -> tuple[Any, ...]:
        bag, ad = core.state.bags[cls.bag], self._ad(core, pilot)
        rank = self._rules_of(bag).rank if cls.ruled else None
        if rank is None:
            return cls.key
        subject = Subject(core.state, core.now, bag, core.state.sites[pilot.site], cls, pilot)
        return _with_rank(cls.key, rank.result(subject, ad.values))

    def forget(self, pilot: int) -> None:
        self._ads.pop(pilot, None)

    def _rules_of(self, bag: BagState) -> Rules:
        rules = self._rules.get(bag.number)
        if rules is None or rules.policy is not bag.policy:
            if len(self._rules) >= MOST_PROGRAMS:
                self._rules.clear()
            rules = self._rules[bag.number] = _rules(bag.policy)
        return rules

    def _ad(self, core: Core, pilot: PilotState) -> Ad:
        ad = self._ads.get(pilot.number)
        if ad is None or core.now - ad.at >= MINUTE:
            ad = self._ads[pilot.number] = Ad(core.now, ads.host_ad(core.state, pilot, core.now))
        return ad

    def _sorted(self, core: Core, pilot: PilotState, ad: Ad) -> list[Entry]:
        state, values = core.state, ad.values
        subject: Subject | None = None  # one for all: there may be a thousand
        found: list[Entry] = []
        owners: list[str] = []
        for key, number in state.ready:
            cls, place = state.classes[number], key
            bag = state.bags[cls.bag]
            if cls.ruled:
                rules = self._rules_of(bag)
                if subject is None:
                    subject = Subject(state, core.now, bag, state.sites[pilot.site], cls, pilot)
                subject.bag, subject.cls = bag, cls
                if not _all_match(rules.decide, subject, values):
                    continue
                if rules.rank is not None:
                    place = _with_rank(key, rules.rank.result(subject, values))
            found.append((place, number))
            owners.append(bag.owner)
        return _ranked(found, owners)


def _all_match(rules: list[Rule], subject: Subject, published: Mapping[str, Value]) -> bool:
    for rule in rules:  # noqa: SIM110  (a generator costs more than what it would loop over)
        if not matches(rule.result(subject, published)):
            return False
    return True


def _with_rank(key: tuple[Any, ...], rank: Result) -> tuple[Any, ...]:
    """In place of the priority that the key begins with; what is lifted stays so."""
    if key[0] == LIFTED:
        return key
    return (0.0 if isinstance(rank, str) else -rank, *key[1:])


def _ranked(found: list[Entry], owners: list[str]) -> list[Entry]:
    """By rank, each owner's in the places that were that owner's."""
    if owners and owners.count(owners[0]) == len(owners):
        return sorted(found)
    of: dict[str, list[Entry]] = {}
    for owner, entry in zip(owners, found, strict=True):
        of.setdefault(owner, []).append(entry)
    heads = {owner: iter(sorted(entries)) for owner, entries in of.items()}
    return [next(heads[owner]) for owner in owners]


def is_lasting(bag: BagState) -> bool:
    """Does nothing that its expressions speak of change by itself, or with what hosts do?"""
    texts = [bag.policy[key] for key in MATCHED if key in bag.policy]
    return all(path in ads.LASTING for text in texts for path in program(text).uses)


def serves_site(state: State, now: int, bag: BagState, site: SiteState) -> bool:
    """May pilots be started there for the bag?"""
    text = bag.policy.get("sites")
    if not text:
        return True
    known, subject = program(text), Subject(state, now, bag, site)
    return matches(known.result(tuple(ads.value(subject, path) for path in known.uses)))


# --- saying why -----------------------------------------------------------------------------------------------------


def reasons(state: State, now: int, cls: TaskClass, site: SiteState, pilot: PilotState | None) -> list[tuple[str, str]]:
    """Of the bag's expressions that must match: which it is, and why it does not; "" where it does."""
    bag = state.bags[cls.bag]
    subject = Subject(state, now, bag, site, cls, pilot)
    published = ads.host_ad(state, pilot, now) if pilot is not None else {}
    found = []
    for key in DECIDE:
        text = bag.policy.get(key)
        if text and (pilot is not None or key == "sites"):
            known = {path: published[path] if path in published else ads.value(subject, path)
                     for path in program(text).uses}
            found.append((key, why_not(text, known)))
    return found


def prospects(state: State, now: int, bag: BagState) -> tuple[int, int, str]:
    """Of the hosts that serve its owner now: how many match, how many there are, and why the first does not."""
    match = known = 0
    why = ""
    classes = sorted(bag.classes.values(), key=lambda cls: (not cls.ready, cls.number))
    for pilot in state.pilots.values():
        if pilot.state != LIVE or bag.owner not in state.pilot_classes[pilot.cls].owners or not classes:
            continue
        known += 1
        wanting = [said for _, said in reasons(state, now, classes[0], state.sites[pilot.site], pilot) if said]
        match += not wanting
        why = why or next((f"{pilot.host_name}: {said}" for said in wanting), "")
        if known >= MOST_HOSTS:
            break
    return match, known, why
