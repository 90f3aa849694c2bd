"""Policies that bind a pilot to one task before it starts, for comparison (S12).

    msr      a pilot for each unstarted task at k sites; the first to start takes the task
    broker   one pilot for each unstarted task, at the site that looks best to the information system

These policies look at tasks, not at classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from windfall.core.decide.provision.demand import View
from windfall.core.messages.facts import Shape
from windfall.core.messages.lifecycle import INTENDED, QUEUED, READY
from windfall.core.state.chains import tasks_filling
from windfall.core.state.columns import ref_of
from windfall.core.state.world import BagState, SiteState, State, TaskClass


class TaskPilot(NamedTuple):
    """A pilot that is wanted for one task."""

    site: SiteState
    shape: Shape
    bag: int
    task: int


def task_pilots(view: View) -> Iterator[TaskPilot]:
    """Yield the pilots that are wanted for one task each."""
    for number in view.state.bags_with_task_pilots:
        bag = view.state.bags[number]
        if bag.counts[READY] and not bag.paused:
            choose = _msr if bag.provision == "msr" else _broker
            yield from choose(view, bag)


def _unstarted_tasks(bag: BagState) -> Iterable[tuple[int, TaskClass]]:
    held = tasks_filling(bag)
    for task in np.flatnonzero(bag.tasks.np_state[: bag.size] == READY).tolist():
        cls = bag.classes[bag.target_of(task), bag.tasks.variant[task]]
        if cls.on_ready_list and task not in held:
            yield task, cls


def _sites_expecting(state: State, bag: BagState, task: int) -> list[str]:
    """Return the sites where a pilot for the task is queued, or will ask soon; suspect sites are left out."""
    intents = [state.intents[number] for number in state.task_pilots.get(ref_of(bag.number, task), ())]
    intents = [intent for intent in intents if not state.sites[intent.site].suspect_since]
    return [intent.site for intent in intents
            if intent.state in (INTENDED, QUEUED) or intent.number in state.sites[intent.site].starting]


def _msr(view: View, bag: BagState) -> Iterator[TaskPilot]:
    """Send pilots to the k sites with the shortest known queues; by default to all sites."""
    sites = view.answering
    if bag.options.get("k"):
        sites = sorted(sites, key=lambda site: site.session.jobs_queued)
    for task, cls in _unstarted_tasks(bag):
        expecting = _sites_expecting(view.state, bag, task)
        more = bag.options.get("k", len(sites)) - len(expecting)
        for site in sites:
            if more > 0 and site.name not in expecting and (fit := view.fit(site, cls)) is not None:
                more -= 1
                yield TaskPilot(site, fit.shape, bag.number, task)


def _broker(view: View, bag: BagState) -> Iterator[TaskPilot]:
    """Send each task's pilot to the site with most free processors and no queue, else to that with the shortest queue.

    Free processors and queues are those that the information system told.  A site that has just refused a pilot comes
    last.  With the option `own`, pilots sent since then are taken into account; a resource broker of the time did not
    know them.
    """
    own = bool(bag.options.get("own"))
    for task, cls in _unstarted_tasks(bag):
        if _sites_expecting(view.state, bag, task):
            continue
        fits = [(site, fit) for site in view.answering if (fit := view.fit(site, cls)) is not None]
        if fits:
            site, fit = min(fits, key=lambda pair: (pair[0].session.retry_after > view.now, _rank(view, pair[0], own)))
            yield TaskPilot(site, fit.shape, bag.number, task)


def _rank(view: View, site: SiteState, own: bool) -> tuple[int, int]:
    t = site.session
    if t.info_at < 0:
        return 2, site.waiting  # no information: only the pilots sent there are known
    if not own:
        return (0, -t.free_processors) if not t.jobs_queued else (1, t.jobs_queued)
    sent_since = sum(view.state.intents[n].made >= t.info_at for intents in site.intents[:2] for n in intents)
    free = t.free_processors - sent_since
    return (0, -free) if not t.jobs_queued and free > 0 else (1, t.jobs_queued + max(-free, 0))
