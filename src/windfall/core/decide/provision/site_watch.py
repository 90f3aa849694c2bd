"""The watchdog over sites: who has stopped answering, what to do when nothing runs anywhere, and what is remembered.

Rules
  * A site that says nothing, or whose batch system lists nothing although it was asked, is *suspect*, not failed: what
    was sent there stays counted, its pilots live on by their own leases, nothing more is sent there before a listing
    begun since then; others take what it would have been sent.
  * Blackout (S6): work is wanted, and no pilot has been active anywhere for long.  Then every site that answers is
    tried again, whatever it refused before, with one pilot each until one of them has been given something to do.
  * Whatever is decided about a site is a fact, and the last hundred are kept with it.

It looks a few times in the time that makes a suspect, and only while there is something to look after.
"""

from __future__ import annotations

from windfall.core.decide.provision.demand import View
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import LEAVING, LIVE, RUNNING
from windfall.core.state.world import SiteState, State
from windfall.core.turn import Turn

LOOKS = 3  # in the time after which a site is suspect
KEPT = 100  # lines of a site's history


def arm(turn: Turn) -> None:
    """Something is wanted of sites: look after them."""
    if not turn.provision.watching:
        turn.provision.last_active = turn.now
        _look_later(turn)


def _look_later(turn: Turn) -> None:
    turn.provision.watching = True
    turn.timers.add(turn.now + turn.config.suspect // LOOKS, "watch", 0)


def watch_due(turn: Turn, _: int) -> None:
    turn.provision.watching = False
    state = turn.state
    for name in state.provisioned_sites:
        _look(turn, state.sites[name])
    wanted = _wanted(turn)
    if not wanted or any(p.state == LIVE and not p.lease_expired for p in state.pilots.values()):
        turn.provision.last_active = turn.now
    elif turn.now >= turn.provision.last_active + turn.config.blackout:
        _light(turn)
        turn.provision.last_active = turn.now
    if wanted or any(state.sites[name].open for name in state.provisioned_sites):
        _look_later(turn)


def _wanted(turn: Turn) -> bool:
    """Is there anything that a site's pilots could do?"""
    view = View(turn.state, turn.now, turn.config.margin)
    ready = [turn.state.classes[number] for _, number in turn.state.ready]
    return any(view.fit(site, cls) is not None for cls in ready for site in view.sites)


# --- suspects -----------------------------------------------------------------------------------------------------


def _look(turn: Turn, site: SiteState) -> None:
    since = _quiet_since(turn, site)
    wanted = site.open or (turn.state.ready and not site.drained)
    if site.suspect_since or turn.now < since + turn.config.suspect or not wanted:
        return
    t = site.session
    who = "its batch system lists nothing" if since == t.listing_asked_at else "nobody there says anything"
    runs = len(site.intents[RUNNING]) + len(site.intents[LEAVING])
    says = f"{who} since {(turn.now - since) // 1000} s; {runs} pilots may still run there"
    turn.emit(f.SiteJudged(turn.now, site.name, since, says))
    turn.provision.changed = True  # others take what it would have been sent


def _quiet_since(turn: Turn, site: SiteState) -> int:
    """Since when there has been no word of its tender, or no listing of its batch system."""
    t = site.session
    return t.listing_asked_at if t.listing_wanted and t.listing_asked_at else max(t.heard, site.added, turn.resumed)


def listed(turn: Turn, site: SiteState, began: int) -> None:
    """A listing has come: it answers again, if that began after it had stopped."""
    if site.suspect_since and began >= site.suspect_since:
        says = f"it answers again, after {(turn.now - site.suspect_since) // 1000} s"
        turn.emit(f.SiteJudged(turn.now, site.name, 0, says))
        turn.provision.changed = True


# --- blackout -----------------------------------------------------------------------------------------------------


def _light(turn: Turn) -> None:
    says = f"no pilot was active anywhere for {(turn.now - turn.provision.last_active) // 1000} s: it is tried again"
    for name in turn.state.provisioned_sites:
        site = turn.state.sites[name]
        if site.suspect_since or site.drained or not site.provisioner or not site.limits.shapes:
            continue
        site.session.retry_after, site.session.probing = 0, True  # should that fail it is left alone for longer still
        turn.emit(f.SiteNoted(turn.now, name, "blackout", says))
    turn.provision.changed = True


# --- what is remembered -------------------------------------------------------------------------------------------


def site_judged(state: State, fact: f.SiteJudged) -> None:
    site = state.sites[fact.site]
    site.suspect_since = fact.suspect
    state.version += 1  # what was to go there may go elsewhere
    state.sites_with_orders[site.name] = None
    note(site, fact.at, "suspect" if fact.suspect else "answers", fact.says)


def site_noted(state: State, fact: f.SiteNoted) -> None:
    note(state.sites[fact.site], fact.at, fact.kind, fact.says)


def note(site: SiteState, at: int, kind: str, says: str) -> None:
    site.history.append((at, kind, says))
    del site.history[:-KEPT]
