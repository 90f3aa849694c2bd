"""Requests about sites: add, drain, share, remove.

A drained site is sent nothing more: its queued pilots are taken back, the others finish what they have and leave.  A
removed site is drained and forgotten by all but the record: late reports of its pilots must still find it, and what it
used of its budget counts again should it be added once more.

Its owner lends an account to those who share a site: whatever they run there runs under the owner's name, and the owner
can see it.  So sharing is never implied, and the site's history says who did it.
"""

from __future__ import annotations

from windfall.core.decide.grant import nearest_data
from windfall.core.decide.provision import reconcile
from windfall.core.decide.requests.request import refusing
from windfall.core.messages import events as e, facts as f
from windfall.core.messages.lifecycle import GONE, INTENDED, LIVE, QUEUED, RUNNING
from windfall.core.state.capacity import MILLI
from windfall.core.state.world import PilotState, SiteState, State
from windfall.core.turn import Turn
from windfall.errors import BadInput, Conflict, NotFound

MAX_SITES = 1_000  # of one user, those that were removed included: their records stay
MAX_SHAPES = 64
MAX_CORES = 1 << 20  # of a pilot, on all its nodes
MAX_CORE_MS = 1 << 50  # of a pilot: sums of many are still numbers that can be written down
MAX_LIMIT = 1 << 60


@refusing
def add_site(turn: Turn, event: e.AddSite) -> None:
    """Add a site, or change one: its kind, who shares it, and the limits of its pilots."""
    site = turn.state.sites.get(event.name)
    _check_name(turn, event, site)
    if event.limits is not None:
        _check_limits(event.name, event.limits)
        if site is not None and site.removed and not event.limits.shapes:
            turn.done(event)  # a provisioner saw the site's file go after the site was removed: nothing to stop there
            return
    limits = event.limits if site is None or event.limits != site.limits else None
    settings = (event.kind, event.shared, event.disk)
    changed = site is None or site.removed or (site.kind, site.shared, site.shared_disk) != settings
    if changed or limits is not None:
        turn.emit(f.SiteAdded(
            turn.now, event.name, event.owner, event.kind, event.shared, limits=limits, disk=event.disk
        ))
    turn.done(event)


def _check_name(turn: Turn, event: e.AddSite, site: SiteState | None) -> None:
    """Refuse the name of another owner's site, and more sites than an owner may have."""
    if site is not None and site.owner != event.owner:
        raise Conflict(f"the name {event.name!r} is taken", "choose another name")
    if site is None and sum(each.owner == event.owner for each in turn.state.sites.values()) >= MAX_SITES:
        raise Conflict(f"you have had {MAX_SITES:,} sites; no more are taken",
                       "give a new one the name of one that was removed: what that has used counts on")


def _check_limits(name: str, limits: f.Limits) -> None:
    if problem := wrong_limit(limits):
        raise BadInput(f"site {name}: {problem}")
    # without a wall time a pilot's worst case cannot be reserved, of our budget or of what the account has left
    if (limits.budget > 0 or limits.account) and not all(shape.wall for shape in limits.shapes):
        raise BadInput("under a budget every shape needs a wall time", "say how long its pilots last")


def wrong_limit(limits: f.Limits) -> str:
    """Return a few words on what is wrong with limits that can mean nothing; "" if nothing is."""
    for each in (limits, *limits.shapes):
        for name in each.__struct_fields__:
            if name != "shapes" and not 0 <= getattr(each, name) < MAX_LIMIT:
                return f"{name} must be from 0 to 2^60, and is {getattr(each, name)}"
    if len(limits.shapes) > MAX_SHAPES:
        return f"at most {MAX_SHAPES} shapes, not {len(limits.shapes)}"
    if problem := next(filter(None, map(_wrong_shape, limits.shapes)), ""):
        return problem
    if limits.counts > f.COUNTS_NOT:
        return f"counts must be from 0 to {f.COUNTS_NOT}, and is {limits.counts}"
    if limits.share > MILLI:
        return f"share must be at most {MILLI} thousandths, and is {limits.share}"
    return "" if limits.flight else "flight is 0: nothing would ever be started"


def _wrong_shape(shape: f.Shape) -> str:
    if not (shape.cores and shape.nodes and shape.cores * shape.nodes <= MAX_CORES):
        return f"a pilot has 1 to {MAX_CORES:,} cores, not {shape.cores} on each of {shape.nodes} nodes"
    if shape.worst > MAX_CORE_MS:
        return f"a pilot of {shape.cores * shape.nodes} cores for {shape.wall} ms is too large"
    if shape.least and not shape.least <= shape.wall:
        return f"the least wall time, {shape.least} ms, exceeds the wall time, {shape.wall} ms"
    return ""


@refusing
def drain_site(turn: Turn, event: e.DrainSite) -> None:
    """Empty a site, or use it again."""
    site = _site_of(turn, event.name, event.owner)
    if site.drained != event.on:
        turn.emit(f.SiteDrained(turn.now, site.name, event.on, event.by))
        who = event.by or site.owner
        text = f"drained by {who}{'; running pilots stop' * event.now}" if event.on else f"in use again, by {who}"
        turn.emit(f.SiteNoted(turn.now, site.name, "drained" if event.on else "undrained", text))
    if event.on:
        _empty(turn, site, event.now)
    turn.done(event, len(pilots_at(turn.state, site)))


def _empty(turn: Turn, site: SiteState, now: bool) -> None:
    """Take back the queued pilots of a site, and let the others finish what they run; with `now`, stop these, too."""
    states = (INTENDED, QUEUED, RUNNING) if now else (INTENDED, QUEUED)
    intents = [turn.state.intents[number] for state in states for number in site.intents[state]]
    reconcile.stop(turn, site, intents, "drained")
    for pilot in pilots_at(turn.state, site):
        if pilot.state == LIVE:
            nearest_data.drain_pilot(turn, pilot)
            turn.state.pilots_with_news[pilot.number] = None
    nearest_data.recheck_withheld(turn)


@refusing
def share_site(turn: Turn, event: e.ShareSite) -> None:
    """Share a site with more or fewer owners.  The driver has checked that the sender of the request may."""
    site = turn.state.sites.get(event.name)
    if site is None or site.removed:
        raise _unknown(event.name)
    gone = (site.owner, *event.remove)
    shared = sorted(dict.fromkeys(owner for owner in (*site.shared, *event.add) if owner not in gone))
    if shared != sorted(site.shared):
        turn.emit(f.SiteAdded(
            turn.now, site.name, site.owner, site.kind, shared, by=event.by, disk=site.shared_disk
        ))
        whom = f"shared with {', '.join(shared)}" if shared else "not shared any more"
        turn.emit(f.SiteNoted(turn.now, site.name, "shared", f"{whom}, by {event.by}"))
        nearest_data.recheck_withheld(turn)
    turn.done(event)


@refusing
def remove_site(turn: Turn, event: e.RemoveSite) -> None:
    """Remove a site without pilots, and revoke the tokens by which pilots enrol there."""
    site = _site_of(turn, event.name, event.owner)
    left = max(site.open, len(pilots_at(turn.state, site)))
    if left:
        raise Conflict(f"site {site.name} has {left} pilots", "drain it first, or remove it --now")
    for token in [token for token in turn.state.tokens.values() if token.scope == "enrol" and token.site == site.name]:
        turn.emit(f.TokenRevoked(turn.now, token.id, event.by))
    turn.emit(f.SiteRemoved(turn.now, site.name, event.by))
    turn.done(event)


def _site_of(turn: Turn, name: str, owner: str) -> SiteState:
    """Return the owner's site, or refuse the request: with one answer for "absent" and "not yours"."""
    site = turn.state.sites.get(name)
    if site is None or site.removed or site.owner != owner:
        raise _unknown(name)
    return site


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no site {name[:100]}")


def pilots_at(state: State, site: SiteState) -> list[PilotState]:
    """Return the site's pilots that are not gone."""
    return [pilot for pilot in state.pilots.values() if pilot.site == site.name and pilot.state != GONE]
