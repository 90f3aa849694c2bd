"""Fold into the state what happens to bags: submitted, appended to, cancelled, retried, removed."""

from __future__ import annotations

import numpy as np

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import CANCELLED, FIRST_FINAL, LOST, READY, SUCCEEDED, WAITING
from windfall.core.state import accounts
from windfall.core.state.bag_data import link_up, new_bag_data
from windfall.core.state.classes import (
    add_targets,
    append_key,
    class_of,
    digest,
    end_if_over,
    forget_class,
    new_generation,
    note_replica_news,
    part_body,
    recount,
    release_dependents,
    relist_all,
    reshape,
    resume_bag,
    set_task,
    split_by_target,
    submission_key,
    tally_of,
    target_done,
)
from windfall.core.state.columns import Tasks
from windfall.core.state.graph import Graph, as_pairs, graph_of
from windfall.core.state.load import OUTDATED, add_row_load, drop_attempts, free_row
from windfall.core.state.moves import TASKS
from windfall.core.state.world import BagState, State, TargetState, all_ready_counts
from windfall.model.checks.bag import TASK_PILOT_POLICIES

RECENT_KEYS = 1_000  # idempotency keys of appends kept per bag


def bag_submitted(state: State, fact: f.BagSubmitted) -> None:
    count = sum(t.count for t in fact.targets)
    bag = BagState(
        number=fact.bag, owner=fact.owner, name=fact.name, key=fact.key, spec=fact.spec, external=fact.external,
        select=fact.select, open=fact.open, submitted=fact.at, tasks=Tasks(count), targets=[], runs=[],
        counts=all_ready_counts(count), changed=fact.at, last_granted=fact.at, busy_since=fact.at if count else 0,
        provision=fact.provision, options=fact.options, budget=fact.budget, replicate=fact.replicate,
        policy=fact.policy, fail_over=fact.fail_over, absence=fact.absence,
    )
    state.bags[fact.bag] = bag
    state.unended[fact.bag] = None
    _note_data(state, bag, fact)
    state.next_bag = max(state.next_bag, fact.bag + 1)
    state.count_owned(fact.owner, count)
    if bag.provision in TASK_PILOT_POLICIES:
        state.bags_with_task_pilots[bag.number] = None
    state.note_replication(bag)
    if fact.key:
        state.keys[submission_key(fact.owner, fact.key)] = (fact.bag, 0, count, digest(fact.spec))
    add_targets(state, bag, fact.targets)
    if fact.edges:
        bag.graph = graph_of(as_pairs(fact.edges), bag.tasks.np_state[:count])
        _hold_back(bag, 0)
        recount(bag)
    relist_all(state, bag)
    end_if_over(state, bag, fact.at)


def _note_data(state: State, bag: BagState, fact: f.BagSubmitted) -> None:
    if fact.data_selection is not None:
        bag.data_selection = fact.data_selection
        state.bags_by_data += 1
    if fact.data is not None or fact.data_selection is not None:
        bag.data = new_bag_data(fact.data or f.DataShape(), bag.size)
        link_up(bag.data, as_pairs(fact.edges), bag.size)


def _hold_back(bag: BagState, first: int) -> None:
    """Make new tasks wait that have open prerequisites; all tasks from `first` on are new, and ready so far."""
    assert bag.graph is not None
    waits = bag.graph.np_pending[first:] > 0
    blocked = int(np.count_nonzero(waits))
    if blocked:
        TASKS.check(READY, WAITING, first)
        bag.tasks.np_state[first : bag.size][waits] = WAITING
        bag.tasks.mark(first, bag.size - 1)
    bag.counts[READY] -= blocked
    bag.counts[WAITING] += blocked


def _remember_append(state: State, bag: BagState, fact: f.TasksAppended | f.PartAppended, body: bytes) -> None:
    """Remember an append by its key.  Clients repeat a request within moments, so the last thousand keys are enough."""
    key = append_key(bag, fact.key)
    state.keys[key] = (fact.bag, fact.first, fact.count, digest(body))
    bag.recent_keys.append(key)
    if len(bag.recent_keys) > RECENT_KEYS:
        state.keys.pop(bag.recent_keys.popleft(), None)


def tasks_appended(state: State, fact: f.TasksAppended) -> None:
    bag = state.bags[fact.bag]
    _grow(state, bag, fact.count, fact.at)
    _take_in(state, bag, fact, [(fact.target, fact.count)], [fact.source])
    if fact.key:
        _remember_append(state, bag, fact, fact.source)


def part_appended(state: State, fact: f.PartAppended) -> None:
    bag = state.bags[fact.bag]
    _grow(state, bag, fact.count, fact.at)
    if fact.edges:
        bag.graph = bag.graph or Graph(bag.size)
        bag.graph.add(as_pairs(fact.edges), bag.tasks.np_state)
        _hold_back(bag, fact.first)
        if bag.data is not None:
            link_up(bag.data, bag.pairs, bag.size)
    _take_in(state, bag, fact, fact.pieces, fact.sources)
    if fact.key:
        _remember_append(state, bag, fact, part_body(fact.sources, fact.edges))


def _grow(state: State, bag: BagState, count: int, at: int) -> None:
    """Add rows for new tasks, which are ready as long as no edge says otherwise."""
    first = bag.size
    if not bag.counts[READY]:
        bag.last_granted = at
    bag.tasks.grow(count)
    bag.counts[READY] += count
    if bag.graph is not None:
        bag.graph.grow(count)
    if bag.data is not None:
        bag.data.columns.grow(count)
        bag.data.columns.np_since[first : first + count] = at
        bag.data.columns.mark(first, first + count - 1)
    state.count_owned(bag.owner, count)


def _take_in(
    state: State, bag: BagState, fact: f.TasksAppended | f.PartAppended, pieces: f.Runs, sources: list[bytes]
) -> None:
    """Count new rows, target by target in this order, as ready or waiting by their states."""
    bag.appended += sources
    bag.changed = fact.at
    resume_bag(state, bag, fact.at)
    state.note_replication(bag)
    first = fact.first
    for (target, count), source in zip(pieces, sources, strict=True):
        _add_run(bag, target, first, count, fact.at)
        cls = class_of(state, bag, target, 0)
        cls.message_bytes = max(cls.message_bytes, len(source) // max(count, 1))
        cls.backlog.add_run(first, count)
        cls.ready += count - int(np.count_nonzero(bag.tasks.np_state[first : first + count]))
        state.relist(cls)
        first += count


def _add_run(bag: BagState, index: int, first: int, count: int, at: int) -> None:
    target = bag.targets[index]
    if bag.runs and bag.runs[-1][1] == index:
        pass  # it follows on from the last run
    else:
        bag.runs.append((first, index, target.count))
    had, target.count = target.count, target.count + count
    if target.shape.batch > 1 and bag.filling(target).start >= had:  # who waited so far for the batch to fill need not
        target.filling_since = at
    target.not_succeeded += count
    target.not_ended += count


def bag_closed(state: State, fact: f.BagClosed) -> None:
    bag = state.bags[fact.bag]
    bag.open = False
    bag.changed = fact.at
    if bag.policy or bag.number in state.replicating:
        bag.note_tail()
    release_dependents(state, bag, [t for t in bag.targets if t.count == 0 and target_done(bag, t)])
    relist_all(state, bag)  # no batch waits for more tasks now
    note_replica_news(state, bag)  # the last task may have started long ago
    end_if_over(state, bag, fact.at)


def bag_paused(state: State, fact: f.BagPaused) -> None:
    bag = state.bags[fact.bag]
    bag.paused, bag.last_granted = fact.paused, fact.at
    bag.changed = fact.at
    relist_all(state, bag)
    state.version += 1  # what may have a replica, or is overdue, is on no list


def bag_removed(state: State, fact: f.BagRemoved) -> None:
    attempts = state.attempts
    for row in attempts.of_bag(fact.bag).tolist():
        if attempts.state[row] != LOST:
            add_row_load(state, row, -1)
            pilot = state.pilots[attempts.pilot[row]]
            pilot.unknown_attempts.append(attempts.number[row])
            state.pilots_with_news[pilot.number] = None
        free_row(state, row)
    state.version += bool(state.quarantined)  # what a host was tried with may be gone
    bag = state.bags.pop(fact.bag)
    state.bags_with_task_pilots.pop(fact.bag, None)
    state.unended.pop(fact.bag, None)
    state.replicating.pop(fact.bag, None)
    state.deadlines.pop(fact.bag, None)
    state.count_owned(bag.owner, -bag.size)
    state.bags_by_data -= bag.data_selection is not None
    state.dropped_chunks += bag.chunk_names()
    for cls in bag.classes.values():
        forget_class(state, cls)
    for key in [k for k, v in state.keys.items() if v[0] == fact.bag]:
        del state.keys[key]


def tasks_cancelled(state: State, fact: f.TasksCancelled) -> None:
    bag = state.bags[fact.bag]
    for first, count in fact.runs:
        states = bag.tasks.np_state[first : first + count]
        _uncount(bag, first, count)
        states[:] = CANCELLED
        live = bag.tasks.np_live[first : first + count]
        if live.any():  # pages that nothing has touched stay so
            live[:] = 0
        bag.tasks.mark(first, first + count - 1)
    drop_attempts(state, fact.bag, fact.runs)
    _forget_checkpoints(bag)
    state.version += bool(state.overdue)  # somebody may wait behind one of these
    bag.changed = fact.at
    recount(bag)
    relist_all(state, bag)
    note_replica_news(state, bag)  # those that run may be the last now
    end_if_over(state, bag, fact.at)


def _forget_checkpoints(bag: BagState) -> None:
    """Drop the checkpoints of all tasks that have ended."""
    for task in [task for task in bag.checkpoints if bag.tasks.state[task] >= FIRST_FINAL]:
        bag.drop_checkpoint(task)


def _uncount(bag: BagState, first: int, count: int) -> None:
    """Take tasks out of all counts of their present states, before they are cancelled."""
    for lo, target, hi in split_by_target(bag, first, count):
        tally = tally_of(bag, lo, hi)
        TASKS.check_tally(tally, CANCELLED, lo)
        bag.counts[:] = [old - n for old, n in zip(bag.counts, tally, strict=True)]
        bag.targets[target].not_ended -= sum(tally[:FIRST_FINAL])
    bag.counts[CANCELLED] += count


def tasks_retried(state: State, fact: f.TasksRetried) -> None:
    bag = state.bags[fact.bag]
    t = bag.tasks
    if not bag.counts[READY]:
        bag.last_granted = fact.at
    if fact.why != "user":
        _take_back(state, bag, fact)
    for first, count in fact.runs:
        for lo, target, hi in split_by_target(bag, first, count):
            new_generation(state, bag, target, lo, hi)
            if bag.data is not None:
                bag.data.columns.np_since[lo:hi] = fact.at
                bag.data.columns.mark(lo, hi - 1)
        t.mark(first, first + count - 1)
    state.version += bag.data_selection is not None
    drop_attempts(state, fact.bag, fact.runs)  # lost ones of the generation before
    bag.changed = fact.at
    resume_bag(state, bag, fact.at)
    state.note_replication(bag)
    recount(bag)
    relist_all(state, bag)


def _take_back(state: State, bag: BagState, fact: f.TasksRetried) -> None:
    """Let succeeded tasks run again; the tasks that depend on them wait again, for files that are gathered anew."""
    done = [t for t in bag.targets if target_done(bag, t)]
    for first, count in fact.runs:
        for lo, target, hi in split_by_target(bag, first, count):
            succeeded = lo + np.flatnonzero(bag.tasks.np_state[lo:hi] == SUCCEEDED)
            bag.targets[target].not_succeeded += len(succeeded)
            if bag.graph is not None:
                _hold_dependents(state, bag, bag.graph, succeeded.tolist())
    while undone := [t for t in done if not target_done(bag, t)]:
        done = [t for t in done if t not in undone]
        _hold_targets(bag, undone, fact.why == "rerun")


def _hold_targets(bag: BagState, undone: list[TargetState], other_files: bool) -> None:
    """Let the targets wait again that depend on these, which are not done any more."""
    for after in [bag.targets[index] for target in undone for index in target.dependents]:
        after.pending += 1
        after.inputs_pending = after.inputs_pending or (other_files and after.shape.gathers)


def _hold_dependents(state: State, bag: BagState, graph: Graph, tasks: list[int]) -> None:
    """Let the tasks wait again that depend on tasks which must run again."""
    for task in tasks:
        for after in graph.after(task):
            graph.pending[after] += 1
            if bag.tasks.state[after] == READY:
                set_task(state, bag, after, WAITING)


def bag_revised(state: State, fact: f.BagRevised) -> None:
    bag = state.bags[fact.bag]
    bag.spec, bag.spec_saved = fact.spec, False
    bag.revised = bag.changed = fact.at
    bag.reread = len(bag.appended)
    for first, count in fact.outdated:
        bag.tasks.np_flags[first : first + count] |= OUTDATED
        bag.tasks.mark(first, first + count - 1)
    if [target.shape for target in bag.targets] != fact.targets:
        reshape(state, bag, fact.targets)
        accounts.recount(state)


def target_gathered(state: State, fact: f.InputsGathered) -> None:
    bag = state.bags[fact.bag]
    bag.targets[fact.target].inputs_pending = False
    bag.changed = bag.last_granted = fact.at
    relist_all(state, bag)


def batch_released(state: State, fact: f.BatchReleased) -> None:
    bag = state.bags[fact.bag]
    bag.targets[fact.target].released = fact.count
    bag.changed = fact.at
    relist_all(state, bag)


def policy_set(state: State, fact: f.PolicySet) -> None:
    bag = state.bags[fact.bag]
    bag.policy, bag.changed, bag.programs = fact.policy, fact.at, {}
    for cls in bag.classes.values():
        state.ready_with_expressions += (bag.has_expressions - cls.has_expressions) * cls.on_ready_list
        cls.has_expressions = bag.has_expressions
        cls.has_per_host = "per-host" in bag.policy and not cls.in_chain
    state.note_replication(bag)
    bag.note_tail()
    bag.replica_version += 1
    state.version += 1


def bag_lifted(state: State, fact: f.BagAged) -> None:
    bag = state.bags[fact.bag]
    bag.last_granted = fact.at
    state.put_first(bag, fact.at if fact.first else 0)


def budget_set(state: State, fact: f.BudgetSet) -> None:
    bag = state.bags[fact.bag]
    bag.budget, bag.changed = fact.budget, fact.at
    for cls in bag.classes.values():
        cls.note_accounts(fact.budget > 0, cls.has_allowance)
    accounts.recount(state)
    relist_all(state, bag)
    state.version += 1


def copies_lost(state: State, fact: f.CopiesLost) -> None:
    number = state.places[fact.place]
    for bag, runs in fact.lost:
        data = state.bags[bag].data
        assert data is not None
        for first, count in runs:
            for task in range(first, first + count):
                data.drop(task, number)
    state.version += state.bags_by_data > 0
