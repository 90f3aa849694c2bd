"""Fold a fact into the state.  Decides nothing: every value it needs is in the fact.

The same functions run when a decision is taken and when the journal is replayed.  What follows mechanically (a target
released because its prerequisite is done, a counter) is worked out here; what could have gone another way is not.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windfall.core import copies, facts as f, hosts, intents as i, means, watchdog
from windfall.core.backlog import Backlog
from windfall.core.batching import chain_key, chain_of, is_chained, link_stages, shift, waiting
from windfall.core.columns import CHUNK, FEW, OVER, ROW_MASK, Attempts, Tasks
from windfall.core.lifecycle import (
    ACTIVE,
    CANCELLED,
    DRAINING,
    DROPPED,
    FIRST_FINAL,
    FREE,
    GONE,
    GRANTED,
    LOST,
    O_FAILED,
    O_LOST,
    O_SUCCEEDED,
    READY,
    STARTED,
    SUCCEEDED,
    SUPERSEDED,
    WAITING,
)
from windfall.core.replication import replicates
from windfall.core.selection import class_key
from windfall.core.state import (
    BagState,
    Graph,
    PilotClass,
    PilotState,
    SiteState,
    State,
    TargetState,
    TaskClass,
    TokenState,
    fresh_counts,
)

BLAMELESS = ("time", "memory")  # failures that are no host's fault
OUTSTANDING = 1  # flag of a task: an attempt was lost and may still report
RECENT_KEYS = 1_000  # idempotency keys of appends kept per bag
SAVING = 1_000  # ms that a task with checkpoint files needs beyond its grace, to be worth starting
MEAN_WEIGHT = 0.2  # of the newest report in a class's mean duration


def apply(state: State, fact: f.Fact) -> None:
    at: int = fact.at  # type: ignore[attr-defined]
    state.now = max(state.now, at)
    _HANDLERS[type(fact)](state, fact)


# --- bags ------------------------------------------------------------------------------------------------------


def _bag_submitted(state: State, fact: f.BagSubmitted) -> None:
    count = sum(t.count for t in fact.targets)
    bag = BagState(
        number=fact.bag, owner=fact.owner, name=fact.name, key=fact.key, spec=fact.spec, external=fact.external,
        select=fact.select, open=fact.open, submitted=fact.at, tasks=Tasks(count), targets=[], runs=[],
        counts=fresh_counts(count), touched=fact.at, began=fact.at if count else 0, provision=fact.provision,
        options=fact.options, budget=fact.budget, replicate=fact.replicate, policy=fact.policy,
        fail_over=fact.fail_over,
    )
    state.bags[fact.bag] = bag
    _note_data(state, bag, fact)
    state.next_bag = max(state.next_bag, fact.bag + 1)
    state.own(fact.owner, count)
    if bag.provision in i.NAMED:
        state.named_bags[bag.number] = None
    if replicates(bag):
        state.replicating[bag.number] = None
    if fact.key:
        state.keys[submission_key(fact.owner, fact.key)] = (fact.bag, 0, count, digest(fact.spec))
    _add_targets(state, bag, fact.targets)
    if fact.edges:
        bag.edges = fact.edges
        _hold_back(bag)
        recount(bag)
    relist_all(state, bag)
    _maybe_end(bag, fact.at)


def _note_data(state: State, bag: BagState, fact: f.BagSubmitted) -> None:
    if fact.conscious is not None:
        bag.conscious = fact.conscious
        state.conscious += 1
    if fact.data is not None or fact.conscious is not None:
        bag.data = copies.bag_data(fact.data or f.DataShape(), bag.size)
        copies.link_up(bag.data, fact.edges, bag.size)


def _add_targets(state: State, bag: BagState, shapes: list[f.TargetShape]) -> None:
    first = 0
    for index, shape in enumerate(shapes):
        counts = (shape.count, len(shape.after), shape.count, shape.count)
        since = bag.submitted if shape.batch > 1 else 0
        bag.targets.append(TargetState(index, shape, *counts, held=shape.gathers, since=since))
    link_stages(bag)
    for index, shape in enumerate(shapes):
        bag.runs.append((first, index, 0))
        cls = class_of(state, bag, index, 0)
        cls.backlog.add_run(first, shape.count)
        cls.ready = shape.count
        first += shape.count
    for target in bag.targets:
        for before in target.shape.after:
            bag.targets[before].dependents.append(target.index)
    _release_dependents(state, bag, [target for target in bag.targets if target_done(bag, target)])


def target_done(bag: BagState, target: TargetState) -> bool:
    """All it has have succeeded; an empty one is done once nothing can be appended and it could start."""
    return target.left == 0 and target.pending == 0 and (target.count > 0 or not bag.open)


def class_of(state: State, bag: BagState, target: int, variant: int) -> TaskClass:
    """The class of a target's tasks after so many duration failures and memory raises; made when first needed."""
    cls = bag.classes.get((target, variant))
    if cls is None:
        cls = new_class(state, bag, target, variant, state.next_class)
    return cls


def new_class(state: State, bag: BagState, target: int, variant: int, number: int) -> TaskClass:
    shape = bag.targets[target].shape
    overruns, boosts = variant >> 4 & 7, variant & 15
    limit = shape.limit * 3**overruns
    costs = np.frombuffer(shape.costs, dtype="<f4") if shape.costs and bag.select == "sjf" else None
    base = bag.classes.get((target, 0))
    state.next_class = max(state.next_class, number + 1)
    cls = bag.classes[target, variant] = state.classes[number] = TaskClass(
        number=number, bag=bag.number, target=target, overruns=overruns, boosts=boosts, cores=shape.cores,
        memory=shape.memory << boosts, gpus=shape.gpus, disk=shape.disk, whole=shape.whole,
        limit=limit, need=shape.grace + SAVING if shape.checkpoint else limit,
        key=class_key(bag.select, bag.number, target, variant, shape),
        weight=shape.weight, backlog=Backlog(bag.tasks, variant, costs, base.backlog.runs if base else None),
        batch=shape.batch, chained=is_chained(bag.targets[target]),
        conscious=bag.conscious is not None, budgeted=bag.budget > 0, nodes=shape.nodes, ruled=bool(bag.policy),
        lasts=limit + shape.grace if limit else 0, over=variant >= OVER,
        stinted=means.allowance(state, bag.owner) >= 0,
    )
    return cls


def graph_of(bag: BagState) -> Graph:
    """Successors and open prerequisites, from the edges and from what has succeeded."""
    edges = np.frombuffer(bag.edges, dtype="<i4").reshape(-1, 2)
    n = bag.size
    order = np.argsort(edges[:, 0], kind="stable")
    starts = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(edges[:, 0], minlength=n), out=starts[1:])
    open_ = bag.tasks.np_state[edges[:, 0]] != SUCCEEDED
    pending = np.bincount(edges[open_, 1], minlength=n).astype(np.int32)
    return Graph(starts, edges[order, 1].astype(np.int32), pending)


def _hold_back(bag: BagState) -> None:
    bag.graph = graph_of(bag)
    waiting = bag.graph.pending > 0
    n = bag.size
    bag.tasks.np_state[:n][waiting] = WAITING
    bag.tasks.mark(0, n - 1)
    blocked = int(np.count_nonzero(waiting))
    bag.counts[READY] -= blocked
    bag.counts[WAITING] += blocked


def recount(bag: BagState) -> None:
    """Count the ready tasks of every class afresh, in one pass over the columns."""
    plain = len(bag.classes) == len(bag.targets)  # no task has left its target's first class
    for cls in bag.classes.values():
        cls.ready = 0
    for first, target, stop in spans(bag):
        ready = bag.tasks.np_state[first:stop] == READY
        if plain:
            bag.classes[target, 0].ready += int(np.count_nonzero(ready))
            continue
        tally = np.bincount(bag.tasks.np_variant[first:stop][ready], minlength=1)
        for variant in np.flatnonzero(tally).tolist():
            bag.classes[target, variant].ready += int(tally[variant])


def relist_all(state: State, bag: BagState) -> None:
    for cls in bag.classes.values():
        state.relist(cls)


def spans(bag: BagState) -> list[tuple[int, int, int]]:
    """(first task, target, end) of every run."""
    ends = [run[0] for run in bag.runs[1:]] + [bag.size]
    return [(first, target, end) for (first, target, _), end in zip(bag.runs, ends, strict=True)]


def parts(bag: BagState, first: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Consecutive tasks cut where targets change: (first task, target, end)."""
    at = bisect_right(bag.runs, (first, 1 << 62, 0)) - 1
    end = first + count
    while first < end:
        stop = min(bag.runs[at + 1][0] if at + 1 < len(bag.runs) else bag.size, end)
        if stop > first:
            yield first, bag.runs[at][1], stop
        first, at = stop, at + 1


def submission_key(owner: str, key: str) -> tuple[str, str]:
    return owner, "submit " + key


def append_key(bag: BagState, key: str) -> tuple[str, str]:
    return bag.owner, f"append {bag.number} {key}"


def digest(body: bytes) -> int:
    """Tells one request from another under the same idempotency key."""
    return zlib.crc32(body)


def _remember_append(state: State, bag: BagState, fact: f.TasksAppended) -> None:
    """Appends are sent again within moments; the keys of the last thousand are enough."""
    key = append_key(bag, fact.key)
    state.keys[key] = (fact.bag, fact.first, fact.count, digest(fact.source))
    bag.recent.append(key)
    if len(bag.recent) > RECENT_KEYS:
        state.keys.pop(bag.recent.popleft(), None)


def _tasks_appended(state: State, fact: f.TasksAppended) -> None:
    bag = state.bags[fact.bag]
    target = bag.targets[fact.target]
    bag.tasks.grow(fact.count)
    if bag.data is not None:
        bag.data.columns.grow(fact.count)
        bag.data.columns.np_since[fact.first : fact.first + fact.count] = fact.at
        bag.data.columns.mark(fact.first, fact.first + fact.count - 1)
    state.own(bag.owner, fact.count)
    if bag.runs and bag.runs[-1][1] == fact.target:
        pass  # it follows on from the last run
    else:
        bag.runs.append((fact.first, fact.target, target.count))
    had, target.count = target.count, target.count + fact.count
    if target.shape.batch > 1 and waiting(bag, target).start >= had:  # who waited so far for the batch to fill need not
        target.since = fact.at
    target.left += fact.count
    target.unfinished += fact.count
    bag.counts[READY] += fact.count
    bag.appended.append(fact.source)
    bag.touched = fact.at
    _go_on(bag, fact.at)
    if fact.key:
        _remember_append(state, bag, fact)
    cls = class_of(state, bag, fact.target, 0)
    cls.weight = max(cls.weight, len(fact.source) // max(fact.count, 1))
    cls.backlog.add_run(fact.first, fact.count)
    cls.ready += fact.count
    state.relist(cls)


def _bag_closed(state: State, fact: f.BagClosed) -> None:
    bag = state.bags[fact.bag]
    bag.open = False
    bag.touched = fact.at
    if bag.policy:
        bag.note_tail()
    _release_dependents(state, bag, [t for t in bag.targets if t.count == 0 and target_done(bag, t)])
    relist_all(state, bag)  # no batch waits for more tasks now
    _maybe_end(bag, fact.at)


def _bag_paused(state: State, fact: f.BagPaused) -> None:
    bag = state.bags[fact.bag]
    bag.paused = fact.paused
    bag.touched = fact.at
    relist_all(state, bag)


def _bag_removed(state: State, fact: f.BagRemoved) -> None:
    attempts = state.attempts
    used = attempts.rows
    mine = (attempts.np_state[:used] != FREE) & (attempts.np_task[:used] >> 32 == fact.bag)
    for row in np.flatnonzero(mine).tolist():
        if attempts.state[row] != LOST:
            carry(state, row, -1)
            pilot = state.pilots[attempts.pilot[row]]
            pilot.strays.append(attempts.number[row])
            state.orders[pilot.number] = None
        free_row(state, row)
    state.version += bool(state.barred)  # what a host was tried with may be gone
    bag = state.bags.pop(fact.bag)
    state.named_bags.pop(fact.bag, None)
    state.replicating.pop(fact.bag, None)
    state.own(bag.owner, -bag.size)
    state.conscious -= bag.conscious is not None
    state.dropped += bag.chunk_names()
    for cls in bag.classes.values():
        state.relist(cls)
        state.classes.pop(cls.number, None)
        for pc in state.pilot_classes.values():
            pc.costs.pop(cls.number, None)
        for name in state.provided:
            state.sites[name].fits.pop(cls.number, None)
    for key in [k for k, v in state.keys.items() if v[0] == fact.bag]:
        del state.keys[key]


def _tasks_cancelled(state: State, fact: f.TasksCancelled) -> None:
    bag = state.bags[fact.bag]
    for first, count in fact.runs:
        states = bag.tasks.np_state[first : first + count]
        _uncount(bag, first, count)
        states[:] = CANCELLED
        live = bag.tasks.np_live[first : first + count]
        if live.any():  # pages that nothing has touched stay so
            live[:] = 0
        bag.tasks.mark(first, first + count - 1)
    _drop_attempts(state, fact.bag, fact.runs)
    _forget_checkpoints(bag)
    bag.touched = fact.at
    recount(bag)
    relist_all(state, bag)
    _maybe_end(bag, fact.at)


def _forget_checkpoints(bag: BagState) -> None:
    """Many tasks may have ended: what they saved is of no use any more."""
    for task in [task for task in bag.checkpoints if bag.tasks.state[task] >= FIRST_FINAL]:
        bag.drop_checkpoint(task)


def _uncount(bag: BagState, first: int, count: int) -> None:
    """These tasks are about to be cancelled."""
    for lo, target, hi in parts(bag, first, count):
        tally = _tally(bag, lo, hi)
        bag.counts[:] = [old - n for old, n in zip(bag.counts, tally, strict=True)]
        bag.targets[target].unfinished -= sum(tally[:FIRST_FINAL])
    bag.counts[CANCELLED] += count


def _tally(bag: BagState, lo: int, hi: int) -> list[int]:
    """How many of these tasks are in each state; piece by piece, for NumPy counts in eight bytes a task."""
    states = bag.tasks.np_state
    tally = np.zeros(len(bag.counts), dtype=np.int64)
    for at in range(lo, hi, CHUNK):
        tally += np.bincount(states[at : min(at + CHUNK, hi)], minlength=len(tally))
    counts: list[int] = tally.tolist()
    return counts


def _drop_attempts(state: State, bag: int, runs: f.Runs) -> None:
    attempts = state.attempts
    used = attempts.rows
    tasks = attempts.np_task[:used]
    rows = np.flatnonzero((attempts.np_state[:used] != FREE) & (tasks >> 32 == bag))
    mine = within(tasks[rows] & 0xFFFFFFFF, runs)
    for row in rows[mine].tolist():
        drop_row(state, row)


def within(tasks: NDArray[np.int64], runs: f.Runs) -> NDArray[np.bool_]:
    """Which of these tasks lie in one of the runs."""
    table = np.array(sorted(runs), dtype=np.int64).reshape(-1, 2)
    ends = np.maximum.accumulate(table.sum(axis=1))
    at = np.searchsorted(table[:, 0], tasks, side="right") - 1
    found: NDArray[np.bool_] = (at >= 0) & (tasks < ends[at])
    return found


def drop_row(state: State, row: int) -> None:
    """Its task ended otherwise: tell the pilot to stop it, and wait for its word."""
    attempts = state.attempts
    old = attempts.state[row]
    pilot = state.pilots[attempts.pilot[row]]
    if old == LOST and pilot.state == GONE:
        free_row(state, row)
    elif old in (GRANTED, STARTED, LOST):
        if old == LOST:
            carry(state, row, 1)
        attempts.state[row] = DROPPED
        attempts.dirty[row >> 16] = 1
        pilot.cancelling[attempts.number[row]] = False
        state.orders[pilot.number] = None


def _tasks_retried(state: State, fact: f.TasksRetried) -> None:
    bag = state.bags[fact.bag]
    t = bag.tasks
    if fact.why == "copies":
        _take_back(state, bag, fact.runs)
    for first, count in fact.runs:
        for lo, target, hi in parts(bag, first, count):
            _renew(state, bag, target, lo, hi)
            if bag.data is not None:
                bag.data.columns.np_since[lo:hi] = fact.at
                bag.data.columns.mark(lo, hi - 1)
        t.mark(first, first + count - 1)
    state.version += bag.conscious is not None
    _drop_attempts(state, fact.bag, fact.runs)  # lost ones of the generation before
    bag.touched = fact.at
    _go_on(bag, fact.at)
    recount(bag)
    relist_all(state, bag)


def _take_back(state: State, bag: BagState, runs: f.Runs) -> None:
    """These had succeeded and must run again: who comes after them waits again."""
    done = [t for t in bag.targets if target_done(bag, t)]
    for first, count in runs:
        for lo, target, hi in parts(bag, first, count):
            bag.targets[target].left += hi - lo
        for task in range(first, first + count):
            for after in bag.graph.after(task) if bag.graph is not None else ():
                _wait_again(state, bag, after)
    while undone := [t for t in done if not target_done(bag, t)]:
        done = [t for t in done if t not in undone]
        for index in [index for target in undone for index in target.dependents]:
            bag.targets[index].pending += 1


def _wait_again(state: State, bag: BagState, task: int) -> None:
    assert bag.graph is not None
    bag.graph.pending[task] += 1
    if bag.tasks.state[task] == READY:
        set_task(state, bag, task, WAITING)


def _target_gathered(state: State, fact: f.TargetGathered) -> None:
    bag = state.bags[fact.bag]
    bag.targets[fact.target].held = False
    bag.touched = fact.at
    relist_all(state, bag)


def _batch_released(state: State, fact: f.BatchReleased) -> None:
    bag = state.bags[fact.bag]
    bag.targets[fact.target].released = fact.count
    bag.touched = fact.at
    relist_all(state, bag)


def _renew(state: State, bag: BagState, target: int, lo: int, hi: int) -> None:
    """A new generation for tasks of one target, all of them ended."""
    t = bag.tasks
    tally = _tally(bag, lo, hi)
    bag.counts[:] = [old - n for old, n in zip(bag.counts, tally, strict=True)]
    t.np_state[lo:hi] = READY
    if bag.graph is not None:
        t.np_state[lo:hi][bag.graph.blocked(lo, hi)] = WAITING
    waiting = int(np.count_nonzero(t.np_state[lo:hi]))
    bag.counts[WAITING] += waiting
    bag.counts[READY] += hi - lo - waiting
    bag.targets[target].unfinished += hi - lo
    t.np_generation[lo:hi] += 1
    for column in (t.np_live, t.np_variant, t.np_failures, t.np_deaths, t.np_flags):
        if column[lo:hi].any():
            column[lo:hi] = 0
    class_of(state, bag, target, 0).backlog.put_all(lo, hi)


def _go_on(bag: BagState, at: int) -> None:
    """There is something to do again."""
    bag.ended = 0
    bag.began = bag.began or at


def _maybe_end(bag: BagState, at: int) -> None:
    if bag.unfinished():
        return
    if bag.began:
        bag.worked += max(at - bag.began, 0)
        bag.began = 0
    if not bag.open and not bag.ended:
        bag.ended = at


def _release_dependents(state: State, bag: BagState, done: list[TargetState]) -> None:
    """These targets are done.  One that is empty is done as soon as it may start, so the news may travel far."""
    while done:
        for index in done.pop().dependents:
            after = bag.targets[index]
            after.pending -= 1
            if after.pending:
                continue
            if bag.data is not None:
                bag.data.released[index] = state.now
            if target_done(bag, after):
                done.append(after)
            for (target, _), cls in list(bag.classes.items()):
                if target == index:
                    state.relist(cls)


# --- sites, tokens, pilots ---------------------------------------------------------------------------------------


def _site_added(state: State, fact: f.SiteAdded) -> None:
    site = state.sites.get(fact.name)
    if site is None:
        site = state.sites[fact.name] = SiteState(fact.name, fact.owner, fact.kind, fact.shared, fact.at)
    site.removed = False
    site.kind, site.shared, site.added, site.disk = fact.kind, fact.shared, fact.at, fact.disk
    if fact.limits is not None:
        site.limits = fact.limits
        state.provided.pop(fact.name, None)
        site.fits.clear()
        if fact.limits.shapes or site.open:  # what is queued there must be stopped
            state.provided[fact.name] = None
    for pilot in state.pilots.values():
        if pilot.site == fact.name:
            _reclass(state, pilot)
    state.allowed = fact.at
    means.recount(state)  # other things may count now
    state.version += 1


def _reclass(state: State, pilot: PilotState) -> None:
    """Its site serves others now: so does the pilot."""
    old, new = state.pilot_classes[pilot.cls], pilot_class_of(state, pilot)
    if new is old:
        return
    if old.parked.pop(pilot.number, True) is None:
        new.parked[pilot.number] = None
    _leave_class(state, pilot)
    join_class(state, pilot)
    rows = [row for row in state.attempts.of_pilot(pilot.number).tolist() if state.attempts.state[row] != LOST]
    pilot.held = pilot.load = 0
    pilot.chains.clear()
    for row in rows:
        carry(state, row, 1)
    state.version += 1  # who could not run something may now


def _token_issued(state: State, fact: f.TokenIssued) -> None:
    state.tokens[fact.hash] = TokenState(fact.id, fact.scope, fact.owner, fact.site, -1, fact.expires, fact.at)
    state.token_ids[fact.id] = fact.hash


def _token_revoked(state: State, fact: f.TokenRevoked) -> None:
    state.tokens.pop(state.token_ids.pop(fact.id, b""), None)


def _pilot_enrolled(state: State, fact: f.PilotEnrolled) -> None:
    older = state.pilots.get(state.nonces.get((fact.site, fact.nonce), 0))
    if older is not None and older.state != GONE:
        older.state = SUPERSEDED
    pilot = PilotState(
        number=fact.pilot, nonce=fact.nonce, epoch=fact.epoch, site=fact.site, owner=fact.owner, host=fact.host,
        host_name=fact.host_name, cores=fact.cores, memory=fact.memory, gpus=fact.gpus, disk=fact.disk,
        enrolled=fact.at, ends=fact.ends, token=fact.token, detail=fact.detail, cls=0, heard=fact.at,
        nodes=fact.nodes, whole=fact.whole,
    )
    join_class(state, pilot)
    hosts.settle(state, pilot)
    state.nonces[fact.site, fact.nonce] = fact.pilot
    i.take_pilot(state, fact.pilot)
    state.next_pilot = max(state.next_pilot, fact.pilot + 1)
    token = TokenState(f"pilot-{fact.pilot}", "pilot", fact.owner, fact.site, fact.pilot, fact.expires, fact.at)
    state.tokens[fact.token] = token
    state.token_ids[token.id] = fact.token


def pilot_class_of(state: State, pilot: PilotState) -> PilotClass:
    site = state.sites.get(pilot.site)
    owners = (pilot.owner, *(site.shared if site else ()))
    # Nodes of one kind differ by a few pages.  Rounded up, so that a class turns nothing away that one of its pilots
    # could run; each pilot's own memory and disk are looked at when it asks.
    memory = _rounded_up(pilot.memory)
    disk = _rounded_up(pilot.disk)
    what = (owners, pilot.site, pilot.cores, memory, pilot.gpus, disk, pilot.nodes, pilot.whole)
    number = state.shapes.get(what)
    if number is None:
        number = state.shapes[what] = max(state.pilot_classes, default=0) + 1
        state.pilot_classes[number] = PilotClass(number, *what)
    return state.pilot_classes[number]


def join_class(state: State, pilot: PilotState) -> None:
    pc = pilot_class_of(state, pilot)
    pilot.cls = pc.number
    pc.pilots += 1


def _leave_class(state: State, pilot: PilotState) -> None:
    """One that no pilot is in any more is nothing that anybody need look at."""
    pc = state.pilot_classes[pilot.cls]
    pc.pilots -= 1
    if not pc.pilots:
        del state.pilot_classes[pc.number]
        what = (pc.owners, pc.site, pc.cores, pc.memory, pc.gpus, pc.disk, pc.nodes, pc.whole)
        del state.shapes[what]


def _rounded_up(size: int) -> int:
    grain = 1 << max(size.bit_length() - 5, 0)
    return -(-size // grain) * grain


def _pilot_draining(state: State, fact: f.PilotDraining) -> None:
    state.pilots[fact.pilot].state = DRAINING


def _pilot_ended(state: State, fact: f.PilotEnded) -> None:
    pilot = state.pilots[fact.pilot]
    rows = state.attempts.of_pilot(fact.pilot).tolist()
    means.count(state, rows, -1)
    pilot.state = GONE
    pilot.ended = fact.at
    pilot.why = fact.why
    means.count(state, rows, 1)
    for row in rows:
        means.stir(state, row)
        if state.attempts.state[row] == DROPPED:
            carry(state, row, -1)
            free_row(state, row)


def _pilots_forgotten(state: State, fact: f.PilotsForgotten) -> None:
    for number in fact.pilots:
        pilot = state.pilots.pop(number)
        hosts.leave(state, pilot)
        _leave_class(state, pilot)
        state.tokens.pop(pilot.token, None)
        state.token_ids.pop(f"pilot-{number}", None)
        state.surplus.pop(number, None)
        state.orders.pop(number, None)
        if state.nonces.get((pilot.site, pilot.nonce)) == number:
            del state.nonces[pilot.site, pilot.nonce]
        seen = state.arrivals.get((pilot.site, pilot.host))
        if seen is not None and seen.pilot == number:
            del state.arrivals[pilot.site, pilot.host]


# --- attempts ----------------------------------------------------------------------------------------------------


def _granted(state: State, fact: f.Granted) -> None:
    pilot = state.pilots[fact.pilot]
    pilot.granted = fact.number
    for group in fact.groups:
        bag = state.bags[group.bag]
        cls = class_of(state, bag, group.target, group.over << 7 | group.overruns << 4 | group.boosts)
        _open_rows(state, fact, group, bag, cls)
        _activate(bag, cls, group.tasks)
        bear(state, pilot, bag, cls, group.tasks, 1)
        bag.touched = fact.at
        if cls.ruled:
            bag.note_tail()
        if means.matters(cls):
            means.count(state, means.rows_of(group.attempts), 1)
            relist_all(state, bag)
        else:
            state.relist(cls)
    copies.note_moves(state, fact.moves)
    _note_load(state, pilot)


def _open_rows(state: State, fact: f.Granted, group: f.Group, bag: BagState, cls: TaskClass) -> None:
    attempts = state.attempts
    numbers = group.attempts  # the highest number need not have the last row
    top = numbers[0] & ROW_MASK if len(numbers) == 1 else max([number & ROW_MASK for number in numbers])
    if top >= attempts.rows:
        attempts.grow(top + 1 - attempts.rows)
    if len(group.attempts) > FEW:
        _open_many(state, fact, group, bag, cls)
        return
    generation = bag.tasks.generation
    high = group.bag << 32
    for number, task in zip(group.attempts, group.tasks, strict=True):
        row = number & ROW_MASK
        attempts.number[row] = number
        attempts.task[row] = high | task
        attempts.granted[row] = fact.at
        attempts.started[row] = 0
        attempts.pilot[row] = fact.pilot
        attempts.cls[row] = cls.number
        attempts.grant[row] = fact.number
        attempts.generation[row] = generation[task]
        attempts.state[row] = GRANTED
        attempts.dirty[row >> 16] = 1


def _open_many(state: State, fact: f.Granted, group: f.Group, bag: BagState, cls: TaskClass) -> None:
    attempts = state.attempts
    numbers = np.array(group.attempts, dtype=np.int64)
    tasks = np.array(group.tasks, dtype=np.int64)
    rows = numbers & ROW_MASK
    attempts.np_number[rows] = numbers
    attempts.np_task[rows] = tasks | (group.bag << 32)
    attempts.np_granted[rows] = fact.at
    attempts.np_started[rows] = 0
    attempts.np_pilot[rows] = fact.pilot
    attempts.np_cls[rows] = cls.number
    attempts.np_grant[rows] = fact.number
    attempts.np_generation[rows] = bag.tasks.np_generation[tasks]
    attempts.np_state[rows] = GRANTED
    attempts.mark(int(rows.min()), int(rows.max()))


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
        for task in tasks:
            fresh += t.state[task] == READY
            behind += t.state[task] == WAITING
            t.state[task] = ACTIVE
            t.live[task] += 1
            t.tries[task] = (t.tries[task] + 1) & 0xFFFF
            t.dirty[task >> 16] = 1
    bag.replicas += n - fresh - behind
    bag.counts[READY] -= fresh
    bag.counts[WAITING] -= behind
    bag.counts[ACTIVE] += fresh + behind
    cls.ready -= fresh


def _adopted(state: State, fact: f.Adopted) -> None:
    attempts = state.attempts
    new = state.pilots[fact.pilot]
    for number in fact.attempts:
        row = number & ROW_MASK
        old = state.pilots[attempts.pilot[row]]
        held = attempts.state[row] != LOST
        if held:
            carry(state, row, -1)
        means.count(state, [row], -1)
        attempts.pilot[row] = new.number
        means.count(state, [row], 1)
        attempts.grant[row] = 0  # it was taken in long ago
        attempts.dirty[row >> 16] = 1
        if held:
            carry(state, row, 1)
        old.recalling.pop(number, None)
        if old.cancelling.pop(number, None) is not None:
            new.cancelling[number] = False
            state.orders[new.number] = None


def _keep_chain(state: State, recalling: dict[int, bool], row: int) -> None:
    """A chain that has begun stays where it is, unless its bag is paused."""
    if not state.bags[state.attempts.task[row] >> 32].paused:
        key = chain_key(state, row)
        for number in [n for n in recalling if chain_key(state, n & ROW_MASK) == key]:
            del recalling[number]


def _started(state: State, fact: f.Started) -> None:
    attempts = state.attempts
    recalling = state.pilots[fact.pilot].recalling
    for number in fact.attempts:
        row = number & ROW_MASK
        if recalling.pop(number, None) is not None:  # too late
            _keep_chain(state, recalling, row)
        if attempts.state[row] == LOST:
            _revive(state, row)
            state.pilots[fact.pilot].cancelling.pop(number, None)
        attempts.state[row] = STARTED
        attempts.started[row] = fact.at
        attempts.dirty[row >> 16] = 1
        if state.replicating:  # it may have been the last
            state.version += attempts.task[row] >> 32 in state.replicating


def _revive(state: State, row: int) -> None:
    """A lost attempt turns out to be running."""
    bag, task = split(state.attempts.task[row])
    owner = state.bags[bag]
    t = owner.tasks
    if t.state[task] == READY:
        cls = class_of(state, owner, owner.target_of(task), t.variant[task])
        cls.ready -= 1
        owner.counts[READY] -= 1
        owner.counts[ACTIVE] += 1
        t.state[task] = ACTIVE
        state.relist(cls)
    elif t.state[task] == WAITING:
        set_task(state, owner, task, ACTIVE)
    t.live[task] += 1
    t.dirty[task >> 16] = 1
    carry(state, row, 1)


def split(ref: int) -> tuple[int, int]:
    return ref >> 32, ref & 0xFFFFFFFF


def carry(state: State, row: int, sign: int) -> None:
    """A pilot holds one attempt more, or one less."""
    attempts = state.attempts
    pilot = state.pilots[attempts.pilot[row]]
    cls = state.classes.get(attempts.cls[row])
    if cls is None:
        pilot.held += sign
    else:
        bag, task = split(attempts.task[row])
        bear(state, pilot, state.bags[bag], cls, [task], sign)
    _note_load(state, pilot)


def bear(state: State, pilot: PilotState, bag: BagState, cls: TaskClass, tasks: list[int], sign: int) -> None:
    """A pilot holds attempts of these tasks, or does not any more.  A chain weighs as much as its heaviest part."""
    pc = state.pilot_classes[pilot.cls]
    cost = state.cost(pc, cls)
    pilot.held += sign * len(tasks)
    if not cls.chained:
        pilot.load += sign * len(tasks) * cost
        return
    for task in tasks:
        pilot.load += shift(pilot, (bag.number, chain_of(bag, task)), cls.number, pc.costs, sign)


def _note_load(state: State, pilot: PilotState) -> None:
    """Who holds more than it can run has some to give back; who waits stands in line while it has room."""
    capacity = pilot.cores * 1000
    if pilot.load > capacity:
        state.surplus[pilot.number] = None
    else:
        state.surplus.pop(pilot.number, None)
    if pilot.park is None:
        return
    line = state.pilot_classes[pilot.cls].parked
    if pilot.load >= capacity:
        line.pop(pilot.number, None)
    elif pilot.park.want > 0 and pilot.number not in line:
        line[pilot.number] = None
        state.version += 1


def free_row(state: State, row: int, charged: int = -1) -> None:
    """`charged`: ms of cores; without it the worst case is taken for true."""
    attempts = state.attempts
    means.leave(state, row, charged)
    pilot = state.pilots.get(attempts.pilot[row])
    if pilot is not None:
        pilot.cancelling.pop(attempts.number[row], None)
        pilot.recalling.pop(attempts.number[row], None)
    if state.moving:
        copies.end_moves(state, attempts.number[row])
    attempts.state[row] = FREE
    attempts.dirty[row >> 16] = 1
    attempts.free.append(row)


def _finish_one(attempts: Attempts, t: Tasks, row: int, task: int) -> None:
    attempts.state[row] = FREE
    attempts.dirty[row >> 16] = 1
    attempts.free.append(row)
    t.state[task] = SUCCEEDED
    t.live[task] = 0
    t.dirty[task >> 16] = 1


def _finish_many(attempts: Attempts, t: Tasks, fact: f.Finished) -> None:
    rows = np.array(fact.attempts, dtype=np.int64) & ROW_MASK
    tasks = np.array(fact.tasks, dtype=np.int64)
    attempts.np_state[rows] = FREE
    attempts.mark(int(rows.min()), int(rows.max()))
    attempts.free.extend(rows.tolist())
    t.np_state[tasks] = SUCCEEDED
    t.np_live[tasks] = 0
    t.mark(int(tasks.min()), int(tasks.max()))


def _finished(state: State, fact: f.Finished) -> None:
    bag = state.bags[fact.bag]
    attempts = state.attempts
    n = len(fact.tasks)
    cls = state.classes[attempts.cls[fact.attempts[0] & ROW_MASK]]
    if n == 1:
        _finish_one(attempts, bag.tasks, fact.attempts[0] & ROW_MASK, fact.tasks[0])
    else:
        _finish_many(attempts, bag.tasks, fact)
    bag.counts[ACTIVE] -= n
    bag.counts[SUCCEEDED] += n
    pilot = state.pilots[fact.pilot]
    means.leave_many(state, bag, cls, pilot, fact)
    bear(state, pilot, bag, cls, fact.tasks, -1)
    if pilot.recalling:
        for number in fact.attempts:
            pilot.recalling.pop(number, None)
    _note_load(state, pilot)
    wall = sum(fact.walls) / n
    learn(cls, wall, n)
    hosts.succeeded(state, bag, pilot.row, n, wall, fact.at, cls.mean)
    if bag.checkpoints:
        for task in fact.tasks:
            bag.drop_checkpoint(task)
    if bag.data is not None:
        for place, (attempt, task) in enumerate(zip(fact.attempts, fact.tasks, strict=True)):
            fetched = copies.end_moves(state, attempt)
            copies.note_success(state, bag, task, pilot, fact.left.get(place), fetched)
    bag.touched = fact.at
    _succeeded(state, bag, bag.targets[cls.target], fact.tasks, n)
    _maybe_end(bag, fact.at)


def learn(cls: TaskClass, wall: float, n: int) -> None:
    wall = max(wall, 0.5)
    weight = 1.0 if not cls.done else MEAN_WEIGHT
    cls.mean += weight * (wall - cls.mean)
    cls.done += n


def _succeeded(state: State, bag: BagState, target: TargetState, tasks: list[int], finished: int) -> None:
    target.left -= len(tasks)
    target.unfinished -= finished
    if bag.graph is not None:
        _release_successors(state, bag, bag.graph, tasks)
    if target_done(bag, target):
        _release_dependents(state, bag, [target])


def _release_successors(state: State, bag: BagState, graph: Graph, tasks: list[int]) -> None:
    for task in tasks:
        for after in graph.after(task):
            graph.pending[after] -= 1
            if graph.pending[after] == 0 and bag.tasks.state[after] == WAITING:
                set_task(state, bag, after, READY)


def set_task(state: State, bag: BagState, task: int, new: int) -> None:
    """Move one task to another state and keep every count of it right."""
    t = bag.tasks
    old = t.state[task]
    if old == new:
        return
    bag.counts[old] -= 1
    bag.counts[new] += 1
    t.state[task] = new
    t.dirty[task >> 16] = 1
    if READY in (old, new):
        cls = class_of(state, bag, bag.target_of(task), t.variant[task])
        cls.ready += 1 if new == READY else -1
        if new == READY:
            cls.backlog.put(task)
            if bag.data is not None:
                bag.data.columns.since[task] = state.now
                bag.data.columns.dirty[task >> 16] = 1
        state.relist(cls)
        state.version += cls.conscious  # some may wait for just this one


def _ended(state: State, fact: f.Ended) -> None:
    for end in fact.ends:
        _end(state, fact, end)


def _end(state: State, fact: f.Ended, end: f.End) -> None:
    attempts = state.attempts
    row = end.attempt & ROW_MASK
    old_row = attempts.state[row]
    bag = state.bags[end.bag]
    bag.touched = fact.at
    t = bag.tasks
    current = t.generation[end.task] == end.generation
    if old_row in (GRANTED, STARTED) and current:
        t.live[end.task] -= 1
    if end.outcome == 0 and end.wall and (cls := state.classes.get(attempts.cls[row])) is not None:
        learn(cls, end.wall, 1)
    _note_host(state, bag, fact, end)
    if old_row != LOST:
        carry(state, row, -1)
    fetched = copies.end_moves(state, end.attempt) if state.moving else []
    if current and bag.data is not None and end.verdict == SUCCEEDED != t.state[end.task]:
        copies.note_success(state, bag, end.task, state.pilots[fact.pilot], end.left, fetched)
    if end.stays:
        if old_row == GRANTED and end.outcome == O_LOST:
            recall_lost(state, row)
        attempts.state[row] = LOST
        attempts.dirty[row >> 16] = 1
        t.flags[end.task] |= OUTSTANDING
    else:
        free_row(state, row, end.charged)
    if current:
        _judge(state, bag, end, fact.at)


def _note_host(state: State, bag: BagState, fact: f.Ended, end: f.End) -> None:
    row = state.pilots[fact.pilot].row
    if end.outcome == O_SUCCEEDED:
        hosts.succeeded(state, bag, row, 1, end.wall, fact.at)
    elif end.outcome == O_FAILED and end.why not in BLAMELESS:
        hosts.failed(state, bag, row, fact.at)
    elif end.outcome == O_LOST:
        hosts.lost(state, row, fact.at)


def recall_lost(state: State, row: int) -> None:
    """Given up before it was known to run: whatever answer renews the pilot's lease must also say not to start it."""
    state.pilots[state.attempts.pilot[row]].cancelling[state.attempts.number[row]] = False


def _judge(state: State, bag: BagState, end: f.End, at: int) -> None:
    t, task = bag.tasks, end.task
    old, new = t.state[task], end.verdict
    if new in (READY, WAITING) and bag.graph is not None:  # its prerequisite may have ended in the same report
        new = WAITING if bag.graph.waits(task) else READY
    t.failures[task] = end.failures
    t.deaths[task] = end.deaths
    variant = end.over << 7 | end.overruns << 4 | end.boosts
    if old == READY and variant != t.variant[task]:
        set_task(state, bag, task, ACTIVE)  # leave the old class before joining the new one
        old = ACTIVE
    t.variant[task] = variant
    t.dirty[task >> 16] = 1
    set_task(state, bag, task, new)
    _keep_checkpoint(bag, end)
    target = bag.targets[bag.target_of(task)]
    if new == SUCCEEDED and old != SUCCEEDED:
        _succeeded(state, bag, target, [task], 1 if old < FIRST_FINAL else 0)
        _drop_others(state, bag, end)
    elif new >= FIRST_FINAL and old < FIRST_FINAL:
        target.unfinished -= 1
    _maybe_end(bag, at)


def _keep_checkpoint(bag: BagState, end: f.End) -> None:
    """For the next attempt.  None where there is no next one, or where the files could not be had."""
    if end.verdict >= FIRST_FINAL or end.why == "input":
        bag.drop_checkpoint(end.task)
    elif end.detail is not None and end.detail.saved:
        bag.keep_checkpoint(end.task, end.detail.saved)


def _drop_others(state: State, bag: BagState, end: f.End) -> None:
    t = bag.tasks
    if t.live[end.task] or t.flags[end.task] & OUTSTANDING:
        for row in state.attempts.of_task(end.bag << 32 | end.task):
            if state.attempts.number[row] != end.attempt:
                drop_row(state, row)
        t.live[end.task] = 0
        t.flags[end.task] &= ~OUTSTANDING & 0xFF


def _policy_set(state: State, fact: f.PolicySet) -> None:
    bag = state.bags[fact.bag]
    bag.policy, bag.touched = fact.policy, fact.at
    for cls in bag.classes.values():
        state.ruled += (bool(fact.policy) - cls.ruled) * cls.listed
        cls.ruled = bool(fact.policy)
    bag.note_tail()
    state.version += 1


def _budget_set(state: State, fact: f.BudgetSet) -> None:
    bag = state.bags[fact.bag]
    bag.budget, bag.touched = fact.budget, fact.at
    for cls in bag.classes.values():
        cls.budgeted = fact.budget > 0
    means.recount(state)
    relist_all(state, bag)
    state.version += 1


def _allowance_set(state: State, fact: f.AllowanceSet) -> None:
    state.allowances.pop(fact.owner, None)
    if fact.allowance >= 0:
        state.allowances[fact.owner] = fact.allowance
    for cls in state.classes.values():
        cls.stinted = means.allowance(state, state.bags[cls.bag].owner) >= 0
    state.allowed = fact.at
    means.recount(state)
    state.version += 1


def _link_known(state: State, fact: f.LinkKnown) -> None:
    state.links[fact.a, fact.b] = (fact.latency, fact.rate)
    state.version += state.conscious > 0


def _copies_lost(state: State, fact: f.CopiesLost) -> None:
    number = state.places[fact.place]
    for bag, runs in fact.lost:
        data = state.bags[bag].data
        assert data is not None
        for first, count in runs:
            for task in range(first, first + count):
                data.drop(task, number)
    state.version += state.conscious > 0


_HANDLERS: dict[type, Callable[[State, Any], None]] = {
    f.BagSubmitted: _bag_submitted,
    f.TasksAppended: _tasks_appended,
    f.BagClosed: _bag_closed,
    f.BagPaused: _bag_paused,
    f.BagRemoved: _bag_removed,
    f.TasksCancelled: _tasks_cancelled,
    f.TasksRetried: _tasks_retried,
    f.TargetGathered: _target_gathered,
    f.BatchReleased: _batch_released,
    f.SiteAdded: _site_added,
    f.TokenIssued: _token_issued,
    f.TokenRevoked: _token_revoked,
    f.PilotEnrolled: _pilot_enrolled,
    f.PilotDraining: _pilot_draining,
    f.PilotEnded: _pilot_ended,
    f.PilotsForgotten: _pilots_forgotten,
    f.Granted: _granted,
    f.Adopted: _adopted,
    f.Started: _started,
    f.Finished: _finished,
    f.Ended: _ended,
    f.SiteTended: i.site_tended,
    f.SiteDrained: i.site_drained,
    f.SiteRemoved: i.site_removed,
    f.IntentsMade: i.intents_made,
    f.IntentsAccepted: i.intents_accepted,
    f.IntentsRunning: i.intents_running,
    f.IntentsStopping: i.intents_stopping,
    f.IntentsEnded: i.intents_ended,
    f.IntentsLeaving: i.intents_leaving,
    f.SiteJudged: watchdog.site_judged,
    f.SiteNoted: watchdog.site_noted,
    f.HostJudged: hosts.host_judged,
    f.LinkKnown: _link_known,
    f.CopiesLost: _copies_lost,
    f.BudgetSet: _budget_set,
    f.PolicySet: _policy_set,
    f.AllowanceSet: _allowance_set,
}
