"""Fold into the state what happens to attempts: granted, adopted, started, ended."""

from __future__ import annotations

import numpy as np

from windfall.core.apply import hosts
from windfall.core.messages import facts as f
from windfall.core.messages.bounds import add_core_ms
from windfall.core.messages.lifecycle import (
    ACTIVE,
    FIRST_FINAL,
    FREE,
    GRANTED,
    LOST,
    NO_HOST_FAULT,
    O_FAILED,
    O_LOST,
    O_SUCCEEDED,
    READY,
    STARTED,
    SUCCEEDED,
    WAITING,
)
from windfall.core.state import accounts, copies
from windfall.core.state.chains import chain_key
from windfall.core.state.classes import (
    class_of,
    end_if_over,
    note_replica_news,
    release_dependents,
    relist_all,
    set_task,
    target_done,
)
from windfall.core.state.columns import CHUNK_BITS, FEW, ROW_MASK, TASK_BITS, Attempts, Tasks, ref_of
from windfall.core.state.graph import Graph
from windfall.core.state.host_table import is_bad
from windfall.core.state.load import (
    OUTSTANDING,
    add_load,
    add_row_load,
    cancel_on_return,
    drop_row,
    free_row,
    update_line,
)
from windfall.core.state.moves import ATTEMPTS, TASKS
from windfall.core.state.world import BagState, PilotState, State, TargetState, TaskClass
from windfall.model.policies.replica_caps import COST

MEAN_WEIGHT = 0.2  # of the newest report in a class's mean duration
AVERAGED = 12  # successes in one report beyond which a mean learns their average, as one sample
SHORTER = 0.75  # of what tasks were thought to take, below which those are late that were not expected to be


def granted(state: State, fact: f.Granted) -> None:
    pilot = state.pilots[fact.pilot]
    pilot.granted = fact.number
    for group in fact.groups:
        bag = state.bags[group.bag]
        cls = class_of(state, bag, group.target, group.variant)
        (_open_many if len(group.attempts) > FEW else _open_few)(state, fact, group, bag, cls)
        _activate(bag, cls, group.tasks)
        if cls.overdue:
            _not_overdue(state, cls, group.tasks)  # the new attempts are not
        add_load(state, pilot, cls, group.tasks, 1)
        bag.changed = bag.last_granted = fact.at
        if bag.counts[READY] < bag.counts[ACTIVE] and (bag.policy or bag.number in state.replicating):
            bag.note_tail()  # it begins now at the earliest
        if cls.is_accounted:
            accounts.pledge_rows(state, accounts.rows_of(group.attempts), 1)
            relist_all(state, bag)
        elif not cls.ready or cls.in_chain:
            state.relist(cls)
    if fact.transfers:
        copies.note_transfers(state, fact.transfers)
    update_line(state, pilot)


def _not_overdue(state: State, cls: TaskClass, tasks: list[int]) -> None:
    """Strike tasks from the overdue ones.  Pilots that waited for these tasks may be granted others now."""
    for task in tasks:
        if cls.overdue.pop(task, None) is not None:
            state.version += 1


def _open_few(state: State, fact: f.Granted, group: f.Group, bag: BagState, cls: TaskClass) -> None:
    attempts = state.attempts
    generation = bag.tasks.generation
    high, at, pilot, of, grant = group.bag << TASK_BITS, fact.at, fact.pilot, cls.number, fact.number
    for number, task in zip(group.attempts, group.tasks, strict=True):
        row = number & ROW_MASK
        if row >= attempts.rows:
            attempts.grow(row + 1 - attempts.rows)
        if attempts.state[row] != FREE:
            ATTEMPTS.refuse(attempts.state[row], GRANTED, number)
        attempts.number[row] = number
        attempts.task[row] = high | task
        attempts.granted[row] = at
        attempts.started[row] = 0
        attempts.pilot[row] = pilot
        attempts.cls[row] = of
        attempts.grant[row] = grant
        attempts.generation[row] = generation[task]
        attempts.state[row] = GRANTED
        attempts.dirty[row >> CHUNK_BITS] = 1
    if attempts.indexed:
        attempts.add_rows(group.bag, [number & ROW_MASK for number in group.attempts])


def _open_many(state: State, fact: f.Granted, group: f.Group, bag: BagState, cls: TaskClass) -> None:
    attempts = state.attempts
    numbers = np.array(group.attempts, dtype=np.int64)
    tasks = np.array(group.tasks, dtype=np.int64)
    rows = numbers & ROW_MASK
    top = int(rows.max())  # the highest number need not have the last row
    if top >= attempts.rows:
        attempts.grow(top + 1 - attempts.rows)
    ATTEMPTS.check_many(attempts.np_state[rows], GRANTED, numbers)
    attempts.np_number[rows] = numbers
    attempts.np_task[rows] = tasks | ref_of(group.bag, 0)
    attempts.np_granted[rows] = fact.at
    attempts.np_started[rows] = 0
    attempts.np_pilot[rows] = fact.pilot
    attempts.np_cls[rows] = cls.number
    attempts.np_grant[rows] = fact.number
    attempts.np_generation[rows] = bag.tasks.np_generation[tasks]
    attempts.np_state[rows] = GRANTED
    attempts.mark(int(rows.min()), top)
    if attempts.indexed:
        attempts.add_rows(group.bag, rows.tolist())


def _activate(bag: BagState, cls: TaskClass, tasks: list[int]) -> None:
    """Ready tasks become active, and those that go behind their prerequisite; an active one gets one more attempt."""
    t = bag.tasks
    first, n = tasks[0], len(tasks)
    fresh, behind = n, 0
    if n > FEW and tasks[-1] - first == n - 1 and not t.np_state[first : first + n].any():
        t.np_state[first : first + n] = ACTIVE
        t.np_live[first : first + n] += 1
        t.np_tries[first : first + n] += 1
        t.mark(first, first + n - 1)
    else:
        fresh = behind = 0
        states, live, tries, dirty = t.state, t.live, t.tries, t.dirty
        may_start = TASKS.into[ACTIVE]
        for task in tasks:
            old = states[task]
            if not may_start[old]:
                TASKS.refuse(old, ACTIVE, task)
            fresh += old == READY
            behind += old == WAITING
            states[task] = ACTIVE
            live[task] += 1
            tries[task] = (tries[task] + 1) & 0xFFFF
            dirty[task >> CHUNK_BITS] = 1
    bag.replicas_granted += n - fresh - behind
    bag.counts[READY] -= fresh
    bag.counts[WAITING] -= behind
    bag.counts[ACTIVE] += fresh + behind
    cls.ready -= fresh


def adopted(state: State, fact: f.Adopted) -> None:
    attempts = state.attempts
    new = state.pilots[fact.pilot]
    for number in fact.attempts:
        row = number & ROW_MASK
        old = state.pilots[attempts.pilot[row]]
        held = attempts.state[row] != LOST
        if held:
            add_row_load(state, row, -1)
        accounts.pledge_rows(state, [row], -1)
        attempts.pilot[row] = new.number
        accounts.pledge_rows(state, [row], 1)
        attempts.grant[row] = 0  # it was taken in long ago
        attempts.dirty[row >> CHUNK_BITS] = 1
        if held:
            add_row_load(state, row, 1)
        old.recalling.pop(number, None)
        if old.cancelling.pop(number, None) is not None:
            new.cancelling[number] = False
            state.pilots_with_news[new.number] = None


def _keep_chain(state: State, recalling: dict[int, bool], row: int) -> None:
    """A chain that has begun stays where it is, unless its bag is paused."""
    if not state.bag_of(row).paused:
        key = chain_key(state, row)
        for number in [n for n in recalling if chain_key(state, n & ROW_MASK) == key]:
            del recalling[number]


def started(state: State, fact: f.Started) -> None:
    attempts = state.attempts
    recalling = state.pilots[fact.pilot].recalling
    for number in fact.attempts:
        row = number & ROW_MASK
        if recalling.pop(number, None) is not None:  # too late
            _keep_chain(state, recalling, row)
        ATTEMPTS.check(attempts.state[row], STARTED, number)
        if revives := attempts.state[row] == LOST:
            attempts.recover(row)
            accounts.count_in_group(state, row, 1)
            _revive(state, row)
            state.pilots[fact.pilot].cancelling.pop(number, None)
        attempts.state[row] = STARTED
        attempts.started[row] = fact.at
        attempts.dirty[row >> CHUNK_BITS] = 1
        if state.replicating and (bag := attempts.bag_of(row)) in state.replicating:
            owner = state.bags[bag]
            _note_known(state, owner, revives or _only_one(state, owner, row))


def _only_one(state: State, bag: BagState, row: int) -> bool:
    """Of its task's attempts, is it the only one that runs?"""
    attempts, ref = state.attempts, state.attempts.task[row]
    if bag.tasks.live[attempts.task_of(row)] == 1:
        return True
    return [each for each in attempts.of_task(ref) if attempts.state[each] == STARTED] == [row]


def _note_known(state: State, bag: BagState, news: bool = True) -> None:
    """Note that an attempt started, or ended.  If it was the last unstarted attempt of its bag, late tasks may be
    replicated now.  `news`: it changes what a scan found of its task, or it was the only attempt of its task."""
    if not bag.has_backlog():
        state.note_replica_offer()
        bag.replica_version += news


def _revive(state: State, row: int) -> None:
    """A lost attempt turns out to be running."""
    owner, task = state.bag_of(row), state.attempts.task_of(row)
    t = owner.tasks
    if t.state[task] in (READY, WAITING):
        set_task(state, owner, task, ACTIVE)
    t.live[task] += 1
    t.dirty[task >> CHUNK_BITS] = 1
    add_row_load(state, row, 1)


def _finish_few(attempts: Attempts, t: Tasks, rows: list[int], tasks: list[int]) -> None:
    row_may_end, task_may_succeed = ATTEMPTS.into[FREE], TASKS.into[SUCCEEDED]
    row_states, states = attempts.state, t.state
    for row, task in zip(rows, tasks):  # noqa: B905 (`finished` made the rows from as many attempts)
        if not row_may_end[row_states[row]]:
            ATTEMPTS.refuse(row_states[row], FREE, attempts.number[row])
        if not task_may_succeed[states[task]]:
            TASKS.refuse(states[task], SUCCEEDED, task)
        row_states[row] = FREE
        attempts.dirty[row >> CHUNK_BITS] = 1
        states[task] = SUCCEEDED
        t.live[task] = 0
        t.dirty[task >> CHUNK_BITS] = 1
    attempts.free.extend(rows)


def _finish_many(attempts: Attempts, t: Tasks, row_list: list[int], task_list: list[int]) -> None:
    rows, tasks = np.array(row_list, dtype=np.int64), np.array(task_list, dtype=np.int64)
    ATTEMPTS.check_many(attempts.np_state[rows], FREE, attempts.np_number[rows])
    TASKS.check_many(t.np_state[tasks], SUCCEEDED, tasks)
    attempts.np_state[rows] = FREE
    attempts.mark(int(rows.min()), int(rows.max()))
    attempts.free.extend(row_list)
    t.np_state[tasks] = SUCCEEDED
    t.np_live[tasks] = 0
    t.mark(int(tasks.min()), int(tasks.max()))


def finished(state: State, fact: f.Finished) -> None:
    bag = state.bags[fact.bag]
    attempts = state.attempts
    n = len(fact.tasks)
    rows = [number & ROW_MASK for number in fact.attempts]
    cls = state.classes[attempts.cls[rows[0]]]
    unstarted = fact.bag in state.replicating and _has_unstarted(attempts, bag, rows)
    (_finish_many if n > FEW else _finish_few)(attempts, bag.tasks, rows, fact.tasks)
    if attempts.indexed:
        attempts.drop_rows(fact.bag, rows)
    bag.counts[ACTIVE] -= n
    bag.counts[SUCCEEDED] += n
    pilot = state.pilots[fact.pilot]
    accounts.settle_successes(state, bag, cls, pilot, fact)
    add_load(state, pilot, cls, fact.tasks, -1)
    if pilot.recalling:
        _forget_recalls(pilot, fact.attempts)
    update_line(state, pilot)
    samples: list[float] = [sum(fact.walls) / n] if n > AVERAGED else [*fact.walls]
    _note_times(state, bag, cls, samples, n)
    hosts.learn_successes(state, bag, pilot.row, n, samples, at=fact.at, usual=cls.mean)
    if bag.checkpoints or bag.data is not None:
        _note_files(state, bag, pilot, fact)
    bag.changed = fact.at
    if unstarted:
        _note_known(state, bag)
    if cls.overdue:
        _not_overdue(state, cls, fact.tasks)
    _succeeded(state, bag, bag.targets[cls.target], fact.tasks, n)
    end_if_over(state, bag, fact.at)


def _has_unstarted(attempts: Attempts, bag: BagState, rows: list[int]) -> bool:
    """Was one of these attempts not known to have started, in a bag without a backlog?"""
    return not bag.has_backlog() and any(attempts.state[row] == GRANTED for row in rows)


def _forget_recalls(pilot: PilotState, attempts: list[int]) -> None:
    for number in attempts:
        pilot.recalling.pop(number, None)


def _note_files(state: State, bag: BagState, pilot: PilotState, fact: f.Finished) -> None:
    """Drop the checkpoints of succeeded tasks, and note the copies that they left."""
    for task in fact.tasks if bag.checkpoints else ():
        bag.drop_checkpoint(task)
    if bag.data is not None:
        for place, (attempt, task) in enumerate(zip(fact.attempts, fact.tasks, strict=True)):
            fetched = copies.end_transfers(state, attempt)
            copies.note_success(state, bag, task, pilot, left=fact.left_in_place.get(place), fetched=fetched)


def _note_times(state: State, bag: BagState, cls: TaskClass, samples: list[float], n: int) -> None:
    """Learn from `n` successes how long such tasks take: one sample each, or the average of many."""
    mean, done, thought = cls.mean, cls.successes, cls.mean_at_last_scan
    if not done and bag.counts[ACTIVE]:
        note_replica_news(state, bag)  # how long such tasks take is known now: others may be late, or will be
    for wall in samples:
        mean += (MEAN_WEIGHT if done else 1.0) * ((wall if wall > 0.5 else 0.5) - mean)
        done += 1
        if mean < SHORTER * thought:
            thought = mean
            note_replica_news(state, bag)
    cls.mean, cls.mean_at_last_scan = mean, thought
    cls.successes += n


def _succeeded(state: State, bag: BagState, target: TargetState, tasks: list[int], finished: int) -> None:
    target.not_succeeded -= len(tasks)
    target.not_ended -= finished
    if bag.graph is not None:
        _release_successors(state, bag, bag.graph, tasks)
    if target_done(bag, target):
        release_dependents(state, bag, [target])


def _release_successors(state: State, bag: BagState, graph: Graph, tasks: list[int]) -> None:
    pending, states = graph.pending, bag.tasks.state
    for task in tasks:
        for after in graph.after(task):
            pending[after] -= 1
            if pending[after] == 0 and states[after] == WAITING:
                set_task(state, bag, after, READY)


def ended(state: State, fact: f.Ended) -> None:
    for end in fact.ends:
        _end(state, fact, end)


def _end(state: State, fact: f.Ended, end: f.End) -> None:
    attempts = state.attempts
    row = end.attempt & ROW_MASK
    old_row = attempts.state[row]
    bag = state.bags[end.bag]
    bag.changed = fact.at
    t = bag.tasks
    current = t.generation[end.task] == end.generation
    if old_row in (GRANTED, STARTED) and current:
        t.live[end.task] -= 1
    if end.outcome == O_SUCCEEDED and end.wall and (cls := state.classes.get(attempts.cls[row])) is not None:
        _note_times(state, bag, cls, [end.wall], 1)
    _note_host(state, bag, fact, end)
    if old_row != LOST:
        add_row_load(state, row, -1)
    fetched = copies.end_transfers(state, end.attempt) if state.transfers_of else []
    if current and bag.data is not None and end.verdict == SUCCEEDED != t.state[end.task]:
        copies.note_success(
            state, bag, end.task, state.pilots[fact.pilot], left=end.left_in_place, fetched=fetched)
    if end.row_kept:
        _keep_row(state, bag, row, end)
    else:
        free_row(state, row, end.charged)
    if current:
        _enter_verdict(state, bag, end, fact.at)
    if state.overdue and (cls := state.classes.get(attempts.cls[row])) is not None:
        _not_overdue(state, cls, [end.task])  # one of its attempts has ended: it goes another way from now on
    if end.bag in state.replicating and (old_row == GRANTED or t.state[end.task] == ACTIVE):
        _note_known(state, bag)


def _keep_row(state: State, bag: BagState, row: int, end: f.End) -> None:
    """Keep the row of an attempt that is given up: a late report is still welcome."""
    attempts = state.attempts
    if attempts.state[row] == GRANTED and end.outcome == O_LOST:
        cancel_on_return(state, row)
    if attempts.state[row] != LOST:
        accounts.count_in_group(state, row, -1)
    attempts.mark_lost(row)
    bag.tasks.flags[end.task] |= OUTSTANDING


def _note_host(state: State, bag: BagState, fact: f.Ended, end: f.End) -> None:
    row = state.pilots[fact.pilot].row
    bad = is_bad(state.hosts, row)
    if end.outcome == O_SUCCEEDED:
        hosts.learn_successes(state, bag, row, 1, [end.wall], at=fact.at)
    elif end.outcome == O_FAILED and end.why not in NO_HOST_FAULT:
        hosts.learn_failure(state, bag, row, fact.at)
    elif end.outcome == O_LOST:
        hosts.learn_loss(state, row, fact.at)
    if state.replicating and not bad and is_bad(state.hosts, row):
        _note_bad(state, row)


def _note_bad(state: State, row: int) -> None:
    """Ask again for late tasks of the bags that run on a host gone bad: tasks on such a host are late sooner."""
    for number in state.on_host.get(row, ()):
        rows = state.attempts.of_pilot(number)
        for bag in dict.fromkeys(state.attempts.bags_of(rows).tolist()):
            if bag in state.replicating and not state.bags[bag].has_backlog():
                note_replica_news(state, state.bags[bag])


def _enter_verdict(state: State, bag: BagState, end: f.End, at: int) -> None:
    """Put the verdict of an end into its task: state, counters, variant, checkpoint."""
    t, task = bag.tasks, end.task
    old, new = t.state[task], end.verdict
    if new in (READY, WAITING) and bag.graph is not None:  # its prerequisite may have ended in the same report
        new = WAITING if bag.graph.waits(task) else READY
    t.failures[task] = end.failures
    t.deaths[task] = end.deaths
    variant = end.variant
    if old == READY and variant != t.variant[task]:
        set_task(state, bag, task, ACTIVE)  # leave the old class before joining the new one
        old = ACTIVE
    t.variant[task] = variant
    t.dirty[task >> CHUNK_BITS] = 1
    set_task(state, bag, task, new)
    _keep_checkpoint(bag, end)
    target = bag.targets[bag.target_of(task)]
    if new == SUCCEEDED and old != SUCCEEDED:
        _succeeded(state, bag, target, [task], 1 if old < FIRST_FINAL else 0)
        _drop_others(state, bag, end, at)
    elif new >= FIRST_FINAL and old < FIRST_FINAL:
        target.not_ended -= 1
    end_if_over(state, bag, at)


def _keep_checkpoint(bag: BagState, end: f.End) -> None:
    """For the next attempt.  None where there is no next one, or where the files could not be had."""
    if end.verdict >= FIRST_FINAL or end.why == "input":
        bag.drop_checkpoint(end.task)
    elif end.detail is not None and end.detail.saved:
        bag.keep_checkpoint(end.task, end.detail.saved)


def _note_replica_waste(state: State, bag: BagState, row: int, at: int) -> None:
    """Count what an attempt used in vain, since another one has just ended its task."""
    attempts = state.attempts
    generation = bag.tasks.generation[attempts.task_of(row)]
    if attempts.state[row] == STARTED and attempts.generation[row] == generation:
        wasted = accounts.charge(state, row, max(at - attempts.started[row], 0))
        bag.replica_waste = add_core_ms(bag.replica_waste, wasted)


def _drop_others(state: State, bag: BagState, end: f.End, at: int) -> None:
    t = bag.tasks
    attempts, ref = state.attempts, ref_of(end.bag, end.task)
    if t.live[end.task] or t.flags[end.task] & OUTSTANDING:
        # Mostly it was tried again after a loss: nothing that runs need be looked for.
        for row in attempts.of_task(ref) if t.live[end.task] else sorted(attempts.lost.get(ref, ())):
            if attempts.number[row] != end.attempt:
                _note_replica_waste(state, bag, row, at)
                drop_row(state, row)
        t.live[end.task] = 0
        t.flags[end.task] &= ~OUTSTANDING & 0xFF
        if COST in bag.policy:
            note_replica_news(state, bag)  # it may have cost less than was expected: others may have a replica
