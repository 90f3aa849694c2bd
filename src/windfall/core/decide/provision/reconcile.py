"""Reconciling: make intents and take them back, so that the pilots queued at the sites are those the policies want.

Runs after a step in which something happened, at most once in `provision` milliseconds, less often where much is to be
matched; its work depends on classes and sites, and is none where no site has shapes.

P6 is kept here and nowhere else as far as it is about pilots: every intent is made by `_make`, which makes none beyond
the site's limits, and reserves the worst case of its budget and of the balance its user's account has there.  Budgets
of bags and allowances of owners are kept where tasks are granted (`state/accounts.py`).
"""

from __future__ import annotations

from windfall.core.decide.provision import site_watch
from windfall.core.decide.provision.demand import (
    MOST_PILOTS,
    View,
    Wanted,
    demand,
    pilots_expected,
    pilots_for,
    queue_room,
    swarm,
)
from windfall.core.decide.provision.intents import end_intents, used
from windfall.core.decide.provision.one_per_task import TaskPilot, task_pilots
from windfall.core.decide.provision.site_orders import ask_for_room
from windfall.core.decide.provision.surplus import dismiss_surplus
from windfall.core.messages import facts as f
from windfall.core.messages.facts import Shape
from windfall.core.messages.lifecycle import INTENDED, LEAVING, QUEUED, READY, STOPPING
from windfall.core.state.accounts import UNLIMITED
from windfall.core.state.capacity import must_go_elsewhere
from windfall.core.state.columns import bag_and_task
from windfall.core.state.world import IntentState, SiteState, State
from windfall.core.turn import Turn

AT_ONCE = 10_000  # intents made by one run: others wait for it
MATCHED = 20  # pairs of classes and sites to match, per ms until that is done again: a tenth of the server's time


def provision_if_due(turn: Turn) -> None:
    """Provision at the end of a step in which something happened, or set a timer if that was done a moment ago."""
    turn.provision.changed = turn.provision.changed or bool(turn.facts)
    if not turn.provision.changed or not turn.state.provisioned_sites:
        return
    due = turn.provision.last_run + max(turn.config.provision, turn.provision.pairs_matched // MATCHED)
    if due <= turn.now:
        provision(turn)
    else:
        _provision_at(turn, due)


def _provision_at(turn: Turn, due: int) -> None:
    if not turn.provision.timer or due < turn.provision.timer:
        turn.provision.timer = due
        turn.timers.add(due, "provision", 0)


def provision_due(turn: Turn, _: int) -> None:
    """Let the end of this step provision."""
    turn.provision.timer = 0
    turn.provision.changed = True


def provision(turn: Turn) -> None:
    """Make and withdraw intents at all sites."""
    turn.provision.last_run, turn.provision.intents_left = turn.now, AT_ONCE
    site_watch.watch_sites(turn)
    view = View(turn.state, turn.now, turn.config)
    turn.provision.pairs_matched = len(view.classes("demand")) * len(view.sites)
    _stop_stale_task_pilots(turn)
    for site in view.sites:
        site.session.wants_room = False
    targets = wanted_pilots(view)
    for site in view.sites:
        _reconcile(turn, site, targets[site.name])
    for pilot in task_pilots(view):
        _make(turn, pilot.site, pilot.shape, 1, pilot)
    turn.provision.changed = False  # the facts of this run are no reason to run again
    soon = 0 if turn.provision.intents_left else turn.now + turn.config.provision
    retries = [site.session.retry_after for site in view.sites]
    later = [at for at in (soon, view.later, dismiss_surplus(turn), *retries) if at > turn.now]
    if later:
        _provision_at(turn, min(later))


def wanted_pilots(view: View) -> dict[str, dict[Shape, int]]:
    """Return for each site the pilots of each shape to have queued, within the site's room."""
    by_swarm = swarm(view)
    by_demand = demand(view, by_swarm)
    return {site.name: _cut_to_room(view.state, site, [*by_swarm.get(site.name, ()), *by_demand.get(site.name, ())])
            for site in view.sites}


def _cut_to_room(state: State, site: SiteState, wanted: list[Wanted]) -> dict[Shape, int]:
    """Cut the wanted pilots to a site's room and budget, the last in the order of selection first."""
    room, core_ms = queue_room(site), _core_ms_left(state, site)
    targets = {}
    expected = pilots_expected(state, site)
    for shape, pilots in pilots_for(wanted).items():
        n = min(pilots - expected.get(shape, 0) + site.queued_by_shape.get(shape, 0), room)
        n = max(min(n, max(core_ms, 0) // (shape.worst or 1)), 0)
        core_ms -= n * shape.worst
        room -= n
        targets[shape] = n
    return targets


def _core_ms_left(state: State, site: SiteState) -> int:
    """Return the core-ms for queued pilots; as with room, pilots that are being stopped are as good as gone."""
    free = sum(shape.worst * n for shape, n in site.queued_by_shape.items())
    free += sum(state.intents[number].reserved for number in site.intents[STOPPING])
    free += sum(i.reserved - used(i, state.now) for i in map(state.intents.__getitem__, site.intents[LEAVING]))
    return unreserved(site) + free


def unreserved(site: SiteState) -> int:
    """Return the core-ms at a site, of its budget and of its user's account, that no pilot has used or reserved."""
    of_budget = site.limits.budget - site.core_ms_used if site.limits.budget else UNLIMITED
    return min(of_budget, _account_left(site)) - site.core_ms_reserved


def _account_left(site: SiteState) -> int:
    """Return the core-ms that the user's account has left at a site, as far as is known.

    A pilot that runs is charged by the batch system and reserved here: it counts twice, rather than not at all.  So
    does one that has ended since the balance was looked up."""
    t = site.session
    if not site.limits.account or (t.account_heard >= 0 and t.balance < 0):
        return UNLIMITED
    return t.balance - (site.core_ms_released - t.balance_as_of) if t.balance_as_of >= 0 else 0


# --- withdrawing ----------------------------------------------------------------------------------------------------


def _reconcile(turn: Turn, site: SiteState, target: dict[Shape, int]) -> None:
    for shape in [shape for shape in site.queued_by_shape if site.queued_by_shape[shape] > target.get(shape, 0)]:
        _shrink(turn, site, shape, site.queued_by_shape[shape] - target.get(shape, 0))
    for shape, n in target.items():
        if n > site.queued_by_shape.get(shape, 0):
            _make(turn, site, shape, n - site.queued_by_shape.get(shape, 0))


def _shrink(turn: Turn, site: SiteState, shape: Shape, n: int) -> None:
    """Withdraw n queued pilots of a shape, newest first: the oldest will start soonest."""
    state = turn.state
    queue = [*site.intents[QUEUED], *site.intents[INTENDED]]
    chosen = [i for number in reversed(queue) if (i := state.intents[number]).task < 0 and i.shape == shape]
    stop(turn, site, chosen[:n], "demand")


def _stop_stale_task_pilots(turn: Turn) -> None:
    """Withdraw pilots for a task that has started elsewhere, or ended, or goes elsewhere now."""
    stale: dict[str, list[IntentState]] = {}
    for ref, numbers in turn.state.task_pilots.items():
        for intent in map(turn.state.intents.__getitem__, numbers):
            if intent.state in (INTENDED, QUEUED) and not _may_start_at(turn.state, ref, intent.site):
                stale.setdefault(intent.site, []).append(intent)
    for name, intents in stale.items():
        stop(turn, turn.state.sites[name], intents, "started")


def _may_start_at(state: State, ref: int, site: str) -> bool:
    """May the task still start at the site?"""
    number, task = bag_and_task(ref)
    bag = state.bags.get(number)
    if bag is None or bag.paused or bag.tasks.state[task] != READY:
        return False
    cls = bag.classes[bag.target_of(task), bag.tasks.variant[task]]
    return not (cls.to_fail_over_site and must_go_elsewhere(state, site, cls))


def stop(turn: Turn, site: SiteState, intents: list[IntentState], why: str) -> None:
    """End the intents that no provisioner has been told of, and have the others stopped."""
    unsent = [i for i in intents if i.state == INTENDED and not i.start_told]
    sent = [i.number for i in intents if i.state != INTENDED or i.start_told]
    if unsent:
        end_intents(turn, site, unsent, why)
    if sent:
        turn.emit(f.IntentsStopping(turn.now, site.name, sent, why))


# --- making ---------------------------------------------------------------------------------------------------------


def _make(turn: Turn, site: SiteState, shape: Shape, n: int, task_pilot: TaskPilot | None = None) -> None:
    """Make n intents, or as many as there is room for."""
    wanted, n = n, min(n, _room_to_add(turn, site, shape))
    if n < wanted and site.intents[LEAVING] and not site.session.wants_room:
        ask_for_room(turn, site)
    if n <= 0:
        return
    n = min(n, turn.provision.intents_left)  # the rest in a moment
    turn.provision.intents_left -= n
    first, mark = turn.state.next_intent, turn.config.mark
    bag, task = (task_pilot.bag, task_pilot.task) if task_pilot else (0, -1)
    made = [f.Intent(k, f"{mark}-{k}", shape, shape.worst, bag=bag, task=task) for k in range(first, first + n)]
    turn.emit(f.IntentsMade(turn.now, site.name, made))


def _room_to_add(turn: Turn, site: SiteState, shape: Shape) -> int:
    """Return how many pilots of a shape may be added to a site now, by its limits and its budget."""
    limits = site.limits
    if site.session.retry_after > turn.now or site.drained or site.suspect_since:
        return 0
    rooms: list[int] = [MOST_PILOTS - site.open, *([1 - site.waiting] if site.session.probing else ())]
    if limits.pilots:
        rooms.append(limits.pilots - site.open)
    if limits.queued:
        rooms.append(limits.queued - site.waiting)
    if limits.jobs:  # nothing is safe before the provisioner has counted the user's other jobs there
        rooms.append(limits.jobs - site.open - site.session.other_jobs if site.session.account_heard >= 0 else 0)
    if shape.worst:
        rooms.append(unreserved(site) // shape.worst)
    return min(rooms)
