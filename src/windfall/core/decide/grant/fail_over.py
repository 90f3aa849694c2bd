"""Fail-over: tasks that keep failing wait for the one site that their bag names, and not for ever (G11, P4).

Whoever is bound there (`fitting.py`) is looked after twice in `fail_over` ms: has the site a pilot, alive, that could
take such a task?  Twice in a row not, and any site will do, until there is one.  Nobody looks before a task has failed
so often, nor where no bag names a site.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windfall.core.decide.grant.grant import fits
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import LIVE
from windfall.core.state.accounts import Purse
from windfall.core.state.columns import OVER
from windfall.core.state.world import BagState, PilotState, SiteState, TaskClass

if TYPE_CHECKING:
    from windfall.core.step import Core

LOOKS = 2  # in the time that a task waits for its fail-over site


def moved(core: Core, bag: BagState) -> None:
    """Tasks of this bag go to its fail-over site now."""
    if look_after(core, bag):
        _note(core, bag, f"tasks of bag {bag.number} that keep failing go here now")
    if bag.graph is not None and bag.number not in core.moving_over:  # one that waits first has no class to look at yet
        core.moving_over[bag.number] = None
        core.timer(core.now + core.config.fail_over // LOOKS, "moved", bag.number)


def moved_due(core: Core, number: int) -> None:
    core.moving_over.pop(number, None)
    bag = core.state.bags.get(number)
    if bag is not None and bag.unfinished():
        moved(core, bag)


def resume(core: Core, bag: BagState) -> None:
    """After a recovery."""
    look_after(core, bag)
    if bag.fail_over and bag.graph is not None and (bag.tasks.np_variant[: bag.size] >= OVER).any():
        moved(core, bag)


def look_after(core: Core, bag: BagState) -> bool:
    """So that none waits there for ever; False: somebody does so already."""
    fresh = [cls for cls in bag.classes.values() if cls.over and not cls.watched and bag.unfinished()]
    for cls in fresh:
        cls.watched = True
        _look_later(core, cls)
    return bool(fresh)


def _look_later(core: Core, cls: TaskClass) -> None:
    core.timer(core.now + core.config.fail_over // LOOKS, "over", cls.number)


def look_due(core: Core, number: int) -> None:
    cls = core.state.classes.get(number)
    if cls is None:
        return
    bag = core.state.bags[cls.bag]
    site = core.state.sites.get(bag.fail_over)
    was, hopeless = cls.loose, cls.ready > 0 and (site is None or not _hopes(core, site, cls))
    cls.vain = cls.vain + 1 if hopeless else 0
    cls.loose = cls.vain >= LOOKS
    if cls.loose != was:
        core.state.version += 1
        core.changed = True
    if cls.loose and not was:
        _note(core, bag, f"nobody here could take tasks of bag {bag.number} that keep failing: they go anywhere")
    cls.watched = bag.unfinished() > 0
    if cls.watched:
        _look_later(core, cls)


def _hopes(core: Core, site: SiteState, cls: TaskClass) -> bool:
    if cls.bag in core.state.named_bags:  # whose tasks have pilots of their own
        return any(intent.bag == cls.bag and intent.site == site.name for intent in core.state.intents.values())
    return any(pilot.site == site.name and _could(core, pilot, cls) for pilot in core.state.pilots.values())


def _could(core: Core, pilot: PilotState, cls: TaskClass) -> bool:
    """Take such a task, now or when it has done what it holds."""
    state = core.state
    if pilot.state != LIVE or pilot.silent or pilot.row in state.barred:
        return False
    if pilot.intent and state.intents[pilot.intent].task >= 0:
        return False  # it is for another one
    left = pilot.ends - core.now if pilot.ends else None
    if not state.cost(state.pilot_classes[pilot.cls], cls) or not fits(pilot, cls, left):
        return False
    return core.match.admits(core, pilot, cls) and (pilot.held > 0 or Purse(state, pilot, core.now).most(cls) > 0)


def _note(core: Core, bag: BagState, says: str) -> None:
    if bag.fail_over in core.state.sites:
        core.emit(f.SiteNoted(core.now, bag.fail_over, "fail-over", says))
