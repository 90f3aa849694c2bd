"""Matchmaking: which policies a bag may have, which hosts they admit, and why not (G3, G4, G7).

    requirements   hosts that the bag's tasks may run on
    sites          sites where they may run, and where pilots are started for them
    rank           which of an owner's bags a host serves first; without one a bag's priority counts

Rules
  * An expression that is undefined, or an error, matches nothing.  Such a rank counts as 0.
  * An expression is evaluated for a class of tasks and a host, and again only when an attribute that it uses has
    changed (`expressions/classads.py`).  `host_orders.py` keeps the orders in which hosts see the classes.
  * Rank moves an owner's bags among their own places in the order, never before others'.
  * A refused host learns what has changed when it asks again; it is woken at once only when policies change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from windfall.core.decide.grant import per_host
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
from windfall.model.policies.presets import PRESETS

POLICIES = ("requirements", "rank", "sites", "per-host", "replicate", "attempt-deadline", *replica_caps.CAPS)
MOST_HOSTS = 1_000  # hosts that are asked before a warning that a policy matches none,
LEAST_HOSTS = 25
MOST_READ = 200_000  # and characters of expressions that are evaluated for them
MOST_BY_TASK = 1_000_000  # characters of expressions that use the task, times a bag's targets


# --- accepting policies -----------------------------------------------------------------------------------------------


def wrong_policy(policy: Mapping[str, str], targets: int = 1) -> BadInput | None:
    """Return why these cannot be the policies of a bag with so many targets; None if they can."""
    for key, text in policy.items():
        if error := _wrong_text(key, text):
            return error
    texts = {key: text for key, text in policy.items() if _is_expression(key, text)}
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


def _is_expression(key: str, text: str) -> bool:
    return key not in replica_caps.CAPS and text not in PRESETS


def _wrong_text(key: str, text: str) -> BadInput | None:
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
    return None


# --- what expressions depend on ---------------------------------------------------------------------------------------


def is_lasting(bag: BagState) -> bool:
    """Do the bag's expressions use only attributes that neither time nor what hosts do can change?"""
    keys = [key for key in MATCHING_POLICIES if key in bag.policy]
    return all(path in attributes.LASTING for key in keys for path in program_of(bag, key).uses)


def tells_time(bag: BagState) -> bool:
    """May time alone change which sites match?"""
    return "sites" in bag.policy and any(path in attributes.PASSING for path in program_of(bag, "sites").uses)


def serves_site(state: State, now: int, bag: BagState, site: SiteState) -> bool:
    """May pilots be started at the site for the bag?"""
    if "sites" not in bag.policy:
        return True
    expression, subject = program_of(bag, "sites"), Subject(state, now, bag, site)
    return matches(expression.result(tuple(attributes.value_now(subject, path) for path in expression.uses)))


# --- saying why -------------------------------------------------------------------------------------------------------


def reasons(state: State, now: int, cls: TaskClass, site: SiteState, pilot: PilotState | None) -> list[tuple[str, str]]:
    """Return each of the bag's expressions that must match, and why it does not; "" where it does."""
    bag = state.bags[cls.bag]
    subject = Subject(state, now, bag, site, cls=cls, pilot=pilot)
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
    """Return the value of the bag's rank at a host, and why it has none there; "" where it has one."""
    bag, site, published = state.bags[cls.bag], state.sites[pilot.site], attributes.host_ad(state, pilot, now)
    subject, text = Subject(state, now, bag, site, cls=cls, pilot=pilot), bag.policy["rank"]
    known = {path: attributes.value_from_ad(subject, path, published) for path in program(text).uses}
    return program(text).result(tuple(known.values())), why_no_value(text, known)


def seen_by(state: State, now: int, pilot: PilotState, classes: list[TaskClass]) -> list[tuple[Any, ...] | None]:
    """Return the place of each class in the order that the pilot sees; None: it may not have the class."""
    pc, site, ad = state.pilot_classes[pilot.cls], state.sites[pilot.site], attributes.host_ad(state, pilot, now)

    def place_of(cls: TaskClass) -> tuple[Any, ...] | None:
        if not state.cost_on(pc, cls):
            return None
        if not cls.has_expressions:
            return cls.order_key
        bag = state.bags[cls.bag]
        rules, subject = rules_of(bag.policy), Subject(state, now, bag, site, cls=cls, pilot=pilot)
        return rules.place(cls.order_key, subject, ad) if rules.admit(subject, ad) else None

    return [place_of(cls) for cls in classes]


def looked_at(bag: BagState) -> int:
    """Return how many hosts a question about the bag goes through: fewer where its expressions are long."""
    written = sum(map(len, bag.policy.values()))
    return max(min(MOST_HOSTS, MOST_READ // max(written, 1)), LEAST_HOSTS)


def serving(state: State, bag: BagState) -> Iterator[PilotState]:
    """Yield the pilots that serve the bag's owner now, as many as a question goes through."""
    found = (pilot for pilot in state.pilots.values()
             if pilot.state == LIVE and bag.owner in state.pilot_classes[pilot.cls].owners)
    return islice(found, looked_at(bag))


def prospects(state: State, now: int, bag: BagState) -> tuple[int, int, str]:
    """Return how many hosts match, of how many that serve the bag's owner now, and why the first does not match.

    Where no host serves the owner: why no pilot will be started either.  No reason for a bag without tasks to grant."""
    match = known = 0
    why = ""
    classes = sorted(bag.classes.values(), key=lambda cls: (not cls.ready, cls.number))
    for pilot in serving(state, bag) if classes else ():
        known += 1
        refused = _why_refused(state, now, bag, classes[0], pilot)
        if refused is None:
            match += 1
        else:
            why = why or f"{format_value(pilot.host_name)[1:-1]}: {refused}"
    if not _has_tasks_to_grant(state, bag):
        return match, known, ""
    return match, known, why if known or not classes else _no_site(state, now, bag, classes[0])


def _why_refused(state: State, now: int, bag: BagState, cls: TaskClass, pilot: PilotState) -> str | None:
    """Say why the bag's policies refuse the pilot's host; None if they admit it."""
    refused = per_host.why_none(state, now, pilot, cls)
    site = state.sites[pilot.site]
    subject = Subject(state, now, bag, site, cls=cls, pilot=pilot)
    if not refused and rules_of(bag.policy).admit(subject, attributes.host_ad(state, pilot, now)):
        return None
    return next((text for _, text in reasons(state, now, cls, site, pilot) if text), refused)


def _has_tasks_to_grant(state: State, bag: BagState) -> bool:
    may_have_more = bag.counts[ACTIVE] and (bag.number in state.replicating or bag.number in state.deadlines)
    return bool(bag.open or bag.counts[READY] or bag.counts[WAITING] or may_have_more)


def _no_site(state: State, now: int, bag: BagState, cls: TaskClass) -> str:
    """Say why the first of the owner's sites does not match; "" if any does."""
    sites = [site for site in state.sites.values() if bag.owner in (site.owner, *site.shared) and not site.removed]
    refusals = {site.name: dict(reasons(state, now, cls, site, None)).get("sites", "") for site in sites}
    return next((f"{name}: {text}" for name, text in refusals.items()), "") if all(refusals.values()) else ""
