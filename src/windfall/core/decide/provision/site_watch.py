"""The watchdog over sites: which have stopped answering, what to do when no pilot is active, and a site's history.

Rules
  * A site without a word from its provisioner, or whose batch system lists nothing although it was asked, is *suspect*,
    not failed: its pilots stay counted and live on by their own leases.  Before a listing begun since then, no more
    pilots are sent there; other sites get those it would have had.
  * Blackout (S6): work is wanted, and no pilot has been active anywhere for long.  Then every site that answers is
    tried again, whatever it refused before, with one pilot each until one of them has been granted a task.
  * Each decision about a site is a fact, and the last hundred are kept with it.

The watchdog checks a few times in the time that makes a suspect, and only while work is wanted or pilots are out.
"""

from __future__ import annotations

from windfall.core.decide.provision.demand import View
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import LEAVING, LIVE, RUNNING
from windfall.core.state.world import SiteState
from windfall.core.turn import Turn

CHECKS_PER_PERIOD = 3  # in the time after which a site is suspect


def watch_sites(turn: Turn) -> None:
    """Begin to watch the sites, if they are not watched already."""
    if not turn.provision.watching:
        turn.provision.last_active = turn.now
        _check_later(turn)


def _check_later(turn: Turn) -> None:
    turn.provision.watching = True
    turn.timers.add(turn.now + turn.config.suspect // CHECKS_PER_PERIOD, "watch", 0)


def watch_due(turn: Turn, _: int) -> None:
    """Find suspect sites, end a blackout, and set the next timer while there is something to watch."""
    turn.provision.watching = False
    state = turn.state
    for name in state.provisioned_sites:
        _check(turn, state.sites[name])
    wanted = _work_wanted(turn)
    if not wanted or any(p.state == LIVE and not p.lease_expired for p in state.pilots.values()):
        turn.provision.last_active = turn.now
    elif turn.now >= turn.provision.last_active + turn.config.blackout:
        _retry_all_sites(turn)
        turn.provision.last_active = turn.now
    if wanted or any(state.sites[name].open for name in state.provisioned_sites):
        _check_later(turn)


def _work_wanted(turn: Turn) -> bool:
    """Is there a ready task that pilots of a site could run?"""
    view = View(turn.state, turn.now, turn.config)
    ready = [turn.state.classes[number] for _, number in turn.state.ready]
    return any(view.fit(site, cls) is not None for cls in ready for site in view.sites)


# --- suspects -----------------------------------------------------------------------------------------------------


def _check(turn: Turn, site: SiteState) -> None:
    """Call a site suspect that has been quiet for too long, if it has pilots or should have some."""
    since = _quiet_since(turn, site)
    wanted = site.open or (turn.state.ready and not site.drained)
    if site.suspect_since or turn.now < since + turn.config.suspect or not wanted:
        return
    t = site.session
    silent = "listing from the batch system" if since == t.listing_asked_at else "message from the provisioner"
    runs = len(site.intents[RUNNING]) + len(site.intents[LEAVING])
    text = f"no {silent} of {site.name} for {(turn.now - since) // 1000} s; up to {runs} pilots may still run"
    turn.emit(f.SiteJudged(turn.now, site.name, since, text))
    turn.provision.changed = True  # other sites get the pilots it would have had


def _quiet_since(turn: Turn, site: SiteState) -> int:
    """Return since when its provisioner has sent no word, or its batch system no listing."""
    t = site.session
    return t.listing_asked_at if t.listing_wanted and t.listing_asked_at else max(t.heard, site.added, turn.resumed)


def note_listing(turn: Turn, site: SiteState, began: int) -> None:
    """Clear a suspect site, if its listing began after it had stopped answering."""
    if site.suspect_since and began >= site.suspect_since:
        text = f"{site.name} answers again, after {(turn.now - site.suspect_since) // 1000} s"
        turn.emit(f.SiteJudged(turn.now, site.name, 0, text))
        turn.provision.changed = True


# --- blackout -----------------------------------------------------------------------------------------------------


def _retry_all_sites(turn: Turn) -> None:
    """Let every site that answers be tried again, with one pilot each."""
    quiet_s = (turn.now - turn.provision.last_active) // 1000
    for name in turn.state.provisioned_sites:
        site = turn.state.sites[name]
        if site.suspect_since or site.drained or not site.provisioner or not site.limits.shapes:
            continue
        site.session.retry_after, site.session.probing = 0, True  # a failure doubles the back-off
        text = f"no pilot was active at any site for {quiet_s} s: {name} is tried again with one pilot"
        turn.emit(f.SiteNoted(turn.now, name, "blackout", text))
    turn.provision.changed = True
