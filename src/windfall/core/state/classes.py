"""The parts of a bag and their counts: targets, classes of tasks, runs of rows, the states of tasks.

Order among classes: bags come by priority, then in the order of their submission.  Within a bag `fcfs` takes targets
and tasks in the order they were given; `sjf` takes the class with the shortest expected duration, and within it the
cheapest task.  `data-conscious` keeps the order of `fcfs` and chooses among the first by where data lies
(`decide/grant/nearest_data.py`).

The modules that fold facts into the state share these functions; nothing is decided here.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import ACTIVE, READY, WAITING
from windfall.core.state import accounts
from windfall.core.state.backlog import Backlog
from windfall.core.state.chains import is_chained, link_stages
from windfall.core.state.columns import CHUNK, CHUNK_BITS
from windfall.core.state.moves import TASKS
from windfall.core.state.world import AGED_FIRST, BagState, State, TargetState, TaskClass

SAVING = 1_000  # ms that a task with checkpoint files needs beyond its grace, to be worth starting


def add_targets(state: State, bag: BagState, shapes: list[f.TargetShape]) -> None:
    first = 0
    for index, shape in enumerate(shapes):
        counts = (shape.count, len(shape.after), shape.count, shape.count)
        since = bag.submitted if shape.batch > 1 else 0
        bag.targets.append(TargetState(index, shape, *counts, inputs_pending=shape.gathers, filling_since=since))
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
    release_dependents(state, bag, [target for target in bag.targets if target_done(bag, target)])


def target_done(bag: BagState, target: TargetState) -> bool:
    """Have all tasks of a target succeeded?  An empty target is done once its bag is closed and it could start."""
    return target.not_succeeded == 0 and target.pending == 0 and (target.count > 0 or not bag.open)


def class_of(state: State, bag: BagState, target: int, variant: int) -> TaskClass:
    """Return the class of a target's tasks of a variant; make it when it is first needed."""
    cls = bag.classes.get((target, variant))
    if cls is None:
        cls = new_class(state, bag, target, variant, state.next_class)
    return cls


def class_key(select: str, bag: int, target: int, variant: int, shape: f.TargetShape) -> tuple[int, ...]:
    """Return the sort key of a class: lower is offered first."""
    if select == "sjf":
        time_retries, _, _ = f.unpack_variant(variant)
        return (-shape.priority, bag, (shape.expect or shape.limit) * f.time_factor(time_retries), target, variant)
    return (-shape.priority, bag, target, variant, 0)


def new_class(state: State, bag: BagState, target: int, variant: int, number: int) -> TaskClass:
    shape = bag.targets[target].shape
    time_retries, memory_retries, fails_over = f.unpack_variant(variant)
    limit = shape.limit * f.time_factor(time_retries)
    costs = np.frombuffer(shape.costs, dtype="<f4") if shape.costs and bag.select == "sjf" else None
    base = bag.classes.get((target, 0))
    key = class_key(bag.select, bag.number, target, variant, shape)
    state.next_class = max(state.next_class, number + 1)
    cls = bag.classes[target, variant] = state.classes[number] = TaskClass(
        number=number,
        bag=bag.number,
        target=target,
        time_retries=time_retries,
        memory_retries=memory_retries,
        cores=shape.cores,
        memory=shape.memory << memory_retries,
        gpus=shape.gpus,
        disk=shape.disk,
        whole=shape.whole,
        limit=limit,
        least_time_left=shape.grace + SAVING if shape.checkpoint else limit,
        order_key=(AGED_FIRST, *key[1:]) if bag.aged_since else key,
        message_bytes=shape.message_bytes,
        backlog=Backlog(bag.tasks, variant, costs, base.backlog.runs if base else None),
        batch=shape.batch,
        in_chain=is_chained(bag.targets[target]),
        by_data=bag.data_selection is not None,
        at_once=shape.at_once,
        concurrency_group=shape.concurrency_group,
        nodes=shape.nodes,
        has_expressions=bag.has_expressions,
        has_per_host="per-host" in bag.policy and not is_chained(bag.targets[target]),
        worst_case=limit + shape.grace if limit else 0,
        to_fail_over_site=fails_over,
    )
    cls.note_accounts(bag.budget > 0, accounts.allowance(state, bag.owner) >= 0)
    return cls


def forget_class(state: State, cls: TaskClass) -> None:
    """Take a class off all lists."""
    state.relist(cls)
    state.classes.pop(cls.number, None)
    for pc in state.pilot_classes.values():
        pc.milli_cores.pop(cls.number, None)
    for name in state.provisioned_sites:
        state.sites[name].best_shapes.pop(cls.number, None)


def reshape(state: State, bag: BagState, shapes: list[f.TargetShape]) -> None:
    """Give the targets of a bag without ready tasks other shapes, and make its classes afresh, under their numbers."""
    for place, shape in enumerate(shapes):
        bag.targets[place].shape = shape
    old, bag.classes = bag.classes, {}
    for (target, variant), cls in old.items():
        forget_class(state, cls)
        fresh = new_class(state, bag, target, variant, cls.number)
        fresh.message_bytes = max(fresh.message_bytes, cls.message_bytes)
        fresh.mean, fresh.successes = cls.mean, cls.successes
    for first, target, end in spans(bag):
        bag.classes[target, 0].backlog.add_run(first, end - first)


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


def split_by_target(bag: BagState, first: int, count: int) -> Iterator[tuple[int, int, int]]:
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
    """Return a number that tells one request from another under the same idempotency key."""
    return zlib.crc32(body)


def part_body(sources: list[bytes], edges: bytes) -> bytes:
    """Join all of a part, for its digest."""
    return b"".join([*sources, edges])


def tally_of(bag: BagState, lo: int, hi: int) -> list[int]:
    """Count tasks by state; piece by piece, because NumPy counts in eight bytes a task."""
    states = bag.tasks.np_state
    tally = np.zeros(len(bag.counts), dtype=np.int64)
    for at in range(lo, hi, CHUNK):
        tally += np.bincount(states[at : min(at + CHUNK, hi)], minlength=len(tally))
    counts: list[int] = tally.tolist()
    return counts


def new_generation(state: State, bag: BagState, target: int, lo: int, hi: int) -> None:
    """Begin a new generation of tasks of one target, all of which have ended: a retry by the user.

    Their failures, longer limits and fail-over site are forgotten."""
    t = bag.tasks
    tally = tally_of(bag, lo, hi)
    TASKS.check_tally(tally, READY, lo)
    bag.counts[:] = [old - n for old, n in zip(bag.counts, tally, strict=True)]
    t.np_state[lo:hi] = READY
    if bag.graph is not None:
        t.np_state[lo:hi][bag.graph.blocked(lo, hi)] = WAITING
    waiting = int(np.count_nonzero(t.np_state[lo:hi]))
    if waiting:
        TASKS.check_tally(tally, WAITING, lo)
    bag.counts[WAITING] += waiting
    bag.counts[READY] += hi - lo - waiting
    bag.targets[target].not_ended += hi - lo
    t.np_generation[lo:hi] += 1
    for column in (t.np_live, t.np_variant, t.np_failures, t.np_deaths, t.np_flags):
        if column[lo:hi].any():
            column[lo:hi] = 0
    class_of(state, bag, target, 0).backlog.put_all(lo, hi)


def resume_bag(state: State, bag: BagState, at: int) -> None:
    """Note that a bag has tasks to do again."""
    bag.ended = 0
    state.unended[bag.number] = None
    if not bag.busy_since:
        bag.last_granted = at
    bag.busy_since = bag.busy_since or at


def note_replica_news(state: State, bag: BagState) -> None:
    """Note that more of a bag's tasks may have a replica now: pilots that wait for one are asked again."""
    if bag.number in state.replicating:
        bag.replica_version += 1
        state.version += 1


def end_if_over(state: State, bag: BagState, at: int) -> None:
    """End a closed bag once all of its tasks have ended."""
    if bag.counts[ACTIVE] or bag.not_ended():  # mostly something runs
        return
    if bag.busy_since:
        bag.busy_ms += max(at - bag.busy_since, 0)
        bag.busy_since = 0
    if not bag.open and not bag.ended:
        bag.ended, bag.programs = at, {}
        state.unended.pop(bag.number, None)
        state.replicating.pop(bag.number, None)


def release_dependents(state: State, bag: BagState, done: list[TargetState]) -> None:
    """Let targets start that waited only for targets now done.  An empty target is done as soon as it may start, and
    releases its own dependents in turn."""
    while done:
        for index in done.pop().dependents:
            after = bag.targets[index]
            after.pending -= 1
            if after.pending:
                continue
            bag.last_granted = state.now
            if bag.data is not None:
                bag.data.released[index] = state.now
            if target_done(bag, after):
                done.append(after)
            for (target, _), cls in list(bag.classes.items()):
                if target == index:
                    state.relist(cls)


def set_task(state: State, bag: BagState, task: int, new: int) -> None:
    """Move one task to another state and keep every count of it right."""
    t = bag.tasks
    old = t.state[task]
    if old == new:
        return
    TASKS.check(old, new, task)
    bag.counts[old] -= 1
    bag.counts[new] += 1
    t.state[task] = new
    t.dirty[task >> CHUNK_BITS] = 1
    if READY in (old, new):
        if new == READY and bag.counts[READY] == 1:
            bag.last_granted = state.now
        cls = class_of(state, bag, bag.target_of(task), t.variant[task])
        cls.ready += 1 if new == READY else -1
        if new == READY:
            cls.backlog.put(task)
            if bag.data is not None:
                bag.data.columns.since[task] = state.now
                bag.data.columns.dirty[task >> CHUNK_BITS] = 1
        state.relist(cls)
        state.version += cls.by_data  # some may wait for just this one
