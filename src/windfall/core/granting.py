"""Granting: which tasks go to the pilot that asks, and how many.

A short pipeline: walk the ready list (classes in the order of their bags' selection) → does the class fit such a
pilot at all (cached) → does it fit the time the pilot has left → how many → take them.  Work depends on the classes in
play, never on the number of tasks.

How many: what the pilot can run at once, plus a prefetch worth `prefetch` milliseconds of work per slot, so that
short tasks amortise the exchange and long ones do not pile up behind a slow host.  Where a target asks for batches,
they are what is counted (`batching.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.core import batching, facts as f
from windfall.core.lifecycle import LIVE, READY
from windfall.core.state import BagState, PilotState, TaskClass

if TYPE_CHECKING:
    from windfall.core.engine import Core


def grant(core: Core, pilot: PilotState, want: int, left: int | None, ahead: bool = True) -> bool:
    """Grant up to `want` tasks, with `ahead` more than it can run at once; True if any."""
    if want <= 0 or pilot.state != LIVE or pilot.silent or core.frugal:
        return False
    state = core.state
    if pilot.intent and state.intents[pilot.intent].task >= 0:
        return _grant_named(core, pilot, left)
    pc = state.pilot_classes[pilot.cls]
    if pc.barren == state.version:
        return False
    want = min(want, state.attempts.spare())
    budget = core.config.message
    groups: list[f.Group] = []
    fitting = False
    load = pilot.load
    for _, number in state.ready:
        cls = state.classes[number]
        cost = state.cost(pc, cls)
        if not cost or cls.bag in state.named_bags:
            continue
        fitting = True
        if not fits(pilot, cls, left):
            continue
        units = room(core, pilot, load, cls, cost, ahead)
        if units <= 0 or want <= 0:
            break  # full: what comes later in the order must not overtake
        for group in _take(core, cls, units, want, budget):
            n = len(group.tasks)
            groups.append(group)
            load += cost if group.chain >= 0 else cost * n
            want -= n
            budget -= n * cls.weight
        if want <= 0 or budget <= 0 or len(groups) >= 64:
            break
    if not groups:
        if not fitting:
            pc.barren = state.version
        return False
    core.emit(f.Granted(core.now, pilot.number, pilot.granted + 1, groups))
    core.fresh[pilot.number] = (pilot.granted, groups)
    return True


def _grant_named(core: Core, pilot: PilotState, left: int | None) -> bool:
    """It was started for one task: that, or nothing any more."""
    state = core.state
    intent = state.intents[pilot.intent]
    bag = state.bags.get(intent.bag)
    if bag is not None and bag.tasks.state[intent.task] == READY:
        cls = bag.classes[bag.target_of(intent.task), bag.tasks.variant[intent.task]]
        if cls.listed and state.cost(state.pilot_classes[pilot.cls], cls) and fits(pilot, cls, left):
            number = state.attempts.numbers(1)
            chain = batching.chain_of(bag, intent.task)
            group = f.Group(bag.number, cls.target, cls.overruns, cls.boosts, [intent.task], number, chain)
            core.emit(f.Granted(core.now, pilot.number, pilot.granted + 1, [group]))
            core.fresh[pilot.number] = (pilot.granted, [group])
            return True
    if not pilot.held:
        core.emit(f.PilotDraining(core.now, pilot.number))
    return False


def fits(pilot: PilotState, cls: TaskClass, left: int | None) -> bool:
    """What the class of the pilot cannot say: this one's own memory and disk, and the time it has left."""
    if cls.memory > pilot.memory or cls.disk > pilot.disk:
        return False
    return left is None or (cls.need or 1) <= left


def _take(core: Core, cls: TaskClass, units: int, want: int, budget: int) -> list[f.Group]:
    if cls.batch > 1:
        return batching.take(core, cls, units, want, budget)
    n = min(want, units, cls.ready, max(budget // cls.weight, 1))
    tasks = cls.backlog.take(n)
    assert len(tasks) == n, "a class counted more ready tasks than its backlog holds"
    return [f.Group(cls.bag, cls.target, cls.overruns, cls.boosts, tasks, core.state.attempts.numbers(n))]


def room(core: Core, pilot: PilotState, load: int, cls: TaskClass, cost: int, ahead: bool) -> int:
    """How many more tasks of a class, or batches of them, the pilot should hold."""
    capacity = pilot.cores * 1000
    slots = capacity // cost
    bag = core.state.bags[cls.bag]
    # A pilot starts what it holds as cores fall free; of disk it keeps no account, so it holds no more than fits.
    more = prefetch(core, bag, cls) if ahead and not bag.external and not cls.disk else 0
    return ((1 + more) * slots * cost - load) // cost


def prefetch(core: Core, bag: BagState, cls: TaskClass) -> int:
    """Tasks, or batches, per slot to hold beyond those that run."""
    mean = (cls.mean or float(bag.targets[cls.target].shape.expect)) * max(cls.batch, 1)
    if not mean:
        return int(cls.batch < 2)
    return min(int(core.config.prefetch / mean), core.config.prefetch_most)
