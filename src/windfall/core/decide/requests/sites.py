"""What users ask for about sites: drain, share, remove.

A drained site is sent nothing more: what is queued there is taken back, pilots finish what they have and leave.  A
removed one is drained and forgotten by all but the record: late words of its pilots must still find it, and what it
used of its budget counts again should it be added once more.

Who shares a site lends an account: whatever others run there runs under the owner's name, and the owner can see it.  So
it is never implied, and its history says who did it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.core.decide.grant import nearest_data
from windfall.core.decide.provision import reconcile
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import GONE, INTENDED, LIVE, QUEUED, RUNNING
from windfall.core.state.world import PilotState, SiteState, State

if TYPE_CHECKING:
    from windfall.core.step import Core


def drain_site(core: Core, event: e.DrainSite) -> None:
    site = _mine(core, event, event.name, event.owner)
    if site is None:
        return
    if site.drained != event.on:
        core.emit(f.SiteDrained(core.now, site.name, event.on, event.by))
        who = event.by or site.owner
        says = f"drained by {who}{', with what ran there' * event.now}" if event.on else f"in use again, by {who}"
        core.emit(f.SiteNoted(core.now, site.name, "drained" if event.on else "undrained", says))
    if event.on:
        _empty(core, site, event.now)
    core.done(event, len(alive(core.state, site)))


def _empty(core: Core, site: SiteState, now: bool) -> None:
    """What is queued is taken back; what runs finishes, or with `now` is stopped."""
    states = (INTENDED, QUEUED, RUNNING) if now else (INTENDED, QUEUED)
    intents = [core.state.intents[number] for state in states for number in site.intents[state]]
    reconcile.stop(core, site, intents, "drained")
    for pilot in alive(core.state, site):
        if pilot.state == LIVE:
            core.emit(f.PilotDraining(core.now, pilot.number))
            core.state.orders[pilot.number] = None
    nearest_data.stir(core)


def share_site(core: Core, event: e.ShareSite) -> None:
    """The driver has made sure that whoever asks may."""
    site = core.state.sites.get(event.name)
    if site is None or site.removed:
        core.refuse(event, "not-found", f"there is no site {event.name[:100]}")
        return
    gone = (site.owner, *event.remove)
    shared = sorted(dict.fromkeys(owner for owner in (*site.shared, *event.add) if owner not in gone))
    if shared != sorted(site.shared):
        core.emit(f.SiteAdded(core.now, site.name, site.owner, site.kind, shared, event.by, disk=site.disk))
        whom = f"shared with {', '.join(shared)}" if shared else "not shared any more"
        core.emit(f.SiteNoted(core.now, site.name, "shared", f"{whom}, by {event.by}"))
        nearest_data.stir(core)
    core.done(event)


def remove_site(core: Core, event: e.RemoveSite) -> None:
    site = _mine(core, event, event.name, event.owner)
    if site is None:
        return
    left = max(site.open, len(alive(core.state, site)))
    if left:
        core.refuse(event, "conflict", f"site {site.name} has {left} pilots", "drain it first, or remove it --now")
        return
    for token in [token for token in core.state.tokens.values() if token.scope == "enrol" and token.site == site.name]:
        core.emit(f.TokenRevoked(core.now, token.id, event.by))
    core.emit(f.SiteRemoved(core.now, site.name, event.by))
    core.done(event)


def _mine(core: Core, event: e.Event, name: str, owner: str) -> SiteState | None:
    """Absent, or not yours: one answer for both."""
    site = core.state.sites.get(name)
    if site is None or site.removed or site.owner != owner:
        core.refuse(event, "not-found", f"there is no site {name[:100]}")
        return None
    return site


def alive(state: State, site: SiteState) -> list[PilotState]:
    return [pilot for pilot in state.pilots.values() if pilot.site == site.name and pilot.state != GONE]
