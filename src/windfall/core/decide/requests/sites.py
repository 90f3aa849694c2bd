"""What users ask for about sites: drain, share, remove.

A drained site is sent nothing more: what is queued there is taken back, pilots finish what they have and leave.  A
removed one is drained and forgotten by all but the record: late words of its pilots must still find it, and what it
used of its budget counts again should it be added once more.

Who shares a site lends an account: whatever others run there runs under the owner's name, and the owner can see it.  So
it is never implied, and its history says who did it.
"""

from __future__ import annotations

from windfall.core.decide.grant import nearest_data
from windfall.core.decide.provision import reconcile
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import GONE, INTENDED, LIVE, QUEUED, RUNNING
from windfall.core.state.world import PilotState, SiteState, State
from windfall.core.turn import Turn


def drain_site(turn: Turn, event: e.DrainSite) -> None:
    site = _mine(turn, event, event.name, event.owner)
    if site is None:
        return
    if site.drained != event.on:
        turn.emit(f.SiteDrained(turn.now, site.name, event.on, event.by))
        who = event.by or site.owner
        says = f"drained by {who}{', with what ran there' * event.now}" if event.on else f"in use again, by {who}"
        turn.emit(f.SiteNoted(turn.now, site.name, "drained" if event.on else "undrained", says))
    if event.on:
        _empty(turn, site, event.now)
    turn.done(event, len(alive(turn.state, site)))


def _empty(turn: Turn, site: SiteState, now: bool) -> None:
    """What is queued is taken back; what runs finishes, or with `now` is stopped."""
    states = (INTENDED, QUEUED, RUNNING) if now else (INTENDED, QUEUED)
    intents = [turn.state.intents[number] for state in states for number in site.intents[state]]
    reconcile.stop(turn, site, intents, "drained")
    for pilot in alive(turn.state, site):
        if pilot.state == LIVE:
            turn.emit(f.PilotDraining(turn.now, pilot.number))
            turn.state.pilots_with_news[pilot.number] = None
    nearest_data.stir(turn)


def share_site(turn: Turn, event: e.ShareSite) -> None:
    """The driver has made sure that whoever asks may."""
    site = turn.state.sites.get(event.name)
    if site is None or site.removed:
        turn.refuse(event, "not-found", f"there is no site {event.name[:100]}")
        return
    gone = (site.owner, *event.remove)
    shared = sorted(dict.fromkeys(owner for owner in (*site.shared, *event.add) if owner not in gone))
    if shared != sorted(site.shared):
        turn.emit(f.SiteAdded(turn.now, site.name, site.owner, site.kind, shared, event.by, disk=site.shared_disk))
        whom = f"shared with {', '.join(shared)}" if shared else "not shared any more"
        turn.emit(f.SiteNoted(turn.now, site.name, "shared", f"{whom}, by {event.by}"))
        nearest_data.stir(turn)
    turn.done(event)


def remove_site(turn: Turn, event: e.RemoveSite) -> None:
    site = _mine(turn, event, event.name, event.owner)
    if site is None:
        return
    left = max(site.open, len(alive(turn.state, site)))
    if left:
        turn.refuse(event, "conflict", f"site {site.name} has {left} pilots", "drain it first, or remove it --now")
        return
    for token in [token for token in turn.state.tokens.values() if token.scope == "enrol" and token.site == site.name]:
        turn.emit(f.TokenRevoked(turn.now, token.id, event.by))
    turn.emit(f.SiteRemoved(turn.now, site.name, event.by))
    turn.done(event)


def _mine(turn: Turn, event: e.Event, name: str, owner: str) -> SiteState | None:
    """Absent, or not yours: one answer for both."""
    site = turn.state.sites.get(name)
    if site is None or site.removed or site.owner != owner:
        turn.refuse(event, "not-found", f"there is no site {name[:100]}")
        return None
    return site


def alive(state: State, site: SiteState) -> list[PilotState]:
    return [pilot for pilot in state.pilots.values() if pilot.site == site.name and pilot.state != GONE]
