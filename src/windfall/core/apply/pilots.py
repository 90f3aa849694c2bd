"""Fold into the state what happens to sites, tokens and pilots."""

from __future__ import annotations

from windfall.core.apply import intents as i
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import DRAINING, DROPPED, GONE, LOST, SUPERSEDED
from windfall.core.state import accounts
from windfall.core.state.host_table import register_pilot, unregister_pilot
from windfall.core.state.load import add_row_load, free_row
from windfall.core.state.moves import PILOTS
from windfall.core.state.world import PilotClass, PilotState, SiteState, State, TokenState


def site_added(state: State, fact: f.SiteAdded) -> None:
    site = state.sites.get(fact.name)
    if site is None:
        site = state.sites[fact.name] = SiteState(fact.name, fact.owner, fact.kind, fact.shared, fact.at)
    site.removed = False
    site.kind, site.shared, site.added, site.shared_disk = fact.kind, fact.shared, fact.at, fact.disk
    if fact.limits is not None:
        site.limits = fact.limits
        state.provisioned_sites.pop(fact.name, None)
        site.best_shapes.clear()
        if fact.limits.shapes or site.open:  # what is queued there must be stopped
            state.provisioned_sites[fact.name] = None
    for pilot in state.pilots.values():
        if pilot.site == fact.name:
            _reclass(state, pilot)
    recount_use(state, site)
    state.limits_changed = fact.at
    accounts.recount(state)  # other things may count now
    state.version += 1


def _reclass(state: State, pilot: PilotState) -> None:
    """Move a pilot to the class of the owners that its site serves now."""
    old, new = state.pilot_classes[pilot.cls], pilot_class_of(state, pilot)
    if new is old:
        return
    if old.waiting.pop(pilot.number, None) is not None:
        new.waiting[pilot.number] = pilot.row
    _leave_class(state, pilot)
    join_class(state, pilot)
    rows = [row for row in state.attempts.of_pilot(pilot.number).tolist() if state.attempts.state[row] != LOST]
    pilot.attempts_held = pilot.load = 0
    pilot.chains.clear()
    for row in rows:
        add_row_load(state, row, 1)
    state.version += 1  # who could not run something may now


def token_issued(state: State, fact: f.TokenIssued) -> None:
    state.tokens[fact.hash] = TokenState(
        id=fact.id, scope=fact.scope, owner=fact.owner, site=fact.site, pilot=-1, expires=fact.expires, issued=fact.at)
    state.token_ids[fact.id] = fact.hash


def token_revoked(state: State, fact: f.TokenRevoked) -> None:
    state.tokens.pop(state.token_ids.pop(fact.id, b""), None)


def pilot_enrolled(state: State, fact: f.PilotEnrolled) -> None:
    older = state.pilots.get(state.nonces.get((fact.site, fact.nonce), 0))
    if older is not None and older.state != GONE:
        PILOTS.check(older.state, SUPERSEDED, older.number)
        older.state = SUPERSEDED
    pilot = PilotState(
        number=fact.pilot, nonce=fact.nonce, epoch=fact.epoch, site=fact.site, owner=fact.owner, host=fact.host,
        host_name=fact.host_name, cores=fact.cores, memory=fact.memory, gpus=fact.gpus, disk=fact.disk,
        enrolled=fact.at, ends=fact.ends, token=fact.token, detail=fact.detail, cls=0, heard=fact.at,
        nodes=fact.nodes, whole=fact.whole, boot=fact.boot, life=fact.life, hardware=fact.hardware,
    )
    join_class(state, pilot)
    register_pilot(state, pilot)
    state.nonces[fact.site, fact.nonce] = fact.pilot
    i.take_pilot(state, fact.pilot)
    state.next_pilot = max(state.next_pilot, fact.pilot + 1)
    token = TokenState(
        id=f"pilot-{fact.pilot}", scope="pilot", owner=fact.owner, site=fact.site, pilot=fact.pilot,
        expires=fact.expires, issued=fact.at)
    state.tokens[fact.token] = token
    state.token_ids[token.id] = fact.token


def pilot_class_of(state: State, pilot: PilotState) -> PilotClass:
    site = state.sites.get(pilot.site)
    owners = (pilot.owner, *(site.shared if site else ()))
    # Nodes of one kind differ by a few pages.  Rounded up, so that a class turns nothing away that one of its pilots
    # could run; each pilot's own memory and disk are looked at when it asks.
    memory = _rounded_up(pilot.memory)
    disk = _rounded_up(pilot.disk)
    what = (owners, pilot.site, pilot.cores, memory, pilot.gpus, disk, pilot.nodes, pilot.whole)
    number = state.shapes.get(what)
    if number is None:
        number = state.shapes[what] = max(state.pilot_classes, default=0) + 1
        state.pilot_classes[number] = PilotClass(number, *what)
    return state.pilot_classes[number]


def join_class(state: State, pilot: PilotState) -> None:
    pc = pilot_class_of(state, pilot)
    pilot.cls = pc.number
    pc.pilots += 1


def _leave_class(state: State, pilot: PilotState) -> None:
    """Take a pilot out of its class, and drop the class with its last pilot."""
    pc = state.pilot_classes[pilot.cls]
    pc.pilots -= 1
    if not pc.pilots:
        del state.pilot_classes[pc.number]
        what = (pc.owners, pc.site, pc.cores, pc.memory, pc.gpus, pc.disk, pc.nodes, pc.whole)
        del state.shapes[what]


def _rounded_up(size: int) -> int:
    grain = 1 << max(size.bit_length() - 5, 0)
    return -(-size // grain) * grain


def pilot_draining(state: State, fact: f.PilotDraining) -> None:
    pilot = state.pilots[fact.pilot]
    PILOTS.check(pilot.state, DRAINING, pilot.number)
    pilot.state = DRAINING


def pilot_ended(state: State, fact: f.PilotEnded) -> None:
    pilot = state.pilots[fact.pilot]
    PILOTS.check(pilot.state, GONE, pilot.number)
    rows = state.attempts.of_pilot(fact.pilot).tolist()
    accounts.pledge_rows(state, rows, -1)
    pilot.state = GONE
    pilot.ended = fact.at
    pilot.why = fact.why
    accounts.pledge_rows(state, rows, 1)
    for row in rows:
        accounts.note_pledge_freed(state, row)
        if state.attempts.state[row] == DROPPED:
            add_row_load(state, row, -1)
            free_row(state, row)


def pilots_forgotten(state: State, fact: f.PilotsForgotten) -> None:
    for number in fact.pilots:
        pilot = state.pilots.pop(number)
        unregister_pilot(state, pilot)
        _leave_class(state, pilot)
        state.tokens.pop(pilot.token, None)
        state.token_ids.pop(f"pilot-{number}", None)
        state.overloaded_pilots.pop(number, None)
        state.pilots_with_news.pop(number, None)
        if state.nonces.get((pilot.site, pilot.nonce)) == number:
            del state.nonces[pilot.site, pilot.nonce]
        seen = state.arrivals.get((pilot.site, pilot.host))
        if seen is not None and seen.pilot == number:
            del state.arrivals[pilot.site, pilot.host]


def allowance_set(state: State, fact: f.AllowanceSet) -> None:
    state.allowances.pop(fact.owner, None)
    if fact.allowance >= 0:
        state.allowances[fact.owner] = fact.allowance
    for cls in state.classes.values():
        cls.note_accounts(cls.has_budget, accounts.allowance(state, state.bags[cls.bag].owner) >= 0)
    state.limits_changed = fact.at
    accounts.recount(state)
    state.version += 1


def weight_set(state: State, fact: f.WeightSet) -> None:
    state.weights[fact.owner] = fact.weight


def recount_use(state: State, site: SiteState) -> None:
    """Recount the cores that each of several owners has in use at a site."""
    site.cores_in_use.clear()
    attempts = state.attempts
    for pilot in state.pilots.values():
        if pilot.site != site.name or len(state.pilot_classes[pilot.cls].owners) < 2:
            continue
        rows = [row for row in attempts.of_pilot(pilot.number).tolist() if attempts.state[row] != LOST]
        pilot.attempts_held = pilot.load = 0
        pilot.chains.clear()
        for row in rows:
            add_row_load(state, row, 1)


def link_known(state: State, fact: f.LinkKnown) -> None:
    state.links[fact.a, fact.b] = (fact.latency, fact.rate)
    state.version += state.bags_by_data > 0
