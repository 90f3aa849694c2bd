"""Means: what may still be used.  A bag's budget, its owner's allowance, a site's disk.

Rules
  * Every attempt in play pledges the worst case: its cores until its time limit and the grace after it, or until its
    pilot's wall time is over; its disk.  What it did not use comes back when it is over.  One that was given up may
    still run: it keeps its pledge, unless its site has said that its pilot is dead.
  * A budget is a bag's: what its attempts have used and pledged never goes beyond it (P6, which outranks P4).
  * An allowance is an owner's, for a month by UTC.  What is used and pledged at sites that count never goes beyond it;
    who has used it up goes on at those that do not.  An attempt counts in the month in which it ends.  A task without
    a time limit, on a pilot without an end, has no worst case: under an allowance it runs where nothing is counted.
  * A site's disk is shared by all its pilots.
  * Of a crowd of tasks (a target that says `at-once`, or several that count together) no more are in play than that.
    One that was given up does not count; should it turn out to run, it goes on if there is room for it.
What is pledged is counted by `count` alone, which `apply` calls around whatever changes it; `recount` makes it afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from windfall.core.messages.bounds import add_core_ms
from windfall.core.messages.facts import COUNTS, COUNTS_FOR_OTHERS, Finished, Group, Shape
from windfall.core.messages.lifecycle import FREE, GONE, LOST
from windfall.core.state.columns import ROW_MASK
from windfall.core.state.world import BagState, PilotState, SiteState, State, TaskClass

UNLIMITED = 1 << 60
MONTHS = 12  # of which usage is kept
DAY = 86_400_000  # ms
ANYBODY = "*"


# --- what one attempt takes -------------------------------------------------------------------------------------------


def cores_used(cls: TaskClass, pilot: PilotState | Shape) -> int:
    """Cores that a task occupies on such a pilot: all of them if the task takes whole nodes."""
    return pilot.cores * pilot.nodes if cls.whole or cls.nodes > 1 else cls.cores


def price(cls: TaskClass, pilot: PilotState | Shape, ms: int) -> int:
    """Core-ms of one attempt that takes so long."""
    return cores_used(cls, pilot) * ms


def worst_price(cls: TaskClass, pilot: PilotState, granted: int) -> int:
    """Core-ms that an attempt takes at most; 0: nobody knows."""
    return price(cls, pilot, worst_case(cls, pilot, granted))


def worst_case(cls: TaskClass, pilot: PilotState, granted: int) -> int:
    """Ms that an attempt takes at most; 0: nobody knows."""
    most = cls.worst_case or (max(pilot.ends - granted, 1) if pilot.ends else 0)
    if pilot.state == GONE and pilot.why != "silent":
        ran = max(pilot.ended - granted, 0)
        return min(most, ran) if most else ran
    return most


def pledge_of(state: State, row: int) -> int:
    """Ms of cores that an attempt in play may take."""
    attempts = state.attempts
    cls, pilot = state.classes[attempts.cls[row]], state.pilots[attempts.pilot[row]]
    return worst_price(cls, pilot, attempts.granted[row])


def elapsed(state: State, row: int, now: int) -> int:
    """Ms of cores that an attempt may have taken so far."""
    attempts = state.attempts
    return min(charge(state, row, max(now - attempts.granted[row], 0)), pledge_of(state, row) or UNLIMITED)


def charge(state: State, row: int, wall: int) -> int:
    """Ms of cores for an attempt that took so long: never more than it pledged, since its pilot ends it then."""
    attempts = state.attempts
    cls, pilot = state.classes[attempts.cls[row]], state.pilots[attempts.pilot[row]]
    most = cls.worst_case
    return price(cls, pilot, min(wall, most) if most else wall)


# --- the books --------------------------------------------------------------------------------------------------------


def pledge_rows(state: State, rows: list[int], sign: int) -> None:
    """Attempts come into play, or leave it."""
    attempts = state.attempts
    for row in rows:
        cls = state.classes.get(attempts.cls[row])
        if cls is None or not cls.is_accounted:
            continue
        pilot, bag = state.pilots[attempts.pilot[row]], state.bags[cls.bag]
        site = state.sites[pilot.site]
        if cls.disk and pilot.state != GONE:
            site.disk_reserved += sign * cls.disk
        if attempts.state[row] != LOST:
            count_in_group(state, row, sign)
        if cls.has_budget:
            bag.pledged += sign * pledge_of(state, row)
        if cls.has_allowance and counts(site, bag.owner):
            state.pledged[bag.owner] = state.pledged.get(bag.owner, 0) + sign * pledge_of(state, row)


def count_in_group(state: State, row: int, sign: int) -> None:
    """Count an attempt into, or out of, its concurrency group.  A lost attempt counts out: it would keep its own task
    waiting."""
    cls = state.classes.get(state.attempts.cls[row])
    if cls is not None and cls.at_once:
        crowds = state.bags[cls.bag].running_in_group
        crowds[cls.concurrency_group] = crowds.get(cls.concurrency_group, 0) + sign
        state.version += sign < 0


def note_pledge_freed(state: State, row: int) -> None:
    """Note that an attempt's pledge has shrunk: waiting pilots may be granted something."""
    cls = state.classes.get(state.attempts.cls[row])
    if cls is None or not cls.is_accounted:
        return
    if cls.has_budget:
        for each in state.bags[cls.bag].classes.values():
            state.relist(each)
    state.version += 1


def settle_attempt(state: State, row: int, charged: int) -> None:
    """An attempt is over, and took so much; -1: nobody knows, so as much as it could."""
    cls = state.classes.get(state.attempts.cls[row])
    pilot = state.pilots.get(state.attempts.pilot[row])
    if cls is None or pilot is None:
        return
    used = charged if charged >= 0 else pledge_of(state, row)
    charge_bag(state, state.bags[cls.bag], state.sites[pilot.site], used)
    if cls.is_accounted:
        pledge_rows(state, [row], -1)
        note_pledge_freed(state, row)


def settle_successes(state: State, bag: BagState, cls: TaskClass, pilot: PilotState, fact: Finished) -> None:
    """The same for successes of one class."""
    ran = sum(fact.walls) if not cls.worst_case else sum([min(wall, cls.worst_case) for wall in fact.walls])
    charge_bag(state, bag, state.sites[pilot.site], price(cls, pilot, ran))
    if cls.is_accounted:
        rows = rows_of(fact.attempts)
        pledge_rows(state, rows, -1)
        note_pledge_freed(state, rows[0])


def charge_bag(state: State, bag: BagState, site: SiteState, used: int) -> None:
    """Attempts are over that took so much."""
    bag.spent = add_core_ms(bag.spent, used)
    if used and counts(site, bag.owner):
        key = (bag.owner, month(state.now))
        if key not in state.usage:
            for old in [k for k in state.usage if k[0] == key[0] and k[1] <= key[1] - MONTHS]:
                del state.usage[old]
        state.usage[key] = add_core_ms(state.usage.get(key, 0), used)


def recount(state: State) -> None:
    """Recount what bags and owners have pledged, from the attempts in play."""
    state.pledged.clear()
    for bag in state.bags.values():
        bag.pledged = 0
        bag.running_in_group.clear()
    for site in state.sites.values():
        site.disk_reserved = 0
    if any(cls.is_accounted for cls in state.classes.values()):
        pledge_rows(state, np.flatnonzero(state.attempts.np_state[: state.attempts.rows] != FREE).tolist(), 1)


# --- what is left -----------------------------------------------------------------------------------------------------


def counts(site: SiteState, owner: str) -> bool:
    """Against this owner's allowance?"""
    return site.limits.counts == COUNTS or (site.limits.counts == COUNTS_FOR_OTHERS and site.owner != owner)


def is_counted(state: State, site: SiteState, bag: BagState) -> bool:
    """Does an allowance limit what the bag's tasks use at the site?"""
    return bool(state.allowances) and counts(site, bag.owner) and allowance(state, bag.owner) >= 0


def month(at: int) -> int:
    """By UTC, counted from 1970."""
    return _month_of(at // DAY)


@lru_cache(maxsize=64)
def _month_of(day: int) -> int:
    """Kept, since every success asks."""
    return int(np.datetime64(day, "D").astype("datetime64[M]").astype(np.int64))


def next_month(at: int) -> int:
    """Return when the month after that of `at` begins."""
    return int(np.datetime64(month(at) + 1, "M").astype("datetime64[ms]").astype(np.int64))


def allowance(state: State, owner: str) -> int:
    """Ms of cores a month; -1: as much as there is."""
    return state.allowances.get(owner, state.allowances.get(ANYBODY, -1))


def left_of_allowance(state: State, owner: str, at: int) -> int:
    most = allowance(state, owner)
    return UNLIMITED if most < 0 else most - state.usage.get((owner, month(at)), 0) - state.pledged.get(owner, 0)


def left_of_budget(bag: BagState) -> int:
    return bag.budget - bag.spent - bag.pledged if bag.budget else UNLIMITED


def left_of_group(bag: BagState, cls: TaskClass) -> int:
    return cls.at_once - bag.running_in_group.get(cls.concurrency_group, 0) if cls.at_once else UNLIMITED


def left_of_disk(site: SiteState) -> int:
    return site.limits.disk - site.disk_reserved if site.limits.disk else UNLIMITED


class Affordable:
    """The accounts that limit a pilot's grant: what it may still be granted beside the groups of the present draft."""

    def __init__(self, state: State, pilot: PilotState, now: int, groups: Iterable[Group] = ()) -> None:
        self.state, self.pilot, self.now = state, pilot, now
        self.site = state.sites[pilot.site]
        self.disk = left_of_disk(self.site)
        self.money: dict[int, int] = {}  # by bag
        self.allowed: dict[str, int] = {}  # by owner
        self.crowds: dict[tuple[int, int], int] = {}  # by bag and crowd, what this grant has taken
        for group in groups:
            classes = state.bags[group.bag].classes
            self.take(classes[group.target, group.variant], len(group.tasks))

    def most(self, cls: TaskClass) -> int:
        """How many tasks of a class, or batches with all that goes behind them, can the pilot be granted?"""
        if not cls.is_accounted:
            return UNLIMITED
        bag = self.state.bags[cls.bag]
        unit = unit_price(bag, cls, self.pilot, lambda each: worst_case(each, self.pilot, self.now))
        return unit.affordable(
            group=left_of_group(bag, cls) - self.crowds.get((cls.bag, cls.concurrency_group), 0),
            disk=self.disk,
            budget=self._money(bag) if bag.budget else UNLIMITED,
            allowance=self._allowed(bag) if is_counted(self.state, self.site, bag) else UNLIMITED,
        )

    def give_back(self, row: int, sign: int = 1) -> None:
        """Reckon as if another pilot had given back an attempt that it holds and has not started; with -1, not so."""
        state = self.state
        cls, bag = state.classes[state.attempts.cls[row]], state.bag_of(row)
        site = state.sites[state.pilots[state.attempts.pilot[row]].site]
        if site is self.site:
            self.disk += sign * cls.disk
        if cls.at_once:
            group = (cls.bag, cls.concurrency_group)
            self.crowds[group] = self.crowds.get(group, 0) - sign
        if cls.has_budget:
            self.money[bag.number] = self._money(bag) + sign * pledge_of(state, row)
        if cls.has_allowance and counts(site, bag.owner):
            self.allowed[bag.owner] = self._allowed(bag) + sign * pledge_of(state, row)

    def take(self, cls: TaskClass, n: int) -> None:
        bag = self.state.bags[cls.bag]
        price = n * worst_price(cls, self.pilot, self.now)
        self.disk -= n * cls.disk
        if cls.at_once:
            self.crowds[cls.bag, cls.concurrency_group] = self.crowds.get((cls.bag, cls.concurrency_group), 0) + n
        if bag.budget:
            self.money[bag.number] = self._money(bag) - price
        if is_counted(self.state, self.site, bag):
            self.allowed[bag.owner] = self._allowed(bag) - price

    def _money(self, bag: BagState) -> int:
        return self.money.get(bag.number, left_of_budget(bag))

    def _allowed(self, bag: BagState) -> int:
        if bag.owner not in self.allowed:
            self.allowed[bag.owner] = left_of_allowance(self.state, bag.owner, self.now)
        return self.allowed[bag.owner]


class UnitPrice(NamedTuple):
    """The price that a grant pays at once: of a task, or a batch, with all the stages behind it."""

    tasks: int  # of the class itself
    core_ms: int
    disk: int
    is_known: bool  # has every one of them a longest time?

    def affordable(self, group: int, disk: int, budget: int, allowance: int) -> int:
        """How many units do these four pay for?  UNLIMITED where there is no limit."""
        found = [group // self.tasks]
        if self.disk:
            found.append(disk // self.disk)
        if budget != UNLIMITED:
            found.append(budget // max(self.core_ms, 1))
        if allowance != UNLIMITED:
            found.append(allowance // max(self.core_ms, 1) if self.is_known else 0)
        return max(min(found), 0)


def unit_price(
    bag: BagState, cls: TaskClass, pilot: PilotState | Shape, longest: Callable[[TaskClass], int]
) -> UnitPrice:
    """Price a task of a class, or a batch, with all the stages behind it.  `longest` says how many ms one takes."""
    core_ms = disk = 0
    is_known = True
    for each in with_next_stages(bag, cls):
        ms = longest(each)
        core_ms += price(each, pilot, ms)
        disk += each.disk
        is_known = is_known and ms > 0
    tasks = max(cls.batch, 1)
    return UnitPrice(tasks, core_ms * tasks, disk * tasks, is_known)


def unaffordable(state: State, pilot: PilotState, cls: TaskClass, now: int) -> bool:
    """To every pilot like this one, so that a thousand of them that wait need not be asked one by one: where all that
    goes together has a limit, its price is the same for all."""
    if left_of_group(state.bags[cls.bag], cls) <= 0:
        return True
    return all(each.worst_case for each in with_next_stages(state.bags[cls.bag], cls)) and not Affordable(
        state, pilot, now
    ).most(cls)


def with_next_stages(bag: BagState, cls: TaskClass) -> list[TaskClass]:
    """A class and those whose tasks go behind its own."""
    found = [cls]
    while cls.in_chain and (index := bag.targets[found[-1].target].next_stage) >= 0:
        found.append(bag.classes[index, 0])
    return found


def affordable_slots(state: State, site: SiteState, cls: TaskClass, shape: Shape, now: int) -> int:
    """How many tasks, or batches, of a class could be paid for at a site, on pilots of this shape."""
    if not cls.is_accounted:
        return UNLIMITED
    bag = state.bags[cls.bag]
    return unit_price(bag, cls, shape, lambda each: each.worst_case or shape.wall).affordable(
        group=left_of_group(bag, cls),
        disk=left_of_disk(site),
        budget=left_of_budget(bag),
        allowance=left_of_allowance(state, bag.owner, now) if is_counted(state, site, bag) else UNLIMITED,
    )


def rows_of(numbers: list[int]) -> list[int]:
    return [number & ROW_MASK for number in numbers]
