"""The promises as checks: one function each, run after every step by every test harness.

These checks look at the state alone.  `waiting.py` reads eligibility plainly for P4, `history.py` watches the facts go
by (P1, T7, T8), `books.py` recounts what the state counts, `moves.py` compares states with the lifecycle tables.
A check returns sentences; none means it holds.  P8 gets its own with the market.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from windfall.core.decide.provision.demand import View, Wanted, pilots_for
from windfall.core.invariants.books import books_balance, rows_in_use
from windfall.core.invariants.history import Witness
from windfall.core.invariants.waiting import p4_nobody_waits_in_vain
from windfall.core.messages.lifecycle import GONE, INTENDED, LIVE, QUEUED, READY, RUNNING, STOPPING, SUCCEEDED
from windfall.core.state import accounts
from windfall.core.state.columns import bag_and_task
from windfall.core.state.copies import missing
from windfall.core.state.world import State
from windfall.core.turn import Turn


def check_all(turn: Turn, witness: Witness) -> list[str]:
    state = turn.state
    return [
        *p1_one_result(state, witness), *p2_nothing_lost(state, witness), *p3_own_pilots(state),
        *p4_nobody_waits_in_vain(turn), *p4_outputs_read_have_copies(state), *p5_within_shape(state),
        *p5_checkpoints_are_kept(state, witness), *p6_within_limits(state), *p6_drained_is_drained(state),
        *p6_within_budgets(state), *p6_within_disks(state), *p6_within_allowances(turn),
        *p7_queued_follow_demand(turn), *p7_task_pilots_have_tasks(turn), *p7_gone_is_gone(state),
        *p7_useless_pilots_go_home(turn),
        *books_balance(state),
    ]


def p1_one_result(state: State, witness: Witness) -> list[str]:
    """At most one accepted result per task and generation, and it was granted to the pilot that reported it."""
    broken = list(witness.broken)
    for bag in state.bags.values():
        for task in np.flatnonzero(bag.tasks.np_state[: bag.size] == SUCCEEDED).tolist():
            if (bag.number, task, bag.tasks.generation[task]) not in witness.accepted:
                broken.append(f"P1: task {bag.number}/{task} is done, but nobody saw its result accepted")
    return broken


def p2_nothing_lost(state: State, witness: Witness) -> list[str]:
    """Every accepted result of a present generation is still there."""
    broken = []
    for bag, task, generation in witness.accepted:
        tasks = state.bags[bag].tasks if bag in state.bags else None
        if tasks is not None and tasks.generation[task] == generation and tasks.state[task] != SUCCEEDED:
            broken.append(f"P2: the result of task {bag}/{task} is gone")
    return broken


def p3_own_pilots(state: State) -> list[str]:
    """A pilot holds only tasks of owners its site serves."""
    broken = []
    for row in rows_in_use(state):
        pilot, bag = state.pilots[state.attempts.pilot[row]], state.bag_of(row)
        if state.attempts.granted[row] <= state.sites[pilot.site].added:
            continue  # it was shared with others then
        if bag.owner not in state.pilot_classes[pilot.cls].owners:
            broken.append(f"P3: pilot {pilot.number} of {pilot.owner} holds a task of {bag.owner}")
    return broken


def p4_outputs_read_have_copies(state: State) -> list[str]:
    """Every output that a task still reads has a copy, or is being made."""
    return [
        f"P4: somebody reads the output of task {bag.number}/{task}, and it is nowhere"
        for bag in state.bags.values() if bag.data is not None for task in missing(bag).tolist()
    ]


def p5_within_shape(state: State) -> list[str]:
    """A pilot is granted only what it could run.  How much it runs at once is the pilot's to keep."""
    broken: list[str] = []
    for row in rows_in_use(state):
        broken += [*_beyond_shape(state, row), *_counted_too_little(state, row)]
    return broken


def _beyond_shape(state: State, row: int) -> Iterator[str]:
    cls, pilot = state.classes[state.attempts.cls[row]], state.pilots[state.attempts.pilot[row]]
    needs = (cls.cores, cls.memory, cls.gpus, cls.disk, cls.nodes)
    has = (pilot.cores, pilot.memory, pilot.gpus, pilot.disk, pilot.nodes)
    if any(need > there for need, there in zip(needs, has, strict=True)):
        yield f"P5: pilot {pilot.number} has {has} and was granted a task that needs {needs}"


def _counted_too_little(state: State, row: int) -> Iterator[str]:
    cls, pilot = state.classes[state.attempts.cls[row]], state.pilots[state.attempts.pilot[row]]
    cost = state.cost_on(state.pilot_classes[pilot.cls], cls)
    if not cost and state.attempts.granted[row] <= state.sites[pilot.site].added:
        return  # its site served that owner when it was granted, and does not any more
    if not cost or ((cls.whole or cls.nodes > 1) and cost < pilot.cores * 1000):
        yield f"P5: pilot {pilot.number} counts a task of class {cls.number} as less than the whole of it"


def p5_checkpoints_are_kept(state: State, witness: Witness) -> list[str]:
    """The files that an attempt saved before it was ended early are kept for the next one, and for no ended task."""
    kept = {(bag.number, task): files for bag in state.bags.values() for task, files in bag.checkpoints.items()}
    there = {ref: files for ref, files in witness.saved.items() if ref[0] in state.bags}
    return [
        f"P5: task {bag}/{task} saved {there.get((bag, task))}, kept is {kept.get((bag, task))}"
        for bag, task in {**kept, **there} if kept.get((bag, task)) != there.get((bag, task))
    ]


def p6_within_limits(state: State) -> list[str]:
    """Pilots queued and running, and what they may use, stay within the limits that held when the last one was made."""
    broken = []
    for site in state.sites.values():
        limits, numbers = site.limits, [number for of in site.intents for number in of]
        if not numbers or state.intents[max(numbers)].made <= site.added:
            continue
        # jobs that had run and that the batch system put back into its queue exceed the limit without our doing
        queued = site.waiting - sum(state.intents[number].running_since > 0 for number in site.intents[STOPPING])
        for what, has, most in (("pilots", site.open, limits.pilots), ("queued pilots", queued, limits.queued),
                                ("ms of cores", site.core_ms_used + site.core_ms_reserved, limits.budget)):
            if most and has > most:
                broken.append(f"P6: site {site.name} has {has} {what}, may have {most}")
    return broken


def p6_drained_is_drained(state: State) -> list[str]:
    """A drained or removed site gets no more pilots, and its pilots get nothing to do."""
    closed = {site.name: None for site in state.sites.values() if site.drained or site.removed}
    broken = [f"P6: {name} is drained, and pilots are queued there" for name in closed
              if state.sites[name].intents[INTENDED] or state.sites[name].intents[QUEUED]]
    return broken + [f"P6: {pilot.site} is drained, and pilot {pilot.number} goes on" for pilot in state.pilots.values()
                     if pilot.site in closed and pilot.state == LIVE]


def p6_within_budgets(state: State) -> list[str]:
    """Core time used and pledged stays within a bag's budget."""
    return [f"P6: bag {bag.number} has used {bag.spent} and reserved {bag.pledged} ms of cores, may use {bag.budget}"
            for bag in state.bags.values() if bag.budget and bag.spent + bag.pledged > bag.budget]


def p6_within_disks(state: State) -> list[str]:
    """Tasks in play fit onto their site's disk, unless its limit has changed since the last of them was granted."""
    a = state.attempts
    newest: dict[str, int] = {}  # site → when something was granted there last that is in play
    for row in rows_in_use(state):
        if state.classes[a.cls[row]].disk:
            name = state.pilots[a.pilot[row]].site
            newest[name] = max(newest.get(name, 0), a.granted[row])
    broken = []
    for name, at in newest.items():
        site = state.sites[name]
        if site.limits.disk and site.disk_reserved > site.limits.disk and at > site.added:
            broken.append(f"P6: tasks at {name} may take {site.disk_reserved} bytes of disk, it has {site.limits.disk}")
    return broken


def p6_within_allowances(turn: Turn) -> list[str]:
    """Core time that an owner used and pledged this month stays within the allowance, unless somebody changed that."""
    state, a = turn.state, turn.state.attempts
    newest: dict[str, int] = {}  # owner → when something of theirs was granted last that counts
    for row in rows_in_use(state):
        owner = state.bag_of(row).owner
        if accounts.counts(state.sites[state.pilots[a.pilot[row]].site], owner):
            newest[owner] = max(newest.get(owner, 0), a.granted[row])
    broken = []
    for owner, at in newest.items():
        used = state.usage.get((owner, accounts.month(turn.now)), 0) + state.pledged.get(owner, 0)
        allowance = accounts.allowance(state, owner)
        if 0 <= allowance < used and at > state.limits_changed:
            broken.append(f"P6: {owner} has used and reserved {used} ms of cores, and may use {allowance}")
    return broken


def p7_queued_follow_demand(turn: Turn) -> list[str]:
    """No pilot stays queued that nothing wants."""
    if turn.provision.changed or not turn.state.provisioned_sites:
        return []  # sites are provisioned soon
    view = View(turn.state, turn.provision.last_run, turn.config)
    broken = []
    classes = [cls for policy in ("swarm", "demand") for cls in view.classes(policy)]
    for site in view.sites:
        fits = [(cls, view.fit(site, cls)) for cls in classes]
        most = pilots_for(Wanted(cls, fit, view.slots(cls)) for cls, fit in fits if fit is not None)
        broken += [f"P7: site {site.name} has {n} pilots of {shape} queued, wanted are {most.get(shape, 0)}"
                   for shape, n in site.queued_by_shape.items() if n > most.get(shape, 0)]
    return broken


def p7_useless_pilots_go_home(turn: Turn) -> list[str]:
    """No pilot of a batch system stays where no open bag has been able to use it for long."""
    state = turn.state
    if turn.provision.changed:
        return []  # sites are provisioned soon
    owners = {state.bags[number].owner for number in state.unended}
    broken = []
    for site in map(state.sites.__getitem__, state.provisioned_sites):
        since, useful = site.session.useless_since, not owners.isdisjoint([site.owner, *site.shared])
        if useful or not since or turn.now < since + turn.config.surplus + turn.config.provision:
            continue
        pilots = [state.pilots.get(state.intents[number].pilot) for number in site.intents[RUNNING]]
        broken += [f"P7: nobody may use site {site.name} since {since}, and pilot {pilot.number} stays there"
                   for pilot in pilots if pilot is not None and pilot.state == LIVE]
    return broken


def p7_task_pilots_have_tasks(turn: Turn) -> list[str]:
    """No pilot for one task stays queued once that task needs it no more."""
    state = turn.state
    if turn.provision.changed or not state.provisioned_sites:
        return []  # sites are provisioned soon
    broken = []
    for ref, of in state.task_pilots.items():
        number, task = bag_and_task(ref)
        bag = state.bags.get(number)
        if bag is None or bag.tasks.state[task] != READY:
            broken += [f"P7: intent {n} waits for a task that needs it no more" for n in of
                       if state.intents[n].state in (INTENDED, QUEUED)]
    return broken


def p7_gone_is_gone(state: State) -> list[str]:
    """A pilot that has left holds nothing."""
    return [
        f"P7: pilot {p.number} is gone but holds {p.attempts_held} attempts" for p in state.pilots.values()
        if p.state == GONE and p.attempts_held
    ]
