"""Provisioning: make intents and take them back, so that what is queued at the sites is what the policies want.

Runs after a step in which something happened, at most once in `provision` milliseconds, less often where much is to be
matched; its work depends on classes and sites, and is none where no site has shapes.

P6 is kept here and nowhere else as far as it is about pilots: every intent is made by `_make`, which makes none beyond
the site's limits, and reserves the worst case of its budget and of the balance its user's account has there.  What
bags and owners may use is kept where tasks are granted (`means.py`).
"""

from __future__ import annotations

from windfall.core.decide.provision import site_watch
from windfall.core.decide.provision.demand import (
    MOST_PILOTS,
    View,
    Wanted,
    capacity,
    coming,
    demand,
    named,
    pilots_for,
    swarm,
)
from windfall.core.decide.provision.intents import end_intents, used
from windfall.core.decide.provision.site_session import look_for_room
from windfall.core.messages import facts as f
from windfall.core.messages.facts import Shape
from windfall.core.messages.lifecycle import INTENDED, LEAVING, QUEUED, READY, STOPPING
from windfall.core.state.accounts import UNLIMITED
from windfall.core.state.capacity import must_go_elsewhere
from windfall.core.state.world import IntentState, SiteState, State
from windfall.core.turn import Turn

AT_ONCE = 10_000  # intents made by one run: others wait for it
MATCHED = 20  # pairs of classes and sites to match, per ms until that is done again: a tenth of the server's time


def settle(turn: Turn) -> None:
    """At the end of a step."""
    turn.provision.changed = turn.provision.changed or bool(turn.facts)
    if not turn.provision.changed or not turn.state.provisioned_sites:
        return
    due = turn.provision.last_run + max(turn.config.provision, turn.provision.pairs_matched // MATCHED)
    if due <= turn.now:
        run(turn)
    elif not turn.provision.timer or due < turn.provision.timer:
        turn.provision.timer = due
        turn.timers.add(due, "provision", 0)


def provision_due(turn: Turn, _: int) -> None:
    turn.provision.timer = 0
    turn.provision.changed = True


def run(turn: Turn) -> None:
    turn.provision.last_run, turn.provision.intents_left = turn.now, AT_ONCE
    site_watch.arm(turn)
    view = View(turn.state, turn.now, turn.config.margin)
    turn.provision.pairs_matched = len(view.classes("demand")) * len(view.sites)
    _stop_started(turn)
    for site in view.sites:
        site.session.wants_room = False
    targets = wanted_pilots(view)
    for site in view.sites:
        _reconcile(turn, site, targets[site.name])
    for each in named(view):
        _make(turn, each.site, each.shape, 1, each.bag, each.task)
    turn.provision.changed = False  # what it did itself is no reason to run again
    soon = 0 if turn.provision.intents_left else turn.now + turn.config.provision
    later = [at for at in (soon, view.later, *(site.session.retry_after for site in view.sites)) if at > turn.now]
    if later and (not turn.provision.timer or min(later) < turn.provision.timer):
        turn.provision.timer = min(later)
        turn.timers.add(turn.provision.timer, "provision", 0)


def wanted_pilots(view: View) -> dict[str, dict[Shape, int]]:
    """Per site: pilots of each shape to have queued, within what the site has room for."""
    by_swarm = swarm(view)
    by_demand = demand(view, by_swarm)
    return {site.name: _clip(view.state, site, [*by_swarm.get(site.name, ()), *by_demand.get(site.name, ())])
            for site in view.sites}


def _clip(state: State, site: SiteState, wanted: list[Wanted]) -> dict[Shape, int]:
    """In the order of selection, so that what comes first is not kept out by what came earlier."""
    room, money = capacity(site), _money(state, site)
    targets = {}
    fresh = coming(state, site)
    for shape, pilots in pilots_for(wanted).items():
        n = min(pilots - fresh.get(shape, 0) + site.queued_by_shape.get(shape, 0), room)
        n = min(n, max(money, 0) // (shape.worst or 1))
        money -= max(n, 0) * shape.worst
        room -= max(n, 0)
        targets[shape] = max(n, 0)
    return targets


def _money(state: State, site: SiteState) -> int:
    """Ms of cores for those that are queued; as with room, those that are being stopped are as good as gone."""
    free = sum(shape.worst * n for shape, n in site.queued_by_shape.items())
    free += sum(state.intents[number].reserved for number in site.intents[STOPPING])
    free += sum(i.reserved - used(i, state.now) for i in map(state.intents.__getitem__, site.intents[LEAVING]))
    return unreserved(site) + free


def unreserved(site: SiteState) -> int:
    """Ms of cores that no pilot has reserved there, of our budget and of what the account has left."""
    of_budget = site.limits.budget - site.core_ms_used if site.limits.budget else UNLIMITED
    return min(of_budget, _balance(site)) - site.core_ms_reserved


def _balance(site: SiteState) -> int:
    """Of the account.  What runs stands in its books and is reserved in ours: it counts twice, rather than not at all.
    So does what has ended since the balance was looked up."""
    t = site.session
    if not site.limits.account or (t.account_heard >= 0 and t.balance < 0):
        return UNLIMITED
    return t.balance - (site.core_ms_released - t.balance_as_of) if t.balance_as_of >= 0 else 0


def _reconcile(turn: Turn, site: SiteState, target: dict[Shape, int]) -> None:
    for shape in [shape for shape in site.queued_by_shape if site.queued_by_shape[shape] > target.get(shape, 0)]:
        _shrink(turn, site, shape, site.queued_by_shape[shape] - target.get(shape, 0))
    for shape, n in target.items():
        if n > site.queued_by_shape.get(shape, 0):
            _make(turn, site, shape, n - site.queued_by_shape.get(shape, 0))


def _shrink(turn: Turn, site: SiteState, shape: Shape, n: int) -> None:
    """Newest first: what has waited longest will start soonest."""
    state = turn.state
    line = [*site.intents[QUEUED], *site.intents[INTENDED]]
    chosen = [i for number in reversed(line) if (i := state.intents[number]).task < 0 and i.shape == shape]
    stop(turn, site, chosen[:n], "demand")


def _stop_started(turn: Turn) -> None:
    """Pilots for a task that has started elsewhere, or ended, or goes elsewhere now."""
    stale: dict[str, list[IntentState]] = {}
    for ref, of in turn.state.task_pilots.items():
        for intent in map(turn.state.intents.__getitem__, of):
            if intent.state in (INTENDED, QUEUED) and not _may_start(turn.state, ref, intent.site):
                stale.setdefault(intent.site, []).append(intent)
    for name, intents in stale.items():
        stop(turn, turn.state.sites[name], intents, "started")


def _may_start(state: State, ref: int, site: str) -> bool:
    """A task, there."""
    bag, task = state.bags.get(ref >> 32), ref & 0xFFFFFFFF
    if bag is None or bag.paused or bag.tasks.state[task] != READY:
        return False
    cls = bag.classes[bag.target_of(task), bag.tasks.variant[task]]
    return not (cls.to_fail_over_site and must_go_elsewhere(state, site, cls))


def stop(turn: Turn, site: SiteState, intents: list[IntentState], why: str) -> None:
    unsent = [i for i in intents if i.state == INTENDED and not i.start_told]
    sent = [i.number for i in intents if i.state != INTENDED or i.start_told]
    if unsent:
        end_intents(turn, site, unsent, why)
    if sent:
        turn.emit(f.IntentsStopping(turn.now, site.name, sent, why))


def _make(turn: Turn, site: SiteState, shape: Shape, n: int, bag: int = 0, task: int = -1) -> None:
    wanted, n = n, min(n, _room(turn, site, shape))
    if n < wanted and site.intents[LEAVING] and not site.session.wants_room:
        look_for_room(turn, site)
    if n <= 0:
        return
    n = min(n, turn.provision.intents_left)  # the rest in a moment
    turn.provision.intents_left -= n
    first = turn.state.next_intent
    made = [f.Intent(k, f"{turn.config.mark}-{k}", shape, shape.worst, bag, task) for k in range(first, first + n)]
    turn.emit(f.IntentsMade(turn.now, site.name, made))


def _room(turn: Turn, site: SiteState, shape: Shape) -> int:
    limits = site.limits
    if site.session.retry_after > turn.now or site.drained or site.suspect_since:
        return 0
    rooms: list[int] = [MOST_PILOTS - site.open, *([1 - site.waiting] if site.session.probing else ())]
    if limits.pilots:
        rooms.append(limits.pilots - site.open)
    if limits.queued:
        rooms.append(limits.queued - site.waiting)
    if limits.jobs:  # before its tender has said what else is there, nothing is safe
        rooms.append(limits.jobs - site.open - site.session.other_jobs if site.session.account_heard >= 0 else 0)
    if shape.worst:
        rooms.append(unreserved(site) // shape.worst)
    return min(rooms)
