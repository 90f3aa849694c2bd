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

from typing import TYPE_CHECKING

from windfall.core.decide.provision.demand import View
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import LEAVING, LIVE, RUNNING
from windfall.core.state.world import SiteState, State

if TYPE_CHECKING:
    from windfall.core.step import Core

LOOKS = 3  # in the time after which a site is suspect
KEPT = 100  # lines of a site's history


def arm(core: Core) -> None:
    """Something is wanted of sites: look after them."""
    if not core.watching:
        core.lit = core.now
        _look_later(core)


def _look_later(core: Core) -> None:
    core.watching = True
    core.timer(core.now + core.config.suspect // LOOKS, "watch", 0)


def watch_due(core: Core, _: int) -> None:
    core.watching = False
    state = core.state
    for name in state.provided:
        _look(core, state.sites[name])
    wanted = _wanted(core)
    if not wanted or any(p.state == LIVE and not p.silent for p in state.pilots.values()):
        core.lit = core.now
    elif core.now >= core.lit + core.config.blackout:
        _light(core)
        core.lit = core.now
    if wanted or any(state.sites[name].open for name in state.provided):
        _look_later(core)


def _wanted(core: Core) -> bool:
    """Is there anything that a site's pilots could do?"""
    view = View(core.state, core.now, core.config.margin)
    ready = [core.state.classes[number] for _, number in core.state.ready]
    return any(view.fit(site, cls) is not None for cls in ready for site in view.sites)


# --- suspects -----------------------------------------------------------------------------------------------------


def _look(core: Core, site: SiteState) -> None:
    since = _quiet_since(core, site)
    wanted = site.open or (core.state.ready and not site.drained)
    if site.suspect or core.now < since + core.config.suspect or not wanted:
        return
    t = site.tending
    who = "its batch system lists nothing" if since == t.asked_at else "nobody there says anything"
    runs = len(site.intents[RUNNING]) + len(site.intents[LEAVING])
    says = f"{who} since {(core.now - since) // 1000} s; {runs} pilots may still run there"
    core.emit(f.SiteJudged(core.now, site.name, since, says))
    core.changed = True  # others take what it would have been sent


def _quiet_since(core: Core, site: SiteState) -> int:
    """Since when there has been no word of its tender, or no listing of its batch system."""
    t = site.tending
    return t.asked_at if t.asked and t.asked_at else max(t.heard, site.added, core.resumed)


def listed(core: Core, site: SiteState, began: int) -> None:
    """A listing has come: it answers again, if that began after it had stopped."""
    if site.suspect and began >= site.suspect:
        says = f"it answers again, after {(core.now - site.suspect) // 1000} s"
        core.emit(f.SiteJudged(core.now, site.name, 0, says))
        core.changed = True


# --- blackout -----------------------------------------------------------------------------------------------------


def _light(core: Core) -> None:
    says = f"no pilot was active anywhere for {(core.now - core.lit) // 1000} s: it is tried again"
    for name in core.state.provided:
        site = core.state.sites[name]
        if site.suspect or site.drained or not site.tender or not site.limits.shapes:
            continue
        site.tending.hold, site.tending.probing = 0, True  # should that fail it is left alone for longer still
        core.emit(f.SiteNoted(core.now, name, "blackout", says))
    core.changed = True


# --- what is remembered -------------------------------------------------------------------------------------------


def site_judged(state: State, fact: f.SiteJudged) -> None:
    site = state.sites[fact.site]
    site.suspect = fact.suspect
    state.version += 1  # what was to go there may go elsewhere
    state.stirred[site.name] = None
    note(site, fact.at, "suspect" if fact.suspect else "answers", fact.says)


def site_noted(state: State, fact: f.SiteNoted) -> None:
    note(state.sites[fact.site], fact.at, fact.kind, fact.says)


def note(site: SiteState, at: int, kind: str, says: str) -> None:
    site.history.append((at, kind, says))
    del site.history[:-KEPT]
