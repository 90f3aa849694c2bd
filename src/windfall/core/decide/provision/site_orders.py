"""Orders to a site's provisioner: which pilots to start and stop, whether to list jobs, and what to salvage.

A request for orders with nothing to say in reply waits until there is something, or its time is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from windfall.core.messages import effects as x, events as e
from windfall.core.messages.lifecycle import INTENDED, LEAVING, STOPPING
from windfall.core.state.world import SiteState
from windfall.core.turn import Turn

LISTINGS_FOR_ROOM = 6  # times as often as usual a batch system may be asked for a listing while room is lacking


# --- requests -------------------------------------------------------------------------------------------------------


def answer_or_wait(turn: Turn, site: SiteState, event: e.SiteReport) -> None:
    """Answer a report at the end of the step, or let it wait for orders."""
    to_answer = turn.provision.to_answer
    if has_orders(turn, site) or event.seen != site.session.last_orders or event.wait <= 0:
        if site.name in to_answer:  # the provisioner asked twice in one step
            turn.effects.append(make_orders(turn, site, to_answer[site.name]))
        to_answer[site.name] = event.key
    else:
        until = turn.now + min(event.wait, turn.config.park)
        _answer(turn, site)
        site.session.waiting_request = (event.key, until)
        turn.timers.add(until, "tend", site.name)


def answer_provisioners(turn: Turn) -> None:
    """Answer the provisioners that asked in this step, and those that waited for the orders it has made."""
    for name, key in turn.provision.to_answer.items():
        turn.effects.append(make_orders(turn, turn.state.sites[name], key))
    turn.provision.to_answer.clear()
    for name in turn.state.sites_with_orders:
        site = turn.state.sites[name]
        if site.session.waiting_request is not None and has_orders(turn, site):
            _answer(turn, site)
    turn.state.sites_with_orders.clear()


def orders_due(turn: Turn, name: str) -> None:
    """Answer a waiting request whose time is up, or for which time has brought orders."""
    site = turn.state.sites[name]
    waiting = site.session.waiting_request
    if waiting is not None and (waiting[1] <= turn.now or has_orders(turn, site)):
        _answer(turn, site)


def _answer(turn: Turn, site: SiteState) -> None:
    if site.session.waiting_request is not None:
        key, site.session.waiting_request = site.session.waiting_request[0], None
        turn.effects.append(make_orders(turn, site, key))


# --- orders ---------------------------------------------------------------------------------------------------------


def has_orders(turn: Turn, site: SiteState) -> bool:
    """Is there anything that the site's provisioner has not been told, and may be?"""
    intents = turn.state.intents
    return (
        any(not told for told in islice(site.session.unknown_jobs.values(), site.limits.flight))
        or any(not told for told in islice(site.session.salvages_due.values(), site.limits.flight))
        or any(not intents[n].stop_told for n in _to_stop(turn, site))
        or any(not intents[n].start_told for n in _to_start(turn, site))
        or (_listing_due(turn, site) and not site.session.listing_wanted)
    )


def _to_start(turn: Turn, site: SiteState) -> Iterator[int]:
    """Yield the intents to start, those that this tender knows of before new ones; none while the site is suspect."""
    if site.suspect_since:
        return iter(())
    free = (n for n in site.intents[INTENDED] if turn.state.intents[n].start_told < 2)
    return islice(free, site.limits.flight)


def _to_stop(turn: Turn, site: SiteState) -> Iterator[int]:
    """Yield the intents to stop, but for those that an earlier tender may have submitted and no listing has shown."""
    intents = turn.state.intents
    known = (n for n in site.intents[STOPPING] if intents[n].batch_id or intents[n].start_told < 2)
    return islice(known, site.limits.flight)


def make_orders(turn: Turn, site: SiteState, key: int) -> x.SiteOrders:
    """Return all orders that the provisioner has not reported as done, as many at a time as the site allows."""
    t, intents = site.session, turn.state.intents
    orders = x.SiteOrders(key, site.name, t.last_orders + 1, turn.now)
    t.last_orders, t.released_when_answered = t.last_orders + 1, site.core_ms_released
    for number in _to_start(turn, site):
        intents[number].start_told = 1
        orders.start.append((intents[number].nonce, intents[number].shape))
    for number in _to_stop(turn, site):
        intents[number].stop_told = True
        orders.stop.append((intents[number].nonce, intents[number].batch_id))
    for job in islice(t.unknown_jobs, site.limits.flight):
        t.unknown_jobs[job] = True
        orders.stop.append(job)
    for nonce in list(islice(t.salvages_due, site.limits.flight)):
        t.salvages_due[nonce] = True
        orders.salvage.append(nonce)
    if _listing_due(turn, site):
        orders.look = t.listing_wanted = True
        t.listing_asked_at = t.listing_asked_at or turn.now
    if not t.has_listing or _is_watched(turn, site):
        turn.timers.add(turn.now + turn.config.listing, "tend", site.name)
    return orders


def superseded(turn: Turn, site: SiteState, key: int) -> x.SiteOrders:
    """Return the answer to a provisioner whose place another one has taken."""
    return x.SiteOrders(key, site.name, 0, turn.now, over=True)


# --- listings -------------------------------------------------------------------------------------------------------


def confirm_gap(turn: Turn) -> int:
    """Return the ms between two listings that must say the same before it is believed."""
    return turn.config.listing // LISTINGS_FOR_ROOM


def _listing_due(turn: Turn, site: SiteState) -> bool:
    t = site.session
    if not t.has_listing:  # any listing tells which of the pilots that are leaving have left
        due = t.relist_from + confirm_gap(turn) if t.relist_from else t.unknown_before + turn.config.landing
        return turn.now >= due or (not t.heard_list and bool(site.intents[LEAVING]))
    return site.suspect_since > 0 or (_is_watched(turn, site) and turn.now >= next_listing(turn, site))


def _is_watched(turn: Turn, site: SiteState) -> bool:
    """Has the site pilots, or would it have some but for the user's other jobs, or an empty account?"""
    return site.open > 0 or ((site.limits.jobs > 0 or site.limits.account) and bool(turn.state.ready))


def next_listing(turn: Turn, site: SiteState) -> int:
    """Return when the next listing is due: early where one job was missing, or where room is lacking."""
    t = site.session
    if t.job_missing_once:
        return t.heard_list + confirm_gap(turn)
    if t.wants_room and (first := next(iter(site.intents[LEAVING]), 0)):
        soon = turn.state.intents[first].changed + turn.config.parting
        return max(soon, t.heard_list + confirm_gap(turn))
    return t.heard_list + turn.config.listing


def ask_for_room(turn: Turn, site: SiteState) -> None:
    """Ask for an early listing: more pilots would be started but for those that are leaving."""
    site.session.wants_room = True
    turn.timers.add(next_listing(turn, site), "tend", site.name)
