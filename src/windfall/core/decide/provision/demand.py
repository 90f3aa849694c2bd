"""Provisioning policies: what to have at which site.  Pure: they look at the state and say what is wanted.

    swarm    as many slots as there are unstarted tasks, at every site; who starts first takes the first task (S1, S8)
    demand   as many slots as there are unstarted tasks, spread over the sites by matching (G8)
    msr      for every unstarted task a pilot of its own at k sites; the first to start takes it (S12)
    broker   for every unstarted task one pilot, at the site that looks best to the information system (S12)

The first two want pilots for whatever is there, and say how many of each shape.  The other two, for comparison, bind a
pilot to a task.  All count slots, and choose the shape that wastes least for what a class of tasks needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from windfall.core.decide.grant.host_orders import MINUTE
from windfall.core.decide.grant.order import serves_site, tells_time
from windfall.core.decide.provision.matching import PARTS, parts, spread
from windfall.core.decide.replicas import by_deadline
from windfall.core.messages.facts import Shape
from windfall.core.messages.lifecycle import INTENDED, QUEUED, READY, RUNNING
from windfall.core.state import accounts
from windfall.core.state.capacity import MILLI, best_shape, must_go_elsewhere, serves
from windfall.core.state.chains import tasks_filling
from windfall.core.state.world import BagState, Fit, SiteState, State, TaskClass

PROVISIONS = ("swarm", "demand", "msr", "broker")
MOST_PILOTS = 100_000  # open at a site, whatever its limits say: each of them takes memory here


def unstarted(cls: TaskClass) -> int:
    """Slots that its ready tasks, and those that are overdue, could fill; those of a batch share one."""
    return -(-(cls.ready + len(cls.overdue)) // max(cls.batch, 1))


class Wanted(NamedTuple):
    """So many slots of a class at a site."""

    cls: TaskClass
    fit: Fit
    slots: int


class View:
    """What a policy may look at: the classes with something to do, by the order of selection, and the sites."""

    def __init__(self, state: State, now: int, margin: int) -> None:
        self.state, self.now, self.margin = state, now, margin
        self.later = 0  # when something else may be wanted, though nothing happens; 0: never
        self.sites = [state.sites[name] for name in state.provisioned_sites]
        self.answering = [site for site in self.sites if not site.suspect_since]
        self._classes = [state.classes[number] for _, number in state.ready]
        if state.overdue:
            by_deadline.prune(state)  # what waits is counted
            self._classes += [cls for cls in by_deadline.classes_with_overdue(state) if not cls.on_ready_list]
            self._classes.sort(key=lambda cls: (cls.order_key, cls.number))

    def classes(self, policy: str) -> list[TaskClass]:
        return [cls for cls in self._classes if self.state.bags[cls.bag].provision == policy]

    def fit(self, site: SiteState, cls: TaskClass) -> Fit | None:
        bag = self.state.bags[cls.bag]
        if (
            not serves(site, bag, cls)
            or site.drained
            or (cls.to_fail_over_site and must_go_elsewhere(self.state, site.name, cls))
        ):
            return None
        if cls.has_expressions and tells_time(bag):
            self._again_at(self.now + MINUTE)
        if cls.has_expressions and not serves_site(self.state, self.now, bag, site):
            return None
        due = bag.submitted + site.limits.delay
        if due > self.now:
            self._again_at(due)
            return None
        if cls.number not in site.best_shapes:
            start = max(self.margin, site.session.late_start)
            site.best_shapes[cls.number] = best_shape(site, cls, start) or best_shape(site, cls, self.margin)
        fit = site.best_shapes[cls.number]
        return fit if fit is not None and self.paid(site, cls, fit) > 0 else None

    def _again_at(self, when: int) -> None:
        self.later = min(self.later or when, when)

    def paid(self, site: SiteState, cls: TaskClass, fit: Fit) -> int:
        """Slots of a class that budgets, allowances and disk leave at a site."""
        return accounts.affordable_slots(self.state, site, cls, fit.shape, self.now)


def swarm(view: View) -> dict[str, list[Wanted]]:
    wanted: dict[str, list[Wanted]] = {}
    classes = view.classes("swarm")
    for site in view.sites:
        wanted[site.name] = list(_capped(view, site, _fitting(view, site, classes)))
    return wanted


def _fitting(view: View, site: SiteState, classes: list[TaskClass]) -> list[tuple[TaskClass, Fit]]:
    """Those that can run there, in the order of selection, until they would fill it."""
    left = PARTS * (capacity(site) + len(site.starting))
    found = []
    for cls in classes:
        if left <= 0:
            break
        fit = view.fit(site, cls)
        if fit is not None:
            found.append((cls, fit))
            most = -(-view.state.bags[cls.bag].size * site.limits.share // MILLI)
            left -= parts(min(unstarted(cls), most), fit.slots)
    return found


def _capped(view: View, site: SiteState, here: list[tuple[TaskClass, Fit]]) -> Iterator[Wanted]:
    """No more slots for a bag than its share; what runs there counts, whoever it was started for."""
    state, bags = view.state, {cls.bag: None for cls, _ in here}
    running = [state.intents[n] for n in site.intents[RUNNING]]
    taken = sum(each.shape.cores * each.shape.nodes for each in running if each.task < 0)
    allowed = sum(-(-state.bags[bag].size * site.limits.share // MILLI) for bag in bags)
    for cls, fit in here:
        cores = fit.shape.cores * fit.shape.nodes
        left = allowed - taken * fit.slots // cores if site.limits.share < MILLI else unstarted(cls)
        slots = min(unstarted(cls), left, view.paid(site, cls, fit))
        allowed -= max(slots, 0)
        if slots > 0:
            yield Wanted(cls, fit, slots)


def pilots_for(wanted: Iterable[Wanted]) -> dict[Shape, int]:
    """Pilots of each shape that have so many slots, in the order of selection; classes share them."""
    found: dict[Shape, int] = {}
    for each in sorted(wanted, key=lambda w: w.cls.order_key):
        found[each.fit.shape] = found.get(each.fit.shape, 0) + parts(each.slots, each.fit.slots)
    return {shape: -(-n // PARTS) for shape, n in found.items()}


def coming(state: State, site: SiteState) -> dict[Shape, int]:
    """Pilots that are queued, or run and have not asked yet, for no task in particular."""
    found = dict(site.queued_by_shape)
    for number in site.starting:
        if state.intents[number].task < 0:
            shape = state.intents[number].shape
            found[shape] = found.get(shape, 0) + 1
    return found


def demand(view: View, taken: dict[str, list[Wanted]]) -> dict[str, list[Wanted]]:
    """First against pilots that are queued and not `taken`, so that what was sent once is not sent elsewhere on a whim;
    then against the room that is left.  Higher priorities are served before all others."""
    classes = view.classes("demand")
    fits = {(s, c): fit for s, site in enumerate(view.answering) for c, cls in enumerate(classes)
            if (fit := view.fit(site, cls)) is not None}
    paid = {c: max(view.paid(view.answering[s], classes[c], fit) for (s, of), fit in fits.items() if of == c)
            for _, c in fits if accounts.is_accounted(classes[c])}
    left = [min(unstarted(cls), paid.get(c, accounts.UNLIMITED)) for c, cls in enumerate(classes)]
    wanted: dict[str, list[Wanted]] = {site.name: _kept(view, site, classes) for site in view.sites}
    pools, rooms = _supply(view, taken) if fits else ({}, [])
    for level in sorted({cls.order_key[0] for cls in classes}):
        at = [key for key in fits if classes[key[1]].order_key[0] == level]
        for (s, c), n in [*_claim(left, pools, fits, at), *_send(left, rooms, fits, at)]:
            wanted[view.answering[s].name].append(Wanted(classes[c], fits[s, c], n))
    return wanted


def _kept(view: View, site: SiteState, classes: list[TaskClass]) -> list[Wanted]:
    """At a suspect site: nothing new is sent there, and what is there may be of use to any of them."""
    fits = [(cls, view.fit(site, cls)) for cls in classes] if site.suspect_since else []
    return [Wanted(cls, fit, unstarted(cls)) for cls, fit in fits if fit is not None]


Key = tuple[int, int]  # places of a site and a class


def _supply(view: View, taken: dict[str, list[Wanted]]) -> tuple[dict[tuple[int, Shape], int], list[int]]:
    """Parts of pilots that are coming, by site and shape; and parts for which there is room beside them."""
    pools: dict[tuple[int, Shape], int] = {}
    rooms = []
    for s, site in enumerate(view.answering):
        others = pilots_for(taken[site.name])
        rooms.append(PARTS * max(capacity(site) - sum(others.values()), 0))
        for shape, n in coming(view.state, site).items():
            pools[s, shape] = PARTS * max(n - others.get(shape, 0), 0)
            rooms[s] = max(rooms[s] - PARTS * max(site.queued_by_shape.get(shape, 0) - others.get(shape, 0), 0), 0)
    return pools, rooms


def _claim(left: list[int], pools: dict[tuple[int, Shape], int], fits: dict[Key, Fit], keys: list[Key]
           ) -> list[tuple[Key, int]]:
    places = list(pools)
    index = {place: n for n, place in enumerate(places)}
    slots = {(index[s, fits[s, c].shape], c): fits[s, c].slots for s, c in keys if (s, fits[s, c].shape) in pools}
    found = spread(left, [pools[place] // PARTS for place in places], slots)
    for (place, c), n in found.items():
        left[c] -= n
        pools[places[place]] -= parts(n, slots[place, c])
    return [((places[place][0], c), n) for (place, c), n in found.items()]


def _send(left: list[int], rooms: list[int], fits: dict[Key, Fit], keys: list[Key]) -> list[tuple[Key, int]]:
    found = spread(left, [room // PARTS for room in rooms], {key: fits[key].slots for key in keys})
    for (s, c), n in found.items():
        left[c] -= n
        rooms[s] -= parts(n, fits[s, c].slots)
    return list(found.items())


def capacity(site: SiteState) -> int:
    """Pilots for no task in particular that may be queued.  Those that are being stopped are as good as gone: they keep
    new ones out until they are, but are no reason to stop others."""
    limits, pool = site.limits, sum(site.queued_by_shape.values())
    queued = len(site.intents[INTENDED]) + len(site.intents[QUEUED])
    most = [MOST_PILOTS - len(site.intents[RUNNING]) - (queued - pool)]
    if limits.pilots:
        most.append(limits.pilots - len(site.intents[RUNNING]) - (queued - pool))
    if limits.queued:
        most.append(limits.queued - (queued - pool))
    if limits.jobs:
        most.append(limits.jobs - site.session.other_jobs - len(site.intents[RUNNING]) - (queued - pool))
    return max(min(most), 0)


# --- those that name a task -----------------------------------------------------------------------------------------


class Named(NamedTuple):
    """A pilot for one task."""

    site: SiteState
    shape: Shape
    bag: int
    task: int


def named(view: View) -> Iterator[Named]:
    """Looks at tasks, not at classes: a pilot each is what these two are about."""
    for number in view.state.bags_with_task_pilots:
        bag = view.state.bags[number]
        if bag.counts[READY] and not bag.paused:
            choose = _msr if bag.provision == "msr" else _broker
            yield from choose(view, bag)


def _unstarted(bag: BagState) -> Iterable[tuple[int, TaskClass]]:
    held = tasks_filling(bag)
    for task in np.flatnonzero(bag.tasks.np_state[: bag.size] == READY).tolist():
        cls = bag.classes[bag.target_of(task), bag.tasks.variant[task]]
        if cls.on_ready_list and task not in held:
            yield task, cls


def _sent(state: State, bag: BagState, task: int) -> list[str]:
    """Sites where a pilot for it waits, or is about to ask; of suspect ones nobody knows."""
    of = [state.intents[n] for n in state.task_pilots.get(bag.number << 32 | task, ())]
    of = [i for i in of if not state.sites[i.site].suspect_since]
    return [i.site for i in of if i.state in (INTENDED, QUEUED) or i.number in state.sites[i.site].starting]


def _msr(view: View, bag: BagState) -> Iterator[Named]:
    """On the k sites with the shortest queues, as far as is known; by default on all."""
    sites = view.answering
    if bag.options.get("k"):
        sites = sorted(sites, key=lambda site: site.session.jobs_queued)
    for task, cls in _unstarted(bag):
        there = _sent(view.state, bag, task)
        more = bag.options.get("k", len(sites)) - len(there)
        for site in sites:
            if more > 0 and site.name not in there and (fit := view.fit(site, cls)) is not None:
                more -= 1
                yield Named(site, fit.shape, bag.number, task)


def _broker(view: View, bag: BagState) -> Iterator[Named]:
    """Most free processors where nothing queues, else the shortest queue: by what the information system said.  Where
    something has just come to nothing it looks elsewhere first.

    With the option `own` what was sent since then is taken into account; a resource broker of the time did not know it.
    """
    own = bool(bag.options.get("own"))
    for task, cls in _unstarted(bag):
        if _sent(view.state, bag, task):
            continue
        fits = [(site, fit) for site in view.answering if (fit := view.fit(site, cls)) is not None]
        if fits:
            site, fit = min(fits, key=lambda pair: (pair[0].session.retry_after > view.now, _rank(view, pair[0], own)))
            yield Named(site, fit.shape, bag.number, task)


def _rank(view: View, site: SiteState, own: bool) -> tuple[int, int]:
    t = site.session
    if t.info_at < 0:
        return 2, site.waiting  # it says nothing: what we know is what we sent
    if not own:
        return (0, -t.free_processors) if not t.jobs_queued else (1, t.jobs_queued)
    since = sum(view.state.intents[n].made >= t.info_at for of in site.intents[:2] for n in of)
    free = t.free_processors - since
    return (0, -free) if not t.jobs_queued and free > 0 else (1, t.jobs_queued + max(-free, 0))
