"""Fold facts about intents into the state: the part of `apply` that is about pilots in batch systems.

Every count that is kept of intents (by state, by shape, what they reserve, which task they are for) is kept here, by
`_add` and `_move` alone; after a recovery `recount` makes them afresh.
"""

from __future__ import annotations

from windfall.core.messages import facts as f
from windfall.core.messages.bounds import add_core_ms
from windfall.core.messages.facts import Shape
from windfall.core.messages.lifecycle import ENDED, INTENDED, LEAVING, QUEUED, RUNNING, STOPPING
from windfall.core.state.columns import ref_of
from windfall.core.state.moves import INTENTS
from windfall.core.state.world import IntentState, SiteSession, SiteState, State, Waits
from windfall.model.checks.bag import TASK_PILOT_POLICIES

MOST_SHAPES = 64  # of which a site remembers how long they waited


def site_tended(state: State, fact: f.SiteTended) -> None:
    state.sites[fact.site].provisioner = fact.provisioner


def site_drained(state: State, fact: f.SiteDrained) -> None:
    state.sites[fact.site].drained = fact.on
    state.version += 1  # what was to go there may go elsewhere


def site_removed(state: State, fact: f.SiteRemoved) -> None:
    site = state.sites[fact.site]
    site.removed, site.drained, site.limits = True, False, f.Limits()
    site.best_shapes.clear()
    state.provisioned_sites.pop(fact.site, None)
    state.version += 1


def intents_made(state: State, fact: f.IntentsMade) -> None:
    for made in fact.intents:
        intent = IntentState(
            number=made.number, nonce=made.nonce, site=fact.site, shape=made.shape, reserved=made.reserved,
            bag=made.bag, task=made.task, made=fact.at, changed=fact.at,
        )
        state.intents[made.number] = intent
        state.next_intent = max(state.next_intent, made.number + 1)
        _add(state, intent)


def intents_accepted(state: State, fact: f.IntentsAccepted) -> None:
    for number, name in zip(fact.intents, fact.ids, strict=True):
        intent = state.intents[number]
        intent.batch_id = name
        if intent.state == INTENDED:
            _move(state, intent, QUEUED, fact.at)


def intents_running(state: State, fact: f.IntentsRunning) -> None:
    site = state.sites[fact.site]
    for number in fact.intents:
        intent = state.intents[number]
        intent.running_since = fact.at
        site.starting[number] = None
        waits_of(site, intent.shape).waited(fact.at - intent.made)
        _move(state, intent, RUNNING, fact.at)


def waits_of(site: SiteState, shape: Shape) -> Waits:
    """Return the waiting times of a site's pilots of one shape; a site keeps those of the shapes used last."""
    waits = site.waits.pop(shape, None) or Waits()
    site.waits[shape] = waits
    if len(site.waits) > MOST_SHAPES:
        del site.waits[next(iter(site.waits))]
    return waits


def intents_stopping(state: State, fact: f.IntentsStopping) -> None:
    for number in fact.intents:
        state.sites[fact.site].starting.pop(number, None)
        _move(state, state.intents[number], STOPPING, fact.at)


def intents_leaving(state: State, fact: f.IntentsLeaving) -> None:
    for number in fact.intents:
        state.sites[fact.site].starting.pop(number, None)
        _move(state, state.intents[number], LEAVING, fact.at)


def intents_ended(state: State, fact: f.IntentsEnded) -> None:
    """Forget intents that are over: a job whose nonce has no open intent is ordered stopped."""
    site = state.sites[fact.site]
    for number, used in zip(fact.intents, fact.used, strict=True):
        intent = state.intents.pop(number)
        _move(state, intent, ENDED, fact.at)
        if used:
            site.core_ms_used = add_core_ms(site.core_ms_used, used)
            site.best_shapes.clear()  # what it can still pay for may be less
        site.starting.pop(number, None)
        site.core_ms_reserved -= intent.reserved
        site.core_ms_released += intent.reserved
        del state.intent_nonces[intent.site, intent.nonce]
        if intent.task >= 0:
            of = state.task_pilots[ref_of(intent.bag, intent.task)]
            del of[number]
            if not of:
                del state.task_pilots[ref_of(intent.bag, intent.task)]
        if intent.pilot in state.pilots:
            state.pilots[intent.pilot].intent = 0


def take_pilot(state: State, number: int) -> None:
    """Join a pilot that has enrolled to the open intent of its nonce, if there is one."""
    pilot = state.pilots[number]
    intent = state.intents.get(state.intent_nonces.get((pilot.site, pilot.nonce), 0))
    if intent is not None:
        if intent.pilot in state.pilots:
            state.pilots[intent.pilot].intent = 0
        elif intent.state == RUNNING:  # said before by its batch system
            waits_of(state.sites[pilot.site], intent.shape).started(pilot.enrolled - intent.running_since)
        intent.pilot, pilot.intent = number, intent.number


def _add(state: State, intent: IntentState) -> None:
    site = state.sites[intent.site]
    site.intents[intent.state][intent.number] = None
    state.sites_with_orders[site.name] = None
    site.core_ms_reserved += intent.reserved
    _pool(site, intent, 1)
    state.intent_nonces[intent.site, intent.nonce] = intent.number
    if intent.task >= 0:
        state.task_pilots.setdefault(ref_of(intent.bag, intent.task), {})[intent.number] = None


def _move(state: State, intent: IntentState, new: int, at: int) -> None:
    INTENTS.check(intent.state, new, intent.number)
    site = state.sites[intent.site]
    del site.intents[intent.state][intent.number]
    _pool(site, intent, -1)
    intent.state, intent.changed = new, at
    _pool(site, intent, 1)
    state.sites_with_orders[site.name] = None
    if new != ENDED:
        site.intents[new][intent.number] = None


def _pool(site: SiteState, intent: IntentState, sign: int) -> None:
    if intent.state in (INTENDED, QUEUED) and intent.task < 0:
        left = site.queued_by_shape.get(intent.shape, 0) + sign
        site.queued_by_shape[intent.shape] = left
        if not left:
            del site.queued_by_shape[intent.shape]


def recount(state: State) -> None:
    """Rebuild all that is derived from intents, and begin the sessions with provisioners afresh, after a recovery."""
    state.intent_nonces.clear()
    state.task_pilots.clear()
    sites = {intent.site: None for intent in state.intents.values()}
    state.provisioned_sites = {s.name: None for s in state.sites.values() if s.limits.shapes or s.name in sites}
    state.bags_with_task_pilots = {
        bag.number: None for bag in state.bags.values() if bag.provision in TASK_PILOT_POLICIES
    }
    for site in state.sites.values():
        site.intents, site.queued_by_shape, site.core_ms_reserved = [{}, {}, {}, {}, {}], {}, 0
        site.starting, site.session = {}, SiteSession()
    for intent in state.intents.values():
        _add(state, intent)
        intent.start_told, intent.stop_told = 2, False
        pilot = state.pilots.get(intent.pilot)
        if pilot is not None:
            pilot.intent = intent.number
        if intent.state == RUNNING and (pilot is None or not pilot.granted):
            state.sites[intent.site].starting[intent.number] = None
