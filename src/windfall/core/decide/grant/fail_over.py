"""Fail-over: tasks that keep failing wait for the one site that their bag names, and not for ever (G11, P4).

Whoever is bound there (`fitting.py`) is looked after twice in `fail_over` ms: has the site a pilot, alive, that could
take such a task?  Twice in a row not, and any site will do, until there is one.  Nobody looks before a task has failed
so often, nor where no bag names a site.
"""

from __future__ import annotations

from windfall.core.decide.grant.draft import recipient_of
from windfall.core.decide.grant.eligibility import first_failing, without
from windfall.core.messages import facts as f
from windfall.core.messages.facts import TO_FAIL_OVER
from windfall.core.messages.lifecycle import LIVE
from windfall.core.state.world import BagState, PilotState, SiteState, TaskClass
from windfall.core.turn import Turn

LOOKS = 2  # in the time that a task waits for its fail-over site
ASKED_WHEN_IDLE = without("fail-over", "room")  # all pilots asked are at the fail-over site
ASKED_WHEN_BUSY = without("fail-over", "room", "accounts")


def moved(turn: Turn, bag: BagState) -> None:
    """Tasks of this bag go to its fail-over site now."""
    if look_after(turn, bag):
        _note(turn, bag, f"tasks of bag {bag.number} that keep failing go here now")
    # A task that waits for others first has no class to look at yet.
    if bag.graph is not None and bag.number not in turn.grants.moving_over:
        turn.grants.moving_over[bag.number] = None
        turn.timers.add(turn.now + turn.config.fail_over // LOOKS, "moved", bag.number)


def moved_due(turn: Turn, number: int) -> None:
    turn.grants.moving_over.pop(number, None)
    bag = turn.state.bags.get(number)
    if bag is not None and bag.not_ended():
        moved(turn, bag)


def resume(turn: Turn, bag: BagState) -> None:
    """After a recovery."""
    look_after(turn, bag)
    if bag.fail_over and bag.graph is not None and (bag.tasks.np_variant[: bag.size] >= TO_FAIL_OVER).any():
        moved(turn, bag)


def look_after(turn: Turn, bag: BagState) -> bool:
    """So that none waits there for ever; False: somebody does so already."""
    fresh = [
        cls for cls in bag.classes.values() if cls.to_fail_over_site and not cls.fail_over_watched and bag.not_ended()
    ]
    for cls in fresh:
        cls.fail_over_watched = True
        _look_later(turn, cls)
    return bool(fresh)


def _look_later(turn: Turn, cls: TaskClass) -> None:
    turn.timers.add(turn.now + turn.config.fail_over // LOOKS, "over", cls.number)


def look_due(turn: Turn, number: int) -> None:
    cls = turn.state.classes.get(number)
    if cls is None:
        return
    bag = turn.state.bags[cls.bag]
    site = turn.state.sites.get(bag.fail_over)
    was, hopeless = cls.fail_over_released, cls.ready > 0 and (site is None or not _hopes(turn, site, cls))
    cls.fail_over_misses = cls.fail_over_misses + 1 if hopeless else 0
    cls.fail_over_released = cls.fail_over_misses >= LOOKS
    if cls.fail_over_released != was:
        turn.state.version += 1
        turn.provision.changed = True
    if cls.fail_over_released and not was:
        _note(turn, bag, f"nobody here could take tasks of bag {bag.number} that keep failing: they go anywhere")
    cls.fail_over_watched = bag.not_ended() > 0
    if cls.fail_over_watched:
        _look_later(turn, cls)


def _hopes(turn: Turn, site: SiteState, cls: TaskClass) -> bool:
    if cls.bag in turn.state.bags_with_task_pilots:  # whose tasks have pilots of their own
        return any(intent.bag == cls.bag and intent.site == site.name for intent in turn.state.intents.values())
    return any(pilot.site == site.name and _could_take(turn, pilot, cls) for pilot in turn.state.pilots.values())


def _could_take(turn: Turn, pilot: PilotState, cls: TaskClass) -> bool:
    """Could the pilot take such a task, now or when it has done what it holds?  Its attempts give back what they pledge
    when they end, and make room on the host."""
    if pilot.state != LIVE or pilot.lease_expired or pilot.row in turn.state.quarantined:
        return False
    to = recipient_of(turn, pilot, pilot.ends - turn.now if pilot.ends else None)
    return not first_failing(to, cls, ASKED_WHEN_BUSY if pilot.attempts_held else ASKED_WHEN_IDLE)


def _note(turn: Turn, bag: BagState, says: str) -> None:
    if bag.fail_over in turn.state.sites:
        turn.emit(f.SiteNoted(turn.now, bag.fail_over, "fail-over", says))
