"""Fail-over: tasks that keep failing wait for the one site that their bag names, and not for ever (G11, P4).

Twice in `Config.fail_over` ms a timer checks each class of tasks that is bound to its fail-over site
(`state/capacity.py`): has the site a live pilot that could take such a task?  After two misses in a row the tasks go to
any site, until such a pilot appears.  The timers run only for bags that name a fail-over site and have tasks bound to
it.
"""

from __future__ import annotations

from windfall.core.decide.grant.draft import recipient_of
from windfall.core.decide.grant.eligibility import first_failing, without
from windfall.core.messages import facts as f
from windfall.core.messages.facts import TO_FAIL_OVER
from windfall.core.messages.lifecycle import LIVE
from windfall.core.state.world import BagState, PilotState, SiteState, TaskClass
from windfall.core.turn import Turn

CHECKS_PER_PERIOD = 2  # in the time that a task waits for its fail-over site
ASKED_WHEN_IDLE = without("fail-over", "room")  # all pilots asked are at the fail-over site
ASKED_WHEN_BUSY = without("fail-over", "room", "accounts")


def note_moved(turn: Turn, bag: BagState) -> None:
    """Watch the bag's tasks that go to its fail-over site now, and say so in the site's history."""
    if _watch_classes(turn, bag):
        _note_on_site(turn, bag, f"tasks of bag {bag.number} that keep failing go here now")
    # A task that waits for its prerequisites has no class to watch yet.
    if bag.graph is not None and bag.number not in turn.grants.moving_over:
        turn.grants.moving_over[bag.number] = None
        turn.timers.add(turn.now + turn.config.fail_over // CHECKS_PER_PERIOD, "moved", bag.number)


def moved_due(turn: Turn, number: int) -> None:
    turn.grants.moving_over.pop(number, None)
    bag = turn.state.bags.get(number)
    if bag is not None and bag.not_ended():
        note_moved(turn, bag)


def resume(turn: Turn, bag: BagState) -> None:
    """Set the timers again after a recovery."""
    _watch_classes(turn, bag)
    if bag.fail_over and bag.graph is not None and (bag.tasks.np_variant[: bag.size] >= TO_FAIL_OVER).any():
        note_moved(turn, bag)


def _watch_classes(turn: Turn, bag: BagState) -> bool:
    """Watch the bag's classes that are bound to its fail-over site; False: all of them are watched already."""
    unwatched = [
        cls for cls in bag.classes.values() if cls.to_fail_over_site and not cls.fail_over_watched and bag.not_ended()
    ]
    for cls in unwatched:
        cls.fail_over_watched = True
        _check_later(turn, cls)
    return bool(unwatched)


def _check_later(turn: Turn, cls: TaskClass) -> None:
    turn.timers.add(turn.now + turn.config.fail_over // CHECKS_PER_PERIOD, "over", cls.number)


def check_due(turn: Turn, number: int) -> None:
    """Release a class from its fail-over site after two misses, and bind it again once a pilot there could take it."""
    cls = turn.state.classes.get(number)
    if cls is None:
        return
    bag = turn.state.bags[cls.bag]
    site = turn.state.sites.get(bag.fail_over)
    was_released, is_miss = cls.fail_over_released, cls.ready > 0 and (site is None or not _has_taker(turn, site, cls))
    cls.fail_over_misses = cls.fail_over_misses + 1 if is_miss else 0
    cls.fail_over_released = cls.fail_over_misses >= CHECKS_PER_PERIOD
    if cls.fail_over_released != was_released:
        turn.state.version += 1
        turn.provision.changed = True
    if cls.fail_over_released and not was_released:
        _note_on_site(
            turn, bag, f"no pilot here could take tasks of bag {bag.number} that keep failing: they go anywhere")
    cls.fail_over_watched = bag.not_ended() > 0
    if cls.fail_over_watched:
        _check_later(turn, cls)


def _has_taker(turn: Turn, site: SiteState, cls: TaskClass) -> bool:
    """Has the site a pilot that could take such a task, or an open intent for one of the bag's tasks?"""
    if cls.bag in turn.state.bags_with_task_pilots:
        return any(intent.bag == cls.bag and intent.site == site.name for intent in turn.state.intents.values())
    return any(pilot.site == site.name and _could_take(turn, pilot, cls) for pilot in turn.state.pilots.values())


def _could_take(turn: Turn, pilot: PilotState, cls: TaskClass) -> bool:
    """Could the pilot take such a task, now or when the attempts that it holds have ended?  They give back what they
    pledge then, and make room on the host."""
    if pilot.state != LIVE or pilot.lease_expired or pilot.trouble or pilot.row in turn.state.quarantined:
        return False
    to = recipient_of(turn, pilot, pilot.ends - turn.now if pilot.ends else None)
    return not first_failing(to, cls, ASKED_WHEN_BUSY if pilot.attempts_held else ASKED_WHEN_IDLE)


def _note_on_site(turn: Turn, bag: BagState, says: str) -> None:
    if bag.fail_over in turn.state.sites:
        turn.emit(f.SiteNoted(turn.now, bag.fail_over, "fail-over", says))
