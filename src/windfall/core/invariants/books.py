"""The books: every count that the state keeps equals a plain recount of the columns."""

from __future__ import annotations

from collections import Counter

import numpy as np

from windfall.core.messages.lifecycle import (
    ACTIVE,
    DROPPED,
    FIRST_FINAL,
    FREE,
    GONE,
    GRANTED,
    INTENDED,
    LOST,
    QUEUED,
    READY,
    STARTED,
    SUCCEEDED,
    TASK_STATES,
    WAITING,
)
from windfall.core.state import accounts
from windfall.core.state.chains import chain_of
from windfall.core.state.classes import target_done
from windfall.core.state.columns import Attempts
from windfall.core.state.graph import Graph, graph_of
from windfall.core.state.world import NO_CHAIN, BagState, SiteState, State


def books_balance(state: State) -> list[str]:
    """Return a sentence for each count that differs from what it counts; none where the books balance."""
    broken = []
    for bag in state.bags.values():
        broken += _bag_balances(state, bag)
    for site in state.sites.values():
        broken += _intents_balance(state, site)
    return [
        *broken, *_use_balances(state), *_pilots_balance(state), *_owners_balance(state), *_transfers_balance(state),
        *_task_pilots_balance(state), *_pledges_balance(state), *_disks_balance(state), *_groups_balance(state),
        *_lost_balance(state), *_index_balances(state.attempts), *_lists_balance(state),
    ]


def _lists_balance(state: State) -> list[str]:
    """The lists of bags that have not ended, and of ready classes, hold what they should."""
    broken = []
    unended = [bag.number for bag in state.bags.values() if not bag.ended]
    if sorted(state.unended) != sorted(unended):
        broken.append(f"books: bags {unended} have not ended, {[*state.unended]} are listed")
    listed = sorted((cls.order_key, cls.number) for cls in state.classes.values() if cls.on_ready_list)
    if listed != state.ready:
        broken.append("books: the ready list is not the list of listed classes")
    wrong = [cls.number for cls in state.classes.values() if cls.on_ready_list != state.can_offer(cls)]
    if wrong:
        broken.append(f"books: classes {wrong} are on the ready list and should not be, or the other way round")
    return broken


# --- attempts --------------------------------------------------------------------------------------------------------


def rows_in_use(state: State) -> list[int]:
    """Return the rows of all attempts that are not free."""
    rows: list[int] = np.flatnonzero(state.attempts.np_state[: state.attempts.rows] != FREE).tolist()
    return rows


def _lost_balance(state: State) -> list[str]:
    a = state.attempts
    rows = np.flatnonzero(a.np_state[: a.rows] == LOST).tolist()
    listed = sorted((row, ref) for ref, found in a.lost.items() for row in found)
    wrong = listed != [(row, a.task[row]) for row in rows] or not all(a.lost.values())
    return [f"books: attempts {rows} were lost, {listed} are listed"] if wrong else []


def _index_balances(a: Attempts) -> list[str]:
    """An index of a bag's attempts says the same as a pass over the rows."""
    broken = []
    for bag, known in a.indexed.items():
        there = sorted((a.task[row], row) for row in a.of_bag(bag).tolist())
        listed = sorted((ref, row) for ref, rows in known.items() for row in rows)
        if listed != there or not known or not all(known.values()):
            broken.append(f"books: bag {bag} has {there} in play, its index says {listed}")
    return broken


def _transfers_balance(state: State) -> list[str]:
    """Transfers under way are those of attempts in play, and are counted where they come from."""
    broken = [f"books: attempt {number} fetches, and is not in play" for number in state.transfers_of
              if state.attempts.row(number) < 0]
    reading = Counter(move.place for made in state.transfers_of.values() for move in made)
    if reading != state.readers_of:
        broken.append(f"books: {dict(reading)} are read, counted {state.readers_of}")
    return broken


# --- accounts --------------------------------------------------------------------------------------------------------


def _pledges_balance(state: State) -> list[str]:
    """Bags and owners have pledged as much as their attempts in play may take."""
    a = state.attempts
    bags: Counter[int] = Counter()
    owners: Counter[str] = Counter()
    for row in rows_in_use(state):
        cls, pilot = state.classes[a.cls[row]], state.pilots[a.pilot[row]]
        bag = state.bags[cls.bag]
        worst = accounts.cores_used(cls, pilot) * accounts.worst_case(cls, pilot, a.granted[row])
        bags[bag.number] += worst if bag.budget else 0
        if accounts.allowance(state, bag.owner) >= 0 and accounts.counts(state.sites[pilot.site], bag.owner):
            owners[bag.owner] += worst
    broken = [f"books: bag {bag.number} says {bag.pledged} are pledged, {bags[bag.number]} are"
              for bag in state.bags.values() if bag.pledged != bags[bag.number]]
    if +Counter(state.pledged) != +owners:
        broken.append(f"books: {dict(owners)} is pledged, counted {state.pledged}")
    return broken


def _disks_balance(state: State) -> list[str]:
    """The disk that is reserved at a site is what the tasks in play there may take; a dead pilot's take nothing."""
    a = state.attempts
    disks: Counter[str] = Counter()
    for row in rows_in_use(state):
        pilot = state.pilots[a.pilot[row]]
        disks[pilot.site] += state.classes[a.cls[row]].disk if pilot.state != GONE else 0
    return [f"books: site {site.name} says {site.disk_reserved} bytes are taken, {disks[site.name]} are"
            for site in state.sites.values() if site.disk_reserved != disks[site.name]]


def _groups_balance(state: State) -> list[str]:
    """Concurrency groups count their tasks in play, and keep their limit (P6)."""
    a = state.attempts
    groups: dict[int, Counter[int]] = {number: Counter() for number in state.bags}
    dropped: Counter[tuple[int, int]] = Counter()  # lost attempts among these may have been found again
    for row in rows_in_use(state):
        cls = state.classes[a.cls[row]]
        groups[cls.bag][cls.concurrency_group] += cls.at_once > 0 and a.state[row] != LOST
        dropped[cls.bag, cls.concurrency_group] += a.state[row] == DROPPED
    broken = [f"books: bag {bag.number} counts {bag.running_in_group} in play, {dict(groups[bag.number])} are"
              for bag in state.bags.values() if +Counter(bag.running_in_group) != +groups[bag.number]]
    for cls in state.classes.values():
        running = groups[cls.bag][cls.concurrency_group]
        if 0 < cls.at_once < running - dropped[cls.bag, cls.concurrency_group]:
            broken.append(f"P6: bag {cls.bag} has {running} in play where {cls.at_once} may be")
    return broken


def _owners_balance(state: State) -> list[str]:
    owned: Counter[str] = Counter()
    for bag in state.bags.values():
        owned[bag.owner] += bag.size
    return [] if +owned == state.tasks_owned else [
        f"books: owners have {dict(owned)} tasks, counted {state.tasks_owned}"
    ]


# --- intents ---------------------------------------------------------------------------------------------------------


def _intents_balance(state: State, site: SiteState) -> list[str]:
    mine = [i for i in state.intents.values() if i.site == site.name]
    by_state = [sorted(i.number for i in mine if i.state == s) for s in range(len(site.intents))]
    queued = Counter(i.shape for i in mine if i.task < 0 and i.state in (INTENDED, QUEUED))
    kept = ([sorted(of) for of in site.intents], site.queued_by_shape, site.core_ms_reserved)
    if kept != (by_state, dict(queued), sum(i.reserved for i in mine)):
        return [f"books: site {site.name} counts {kept} of its intents, has {by_state}"]
    return []


def _task_pilots_balance(state: State) -> list[str]:
    named = {number for of in state.task_pilots.values() for number in of}
    if named != {intent.number for intent in state.intents.values() if intent.task >= 0}:
        return ["books: intents for one task are not those that are counted as such"]
    return []


# --- bags ------------------------------------------------------------------------------------------------------------


def _bag_balances(state: State, bag: BagState) -> list[str]:
    broken = []
    tally = np.bincount(bag.tasks.np_state[: bag.size], minlength=len(TASK_STATES)).tolist()
    if tally != bag.counts:
        broken.append(f"books: bag {bag.number} counts {bag.counts}, has {tally}")
    live = _live_attempts(state, bag.number)
    for task in range(bag.size):
        broken += _task_balances(bag, task, live[task])
    return broken + _targets_balance(bag) + _classes_balance(bag)


def _task_balances(bag: BagState, task: int, live: int) -> list[str]:
    t, name, broken = bag.tasks, f"task {bag.number}/{task}", []
    if bag.external and live > 1:
        broken.append(f"P1: {name}, with external effects, has {live} live attempts")
    if t.live[task] != live:
        broken.append(f"books: {name} says {t.live[task]} live attempts, has {live}")
    if (t.state[task] == ACTIVE) != (live > 0) and t.state[task] in (ACTIVE, READY):
        broken.append(f"books: {name} is {TASK_STATES[t.state[task]]} with {live} attempts")
    return broken


def _live_attempts(state: State, bag: int) -> Counter[int]:
    """Count the attempts of each task of a bag that are granted or started."""
    a = state.attempts
    return Counter(a.task_of(row) for row in rows_in_use(state)
                   if a.bag_of(row) == bag and a.state[row] in (GRANTED, STARTED))


def _classes_balance(bag: BagState) -> list[str]:
    t = bag.tasks
    ready = Counter((bag.target_of(task), t.variant[task]) for task in range(bag.size) if t.state[task] == READY)
    return [f"books: class {cls.number} says {cls.ready} ready, has {ready[key]}"
            for key, cls in bag.classes.items() if ready[key] != cls.ready]


def _targets_balance(bag: BagState) -> list[str]:
    states: dict[int, Counter[int]] = {target.index: Counter() for target in bag.targets}
    for task in range(bag.size):
        states[bag.target_of(task)][bag.tasks.state[task]] += 1
    broken = []
    for target in bag.targets:
        tally = states[target.index]
        left = target.count - tally[SUCCEEDED]
        unfinished = sum(n for state, n in tally.items() if state < FIRST_FINAL)
        pending = sum(not target_done(bag, bag.targets[i]) for i in target.shape.after)
        kept = (target.count, target.not_succeeded, target.not_ended, target.pending)
        if kept != (tally.total(), left, unfinished, pending):
            broken.append(f"books: target {bag.number}/{target.index} says {kept}, has {left}, {unfinished}, {pending}")
    return broken + (_graph_balances(bag, bag.graph) if bag.graph is not None else [])


def _graph_balances(bag: BagState, graph: Graph) -> list[str]:
    fresh, broken = graph_of(bag.pairs, bag.tasks.np_state[: bag.size]), []
    if any(graph.after(task) != fresh.after(task) for task in range(bag.size)):
        broken.append(f"books: the graph of bag {bag.number} is not that of its edges")
    states = bag.tasks.np_state[: bag.size]
    if ((states == READY) & (fresh.np_pending > 0)).any() or ((states == WAITING) & (fresh.np_pending == 0)).any():
        broken.append(f"books: a task of bag {bag.number} is ready and waits for others, or waits for none")
    before, after = bag.pairs.T
    for task in after[(states[after] == WAITING) & (states[before] > SUCCEEDED)].tolist():
        broken.append(f"P4: task {bag.number}/{task} waits for one that has ended without success")
    if not np.array_equal(graph.np_pending, fresh.np_pending):
        broken.append(f"books: the graph of bag {bag.number} does not count its open prerequisites")
    return broken


# --- pilots ----------------------------------------------------------------------------------------------------------


def _pilots_balance(state: State) -> list[str]:
    a = state.attempts
    held: Counter[int] = Counter()
    load: Counter[int] = Counter()
    chains: dict[tuple[int, int, int], int] = {}  # (pilot, bag, chain) → what its heaviest part weighs
    for row in rows_in_use(state):
        if a.state[row] == LOST:
            continue
        pilot, bag = state.pilots[a.pilot[row]], state.bag_of(row)
        cost = state.cost_on(state.pilot_classes[pilot.cls], state.classes[a.cls[row]])
        held[pilot.number] += 1
        key = (pilot.number, bag.number, chain_of(bag, a.task_of(row)))
        if key[2] == NO_CHAIN:
            load[pilot.number] += cost
        else:
            chains[key] = max(chains.get(key, 0), cost)
    for (number, _, _), cost in chains.items():
        load[number] += cost
    return [
        f"books: pilot {p.number} holds {p.attempts_held} ({p.load}), rows say {held[p.number]} ({load[p.number]})"
        for p in state.pilots.values() if (p.attempts_held, p.load) != (held[p.number], load[p.number])
    ]


def _use_balances(state: State) -> list[str]:
    """The cores that owners use of a site that they share are those that its pilots carry."""
    carried: Counter[str] = Counter()
    for pilot in state.pilots.values():
        if len(state.pilot_classes[pilot.cls].owners) > 1:
            carried[pilot.site] += pilot.load
    broken = []
    for name, site in state.sites.items():
        used = site.cores_in_use.values()
        if sum(used) != carried[name] or min(used, default=0) < 0:
            broken.append(f"books: at {name} {sum(used)} is in use, pilots carry {carried[name]}")
    return broken
