"""Rows of attempts: their load on their pilots, and how attempts are dropped or freed.  Nothing is decided here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import DROPPED, FREE, GONE, GRANTED, LOST, STARTED
from windfall.core.state import accounts, copies
from windfall.core.state.chains import chain_of, shift_load
from windfall.core.state.moves import ATTEMPTS
from windfall.core.state.world import PilotState, State, TaskClass

OUTSTANDING = 1  # flag of a task: an attempt was lost and may still report
OUTDATED = 2  # flag of a task: its result stays, and a later change of the specification concerns it


def drop_attempts(state: State, bag: int, runs: f.Runs) -> None:
    attempts = state.attempts
    rows = attempts.of_bag(bag)
    mine = within(attempts.tasks_of(rows), runs)
    for row in rows[mine].tolist():
        drop_row(state, row)


def within(tasks: NDArray[np.int64], runs: f.Runs) -> NDArray[np.bool_]:
    """Return a mask of the tasks that lie in one of the runs."""
    table = np.array(sorted(runs), dtype=np.int64).reshape(-1, 2)
    ends = np.maximum.accumulate(table.sum(axis=1))
    at = np.searchsorted(table[:, 0], tasks, side="right") - 1
    found: NDArray[np.bool_] = (at >= 0) & (tasks < ends[at])
    return found


def drop_row(state: State, row: int) -> None:
    """Drop an attempt whose task has ended otherwise: tell its pilot to stop it, and wait for the pilot's word."""
    attempts = state.attempts
    old = attempts.state[row]
    pilot = state.pilots[attempts.pilot[row]]
    if old == LOST and pilot.state == GONE:
        free_row(state, row)
    elif old in (GRANTED, STARTED, LOST):
        if old == LOST:
            attempts.recover(row)
            add_row_load(state, row, 1)
            accounts.count_in_group(state, row, 1)
        ATTEMPTS.check(old, DROPPED, attempts.number[row])
        attempts.state[row] = DROPPED
        attempts.touch(row)
        pilot.cancelling[attempts.number[row]] = False
        state.pilots_with_news[pilot.number] = None


def add_row_load(state: State, row: int, sign: int) -> None:
    """Add an attempt to its pilot's load, or take it away."""
    attempts = state.attempts
    pilot = state.pilots[attempts.pilot[row]]
    cls = state.classes.get(attempts.cls[row])
    if cls is None:
        pilot.attempts_held += sign
    else:
        add_load(state, pilot, cls, [attempts.task_of(row)], sign)
    update_line(state, pilot)


def add_load(state: State, pilot: PilotState, cls: TaskClass, tasks: list[int], sign: int) -> None:
    """Add attempts of tasks to a pilot's load, or take them away.  A chain weighs as much as its heaviest part."""
    pc = state.pilot_classes[pilot.cls]
    number = sign * len(tasks)
    pilot.attempts_held += number
    more = number * state.cost_on(pc, cls)
    if cls.in_chain:
        more, bag = 0, state.bags[cls.bag]
        for task in tasks:
            more += shift_load(pilot, (cls.bag, chain_of(bag, task)), cls.number, pc.milli_cores, sign)
    pilot.load += more
    if cls.has_per_host and len(state.on_host.get(pilot.row, ())) > 1:
        state.hosts_below_per_host[pilot.row] = None
    if len(pc.owners) > 1:
        use = state.sites[pilot.site].cores_in_use
        owner = state.bags[cls.bag].owner
        use[owner] = use.get(owner, 0) + more


def update_line(state: State, pilot: PilotState) -> None:
    """Update the lists that a pilot stands on: an overloaded pilot may be asked to return tasks; a waiting pilot
    stays in the queue of its class while it has a free slot."""
    capacity = pilot.cores * 1000
    if pilot.load > capacity:
        state.overloaded_pilots[pilot.number] = None
    else:
        state.overloaded_pilots.pop(pilot.number, None)
    if pilot.waiting_request is None:
        return
    line = state.pilot_classes[pilot.cls].waiting
    if pilot.load >= capacity:
        line.pop(pilot.number, None)
    elif pilot.waiting_request.want > 0 and pilot.number not in line:
        line[pilot.number] = pilot.row
        state.version += 1


def free_row(state: State, row: int, charged: int = -1) -> None:
    """Free the row of an attempt that is over.  `charged`: ms of cores that it used; without it, its worst case."""
    attempts = state.attempts
    ATTEMPTS.check(attempts.state[row], FREE, attempts.number[row])
    accounts.settle_attempt(state, row, charged)
    pilot = state.pilots.get(attempts.pilot[row])
    if pilot is not None:
        pilot.cancelling.pop(attempts.number[row], None)
        pilot.recalling.pop(attempts.number[row], None)
    if state.transfers_of:
        copies.end_transfers(state, attempts.number[row])
    if attempts.state[row] == LOST:
        attempts.recover(row)
    if attempts.indexed:
        attempts.drop_rows(attempts.bag_of(row), [row])
    attempts.state[row] = FREE
    attempts.touch(row)
    attempts.free.append(row)


def cancel_on_return(state: State, row: int) -> None:
    """Cancel an attempt given up before it was known to run: the reply that renews its pilot's lease must say so."""
    state.pilots[state.attempts.pilot[row]].cancelling[state.attempts.number[row]] = False
