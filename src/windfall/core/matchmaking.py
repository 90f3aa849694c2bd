"""Matchmaking: which bags' expressions let a host have their tasks, and which of them goes first there (G3, G4, G7).

    requirements   hosts that the bag's tasks may run on
    sites          sites where they may, and where pilots are started for them
    rank           which of an owner's bags a host serves first; without one a bag's priority counts

Rules
  * An expression that is undefined, or an error, matches nothing.  A rank that is counts as 0.
  * Expressions are evaluated for a class of tasks and a host, and only again when the value of an attribute that they
    speak of has changed (`classads.py` remembers by these).  A host's order of classes is kept while the ready list,
    the policies and the host's ad are what they were, unless it depends on what may change with every request.
  * Rank is among one's own: it moves an owner's bags among their own places in the order, never before others'.
  * What has changed since a host was turned away it learns when it asks again, or, if policies have, at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windfall.core import ads
from windfall.core.ads import Subject
from windfall.core.classads import Value, available, matches, program, why_not
from windfall.core.lifecycle import LIVE
from windfall.core.state import BagState, PilotState, SiteState, State, TaskClass
from windfall.errors import BadInput
from windfall.model import expressions

if TYPE_CHECKING:
    from windfall.core.engine import Core

POLICIES = ("requirements", "rank", "sites")
DECIDE = ("sites", "requirements")  # those that must match
MINUTE = 60_000  # ms for which an ad stands
MOST_HOSTS = 1_000  # that are looked at to warn of a policy that matches none

Entry = tuple[tuple[Any, ...], int]  # as in State.ready


def wrong_policy(policy: Mapping[str, str]) -> BadInput | None:
    """Why these cannot be a bag's policies."""
    for key, text in policy.items():
        if key not in POLICIES:
            return BadInput(f"there is no policy called {key[:40]!r} yet", f"there is {', '.join(POLICIES)}")
        try:
            expressions.check(text, key)
        except BadInput as error:
            error.message = f"{key}, {error.message}"
            return error
    if policy and not available():
        return BadInput("this server cannot evaluate expressions: it has no classad2", "install htcondor beside it")
    return None


@dataclass(slots=True)
class Ad:
    """Of a host, as it was published last, and what followed from it."""

    at: int
    values: dict[str, Value]
    stamp: tuple[int, ...] = ()  # of what the order follows from; none: it must be made each time
    order: list[Entry] = field(default_factory=list)


class Matchmaker:
    """Volatile: everything here follows from the state."""

    def __init__(self) -> None:
        self._ads: dict[int, Ad] = {}  # by pilot

    def order(self, core: Core, pilot: PilotState) -> list[Entry]:
        """The ready list as this pilot is to see it: what may go there, the highest rank first."""
        state, ad = core.state, self._ad(core, pilot)
        stamp = (state.version, state.allowed, ad.at)
        if ad.stamp != stamp:
            found, steady = self._sorted(core, pilot, ad)
            ad.order, ad.stamp = found, stamp if steady else ()
        return ad.order

    def admits(self, core: Core, pilot: PilotState, cls: TaskClass) -> bool:
        """May it have tasks of that class, as far as expressions go?"""
        if not cls.ruled:
            return True
        subject = Subject(core.state, core.now, core.state.bags[cls.bag], core.state.sites[pilot.site], cls, pilot)
        return _admitted(subject, self._ad(core, pilot).values)

    def forget(self, pilot: int) -> None:
        self._ads.pop(pilot, None)

    def _ad(self, core: Core, pilot: PilotState) -> Ad:
        ad = self._ads.get(pilot.number)
        if ad is None or core.now - ad.at >= MINUTE:
            values = ads.host_ad(core.state, pilot, core.now)
            if ad is not None and ad.values == values:
                ad.at = core.now
            else:
                ad = self._ads[pilot.number] = Ad(core.now, values)
        return ad

    def _sorted(self, core: Core, pilot: PilotState, ad: Ad) -> tuple[list[Entry], bool]:
        """The order, and whether it holds until something is heard of."""
        state, steady = core.state, True
        site, values = state.sites[pilot.site], ad.values
        found: list[tuple[str, Entry]] = []
        for key, number in state.ready:
            cls = state.classes[number]
            bag = state.bags[cls.bag]
            if not cls.ruled:
                found.append((bag.owner, (key, number)))
                continue
            steady = steady and _is_steady(bag)
            subject = Subject(state, core.now, bag, site, cls, pilot)
            if _admitted(subject, values):
                found.append((bag.owner, ((-_rank(subject, values, key), *key[1:]), number)))
        return _ranked(found), steady


def _ranked(found: list[tuple[str, Entry]]) -> list[Entry]:
    """By rank, each owner's in the places that were that owner's."""
    owners: dict[str, list[Entry]] = {}
    for owner, entry in found:
        owners.setdefault(owner, []).append(entry)
    for entries in owners.values():
        entries.sort()
    if len(owners) == 1:
        return next(iter(owners.values()))
    heads = {owner: iter(entries) for owner, entries in owners.items()}
    return [next(heads[owner]) for owner, _ in found]


def _is_steady(bag: BagState) -> bool:
    """Does nothing that its expressions speak of change by itself?"""
    return all(path in ads.LASTING or path in ads.LEARNT for text in bag.policy.values() for path in program(text).uses)


def is_lasting(bag: BagState) -> bool:
    """Nor with what hosts do?"""
    return all(path in ads.LASTING for text in bag.policy.values() for path in program(text).uses)


def _values(subject: Subject, published: Mapping[str, Value], uses: Iterable[str]) -> tuple[Value, ...]:
    return tuple([published[path] if path in published else ads.value(subject, path) for path in uses])


def _admitted(subject: Subject, published: Mapping[str, Value]) -> bool:
    for key in DECIDE:
        text = subject.bag.policy.get(key)
        if text:
            known = program(text)
            if not matches(known.result(_values(subject, published, known.uses))):
                return False
    return True


def _rank(subject: Subject, published: Mapping[str, Value], key: tuple[Any, ...]) -> float:
    text = subject.bag.policy.get("rank")
    if not text:
        return -float(key[0])  # its priority
    known = program(text)
    result = known.result(_values(subject, published, known.uses))
    return 0.0 if isinstance(result, str) else float(result)


def serves_site(state: State, now: int, bag: BagState, site: SiteState) -> bool:
    """May pilots be started there for the bag?"""
    text = bag.policy.get("sites")
    if not text:
        return True
    known = program(text)
    return matches(known.result(_values(Subject(state, now, bag, site), {}, known.uses)))


# --- saying why -----------------------------------------------------------------------------------------------------


def reasons(state: State, now: int, cls: TaskClass, site: SiteState, pilot: PilotState | None) -> list[tuple[str, str]]:
    """Of the bag's expressions that must match: which it is, and why it does not; "" where it does."""
    bag = state.bags[cls.bag]
    subject = Subject(state, now, bag, site, cls, pilot)
    found = []
    for key in DECIDE:
        text = bag.policy.get(key)
        if text and (pilot is not None or key == "sites"):
            known = {path: ads.value(subject, path) for path in program(text).uses}
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
