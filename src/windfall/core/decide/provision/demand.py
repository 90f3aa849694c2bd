"""Provisioning policies: how many pilots of which shape to ask for at which site.  Pure: they look at the state only.
`reconcile.py` cuts the answer to limits and budgets.

    swarm    as many slots as the unstarted tasks are worth, at every site; the first pilot to start takes the first
             task (S1, S8)
    demand   as many slots as the unstarted tasks are worth, spread over the sites by matching (G8)
    msr, broker   pilots for one task each: `one_per_task.py`

All count slots, and choose the shape that wastes least for what a class of tasks needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from windfall.core.config import Config
from windfall.core.decide.grant.host_orders import MINUTE
from windfall.core.decide.grant.order import serves_site, tells_time
from windfall.core.decide.provision.matching import PARTS, parts, spread
from windfall.core.decide.provision.worth import attempts_in_play, worthwhile
from windfall.core.decide.replicas import by_deadline
from windfall.core.messages.facts import Shape
from windfall.core.messages.lifecycle import INTENDED, QUEUED, RUNNING
from windfall.core.state import accounts
from windfall.core.state.capacity import MILLI, best_shape, must_go_elsewhere, serves
from windfall.core.state.world import Fit, SiteState, State, TaskClass

MOST_PILOTS = 100_000  # open at a site, whatever its limits say: each of them takes memory here


class Wanted(NamedTuple):
    """A number of slots that are wanted for a class at a site."""

    cls: TaskClass
    fit: Fit
    slots: int


class View:
    """The part of the state that a policy sees: classes with something to do, by order of selection, and the sites."""

    def __init__(self, state: State, now: int, config: Config) -> None:
        self.state, self.now, self.margin, self._worth = state, now, config.margin, config.worth
        self._slots: dict[int, int] = {}
        self._in_play: dict[int, int] | None = None  # counted when a class of short tasks asks
        self.later = 0  # when something else may be wanted, though nothing happens; 0: never
        self.sites = [state.sites[name] for name in state.provisioned_sites]
        self.answering = [site for site in self.sites if not site.suspect_since]
        self._classes = [state.classes[number] for _, number in state.ready]
        if state.overdue:
            by_deadline.prune(state)  # `slots` counts overdue tasks
            self._classes += [cls for cls in by_deadline.classes_with_overdue(state) if not cls.on_ready_list]
            self._classes.sort(key=lambda cls: (cls.order_key, cls.number))

    def classes(self, policy: str) -> list[TaskClass]:
        """Return the classes whose bags are provisioned by this policy."""
        return [cls for cls in self._classes if self.state.bags[cls.bag].provision == policy]

    def slots(self, cls: TaskClass) -> int:
        """Return the new slots that are wanted for a class, wherever they are."""
        if cls.number not in self._slots:
            self._slots[cls.number] = worthwhile(self.state, cls, self._worth, self._attempts_in_play)
        return self._slots[cls.number]

    def _attempts_in_play(self) -> dict[int, int]:
        if self._in_play is None:
            self._in_play, until = attempts_in_play(self.state, self.now, self._worth)
            if until:
                self._again_at(until)
        return self._in_play

    def fit(self, site: SiteState, cls: TaskClass) -> Fit | None:
        """Return the site's shape that fits the class best, if a pilot may be sent there for it now."""
        if not self._admits(site, cls):
            return None
        due = self.state.bags[cls.bag].submitted + site.limits.delay
        if due > self.now:
            self._again_at(due)
            return None
        if cls.number not in site.best_shapes:
            start = max(self.margin, site.session.late_start)
            site.best_shapes[cls.number] = best_shape(site, cls, start) or best_shape(site, cls, self.margin)
        fit = site.best_shapes[cls.number]
        return fit if fit is not None and self.affordable(site, cls, fit) > 0 else None

    def _admits(self, site: SiteState, cls: TaskClass) -> bool:
        """May the class go to this site, by its owner, its fail-over site and its bag's expressions?"""
        bag = self.state.bags[cls.bag]
        if not serves(site, bag, cls) or site.drained:
            return False
        if cls.to_fail_over_site and must_go_elsewhere(self.state, site.name, cls):
            return False
        if not cls.has_expressions:
            return True
        if tells_time(bag):
            self._again_at(self.now + MINUTE)
        return serves_site(self.state, self.now, bag, site)

    def _again_at(self, when: int) -> None:
        self.later = min(self.later or when, when)

    def affordable(self, site: SiteState, cls: TaskClass, fit: Fit) -> int:
        """Return the slots of a class that budgets, allowances and disk leave at a site."""
        return accounts.affordable_slots(self.state, site, cls, fit.shape, self.now)


# --- swarm ----------------------------------------------------------------------------------------------------------


def swarm(view: View) -> dict[str, list[Wanted]]:
    """Return the slots wanted at each site: for every class that can run there."""
    wanted: dict[str, list[Wanted]] = {}
    classes = view.classes("swarm")
    for site in view.sites:
        wanted[site.name] = list(_within_share(view, site, _fitting(view, site, classes)))
    return wanted


def _fitting(view: View, site: SiteState, classes: list[TaskClass]) -> list[tuple[TaskClass, Fit]]:
    """Return the classes that can run at a site, in the order of selection, until they would fill it."""
    left = PARTS * (queue_room(site) + len(site.starting))
    fitting = []
    for cls in classes:
        if left <= 0:
            break
        fit = view.fit(site, cls)
        if fit is not None:
            fitting.append((cls, fit))
            most = -(-view.state.bags[cls.bag].size * site.limits.share // MILLI)
            left -= parts(min(view.slots(cls), most), fit.slots)
    return fitting


def _within_share(view: View, site: SiteState, fitting: list[tuple[TaskClass, Fit]]) -> Iterator[Wanted]:
    """Yield no more slots for a bag than its share of the site; pilots that run count for any bag."""
    state, bags = view.state, {cls.bag: None for cls, _ in fitting}
    running = [state.intents[n] for n in site.intents[RUNNING]]
    taken = sum(intent.shape.cores * intent.shape.nodes for intent in running if intent.task < 0)
    allowed = sum(-(-state.bags[bag].size * site.limits.share // MILLI) for bag in bags)
    for cls, fit in fitting:
        cores = fit.shape.cores * fit.shape.nodes
        left = allowed - taken * fit.slots // cores if site.limits.share < MILLI else view.slots(cls)
        slots = min(view.slots(cls), left, view.affordable(site, cls, fit))
        allowed -= max(slots, 0)
        if slots > 0:
            yield Wanted(cls, fit, slots)


# --- demand ---------------------------------------------------------------------------------------------------------

Key = tuple[int, int]  # places of a site and a class
Pools = dict[tuple[int, Shape], int]  # parts of pilots, by place of a site and shape


def demand(view: View, taken: dict[str, list[Wanted]]) -> dict[str, list[Wanted]]:
    """Return the slots wanted at each site: each class once, wherever there is room.

    Queued pilots that are not `taken` are used first, so that a task's pilot is not sent elsewhere on a whim; then the
    room that is left.  Higher priorities are served before all others."""
    classes = view.classes("demand")
    fits = {(s, c): fit for s, site in enumerate(view.answering) for c, cls in enumerate(classes)
            if (fit := view.fit(site, cls)) is not None}
    left = _slots_left(view, classes, fits)
    wanted: dict[str, list[Wanted]] = {site.name: _keep_at_suspect(view, site, classes) for site in view.sites}
    pools, rooms = _supply(view, taken) if fits else ({}, [])
    for level in sorted({cls.order_key[0] for cls in classes}):
        at = [key for key in fits if classes[key[1]].order_key[0] == level]
        for (s, c), n in [*_use_queued(left, pools, fits, at), *_use_room(left, rooms, fits, at)]:
            wanted[view.answering[s].name].append(Wanted(classes[c], fits[s, c], n))
    return wanted


def _slots_left(view: View, classes: list[TaskClass], fits: dict[Key, Fit]) -> list[int]:
    """Return the slots that each class wants, within what its owner can pay at one of the sites."""
    most: dict[int, int] = {}
    for (s, c), fit in fits.items():
        if classes[c].is_accounted:
            most[c] = max(most.get(c, 0), view.affordable(view.answering[s], classes[c], fit))
    return [min(view.slots(cls), most.get(c, accounts.UNLIMITED)) for c, cls in enumerate(classes)]


def _keep_at_suspect(view: View, site: SiteState, classes: list[TaskClass]) -> list[Wanted]:
    """Return slots for all classes at a suspect site: it is sent nothing, and its pilots may be of use to any class."""
    fits = [(cls, view.fit(site, cls)) for cls in classes] if site.suspect_since else []
    return [Wanted(cls, fit, view.slots(cls)) for cls, fit in fits if fit is not None]


def _supply(view: View, taken: dict[str, list[Wanted]]) -> tuple[Pools, list[int]]:
    """Return the parts of pilots that are expected, by site and shape, and the parts for which a site has room beside
    them."""
    pools: Pools = {}
    rooms = []
    for s, site in enumerate(view.answering):
        others = pilots_for(taken[site.name])
        rooms.append(PARTS * max(queue_room(site) - sum(others.values()), 0))
        for shape, n in pilots_expected(view.state, site).items():
            pools[s, shape] = PARTS * max(n - others.get(shape, 0), 0)
            rooms[s] = max(rooms[s] - PARTS * max(site.queued_by_shape.get(shape, 0) - others.get(shape, 0), 0), 0)
    return pools, rooms


def _use_queued(left: list[int], pools: Pools, fits: dict[Key, Fit], keys: list[Key]) -> list[tuple[Key, int]]:
    """Match classes with pilots that are expected; return the slots of each class at each site."""
    places = list(pools)
    index = {place: n for n, place in enumerate(places)}
    slots = {(index[s, fits[s, c].shape], c): fits[s, c].slots for s, c in keys if (s, fits[s, c].shape) in pools}
    matched = spread(left, [pools[place] // PARTS for place in places], slots)
    for (place, c), n in matched.items():
        left[c] -= n
        pools[places[place]] -= parts(n, slots[place, c])
    return [((places[place][0], c), n) for (place, c), n in matched.items()]


def _use_room(left: list[int], rooms: list[int], fits: dict[Key, Fit], keys: list[Key]) -> list[tuple[Key, int]]:
    """Match classes with the room for new pilots; return the slots of each class at each site."""
    matched = spread(left, [room // PARTS for room in rooms], {key: fits[key].slots for key in keys})
    for (s, c), n in matched.items():
        left[c] -= n
        rooms[s] -= parts(n, fits[s, c].slots)
    return list(matched.items())


# --- pilots ---------------------------------------------------------------------------------------------------------


def pilots_for(wanted: Iterable[Wanted]) -> dict[Shape, int]:
    """Return how many pilots of each shape have the wanted slots, in the order of selection; classes share pilots."""
    needed: dict[Shape, int] = {}
    for each in sorted(wanted, key=lambda w: w.cls.order_key):
        needed[each.fit.shape] = needed.get(each.fit.shape, 0) + parts(each.slots, each.fit.slots)
    return {shape: -(-n // PARTS) for shape, n in needed.items()}


def pilots_expected(state: State, site: SiteState) -> dict[Shape, int]:
    """Return how many pilots of each shape, for no task in particular, are queued, or run and have not asked yet."""
    expected = dict(site.queued_by_shape)
    for number in site.starting:
        if state.intents[number].task < 0:
            shape = state.intents[number].shape
            expected[shape] = expected.get(shape, 0) + 1
    return expected


def queue_room(site: SiteState) -> int:
    """Return how many pilots for no task in particular may be queued at a site.

    Pilots that are being stopped are as good as gone: they keep new ones out, but are no reason to stop others."""
    limits, running = site.limits, len(site.intents[RUNNING])
    for_one_task = len(site.intents[INTENDED]) + len(site.intents[QUEUED]) - sum(site.queued_by_shape.values())
    most = MOST_PILOTS - running
    if limits.pilots:
        most = min(most, limits.pilots - running)
    if limits.queued:
        most = min(most, limits.queued)
    if limits.jobs:
        most = min(most, limits.jobs - site.session.other_jobs - running)
    return max(most - for_one_task, 0)
