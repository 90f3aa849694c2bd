"""Matchmaking: which bags' expressions let a host have their tasks, and which of them goes first there (G3, G4, G7).

    requirements   hosts that the bag's tasks may run on
    sites          sites where they may, and where pilots are started for them
    rank           which of an owner's bags a host serves first; without one a bag's priority counts

Rules
  * An expression that is undefined, or an error, matches nothing.  A rank that is counts as 0.
  * Expressions are evaluated for a class of tasks and a host, and only again when the value of an attribute that they
    speak of has changed (`classads.py` remembers by these).  So are the orders in which hosts see the classes kept
    (`orders.py`).
  * Rank is among one's own: it moves an owner's bags among their own places in the order, never before others'.
  * What has changed since a host was turned away it learns when it asks again, or, if policies have, at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from windfall.core.decide.grant import per_host
from windfall.core.decide.replicas.candidates import PRESETS
from windfall.core.expressions import attributes
from windfall.core.expressions.attributes import Subject
from windfall.core.expressions.classads import (
    Result,
    available,
    format_value,
    matches,
    program,
    program_of,
    why_no_value,
    why_not,
)
from windfall.core.expressions.rules import DECIDE, rules_of
from windfall.core.messages.lifecycle import ACTIVE, LIVE, READY, WAITING
from windfall.core.state.world import MATCHING_POLICIES, BagState, PilotState, SiteState, State, TaskClass
from windfall.errors import BadInput
from windfall.model.policies import expressions, replica_caps

POLICIES = ("requirements", "rank", "sites", "per-host", "replicate", "attempt-deadline", *replica_caps.CAPS)
MOST_HOSTS = 1_000  # that are looked at to warn of a policy that matches none,
LEAST_HOSTS = 25
MOST_READ = 200_000  # and characters of expressions that are evaluated for them
MOST_BY_TASK = 1_000_000  # characters of expressions that speak of tasks, times a bag's targets


def wrong_policy(policy: Mapping[str, str], targets: int = 1) -> BadInput | None:
    """Why these cannot be the policies of a bag with so many targets."""
    for key, text in policy.items():
        if key not in POLICIES:
            return BadInput(f"there is no policy called {key[:40]!r} yet", f"there is {', '.join(POLICIES)}")
        try:
            if key in replica_caps.CAPS:
                replica_caps.check(text, key)
            elif key != "replicate" or text not in PRESETS:
                expressions.check(text, key)
        except BadInput as error:
            error.message = error.message if key in replica_caps.CAPS else f"{key}, {error.message}"
            return error
    texts = {key: text for key, text in policy.items() if key not in replica_caps.CAPS and text not in PRESETS}
    if texts and not available():
        return BadInput("this server cannot evaluate expressions: it has no classad2", "install htcondor beside it")
    for key, text in texts.items():
        if why := program(text).broken:
            return BadInput(f"{key}: {why}", "write it in another way")
    written = sum(len(text) for text in texts.values() if any(path.startswith("Task.") for path in program(text).uses))
    if written * targets > MOST_BY_TASK:
        return BadInput(f"expressions of {written:,} characters that speak of tasks, for {targets:,} targets: every "
                        "host would have all of them evaluated", f"at most {MOST_BY_TASK:,} characters times targets")
    return None


def is_lasting(bag: BagState) -> bool:
    """Does nothing that its expressions speak of change by itself, or with what hosts do?"""
    keys = [key for key in MATCHING_POLICIES if key in bag.policy]
    return all(path in attributes.LASTING for key in keys for path in program_of(bag, key).uses)


def tells_time(bag: BagState) -> bool:
    """Will other sites do for it after a while, though nothing happens?"""
    return "sites" in bag.policy and any(path in attributes.PASSING for path in program_of(bag, "sites").uses)


def serves_site(state: State, now: int, bag: BagState, site: SiteState) -> bool:
    """May pilots be started there for the bag?"""
    if "sites" not in bag.policy:
        return True
    known, subject = program_of(bag, "sites"), Subject(state, now, bag, site)
    return matches(known.result(tuple(attributes.value_now(subject, path) for path in known.uses)))


# --- saying why -----------------------------------------------------------------------------------------------------


def reasons(state: State, now: int, cls: TaskClass, site: SiteState, pilot: PilotState | None) -> list[tuple[str, str]]:
    """Of the bag's expressions that must match: which it is, and why it does not; "" where it does."""
    bag = state.bags[cls.bag]
    subject = Subject(state, now, bag, site, cls, pilot)
    published = attributes.host_ad(state, pilot, now) if pilot is not None else {}
    found = []
    for key in DECIDE:
        text = bag.policy.get(key)
        if text and (pilot is not None or key == "sites"):
            known = {path: published[path] if path in published else attributes.value_now(subject, path)
                     for path in program(text).uses}
            found.append((key, why_not(text, known)))
    return found


def ranked(state: State, now: int, cls: TaskClass, pilot: PilotState) -> tuple[Result, str]:
    """What its bag's rank comes to at a host, and why it comes to nothing there; "" where it does."""
    bag, site, published = state.bags[cls.bag], state.sites[pilot.site], attributes.host_ad(state, pilot, now)
    subject, text = Subject(state, now, bag, site, cls, pilot), bag.policy["rank"]
    known = {path: attributes.value_from_ad(subject, path, published) for path in program(text).uses}
    return program(text).result(tuple(known.values())), why_no_value(text, known)


def seen_by(state: State, now: int, pilot: PilotState, classes: list[TaskClass]) -> list[tuple[Any, ...] | None]:
    """Where each class stands in the order that the pilot sees; None: it may not have it."""
    pc, site, ad = state.pilot_classes[pilot.cls], state.sites[pilot.site], attributes.host_ad(state, pilot, now)
    found: list[tuple[Any, ...] | None] = []
    for cls in classes:
        bag = state.bags[cls.bag]
        rules, subject = (
            rules_of(bag.policy) if cls.has_expressions else None,
            Subject(state, now, bag, site, cls, pilot),
        )
        if not state.cost_on(pc, cls) or (rules is not None and not rules.admit(subject, ad)):
            found.append(None)
        else:
            found.append(cls.order_key if rules is None else rules.place(cls.order_key, subject, ad))
    return found


def looked_at(bag: BagState) -> int:
    """How many hosts are gone through for somebody who asks about a bag: fewer, where its expressions are long."""
    written = sum(map(len, bag.policy.values()))
    return max(min(MOST_HOSTS, MOST_READ // max(written, 1)), LEAST_HOSTS)


def serving(state: State, bag: BagState) -> Iterator[PilotState]:
    """Pilots that serve its owner now; not more of them than are looked at."""
    found = (pilot for pilot in state.pilots.values()
             if pilot.state == LIVE and bag.owner in state.pilot_classes[pilot.cls].owners)
    return islice(found, looked_at(bag))


def prospects(state: State, now: int, bag: BagState) -> tuple[int, int, str]:
    """Of the hosts that serve its owner now: how many match, how many there are, and why the first does not.  Where
    there are none, why no pilot will be started either, if that is so.  Of a bag with nothing to hand out nobody asks
    why."""
    match = known = 0
    why = ""
    classes = sorted(bag.classes.values(), key=lambda cls: (not cls.ready, cls.number))
    rules = rules_of(bag.policy)
    for pilot in serving(state, bag) if classes else ():
        known += 1
        subject = Subject(state, now, bag, state.sites[pilot.site], classes[0], pilot)
        wanting = per_host.why_none(state, now, pilot, classes[0])
        fits = not wanting and rules.admit(subject, attributes.host_ad(state, pilot, now))
        match += fits
        if not fits and not why:
            said = [text for _, text in reasons(state, now, classes[0], subject.site, pilot) if text]
            why = f"{format_value(pilot.host_name)[1:-1]}: {next(iter(said), wanting)}"
    again = bag.counts[ACTIVE] and (bag.number in state.replicating or bag.number in state.deadlines)
    if not (bag.open or bag.counts[READY] or bag.counts[WAITING] or again):
        return match, known, ""
    return match, known, why if known or not classes else _no_site(state, now, bag, classes[0])


def _no_site(state: State, now: int, bag: BagState, cls: TaskClass) -> str:
    """Why the first of its owner's sites does not match; "" if any does."""
    sites = [site for site in state.sites.values() if bag.owner in (site.owner, *site.shared) and not site.removed]
    wanting = {site.name: dict(reasons(state, now, cls, site, None)).get("sites", "") for site in sites}
    return next((f"{name}: {said}" for name, said in wanting.items()), "") if all(wanting.values()) else ""
