"""Rows of attempts and the load they put on their pilots.  Nothing is decided here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import DROPPED, FREE, GONE, GRANTED, LOST, STARTED
from windfall.core.state import accounts, copies
from windfall.core.state.chains import chain_of, shift
from windfall.core.state.world import BagState, PilotState, State, TaskClass

OUTSTANDING = 1  # flag of a task: an attempt was lost and may still report


def drop_attempts(state: State, bag: int, runs: f.Runs) -> None:
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
            attempts.recover(row)
            carry(state, row, 1)
            accounts.crowd(state, row, 1)
        attempts.state[row] = DROPPED
        attempts.dirty[row >> 16] = 1
        pilot.cancelling[attempts.number[row]] = False
        state.orders[pilot.number] = None


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
    note_load(state, pilot)


def bear(state: State, pilot: PilotState, bag: BagState, cls: TaskClass, tasks: list[int], sign: int) -> None:
    """A pilot holds attempts of these tasks, or does not any more.  A chain weighs as much as its heaviest part."""
    pc = state.pilot_classes[pilot.cls]
    cost = state.cost(pc, cls)
    pilot.held += sign * len(tasks)
    more = sign * len(tasks) * cost
    if cls.chained:
        more = 0
        for task in tasks:
            more += shift(pilot, (bag.number, chain_of(bag, task)), cls.number, pc.costs, sign)
    pilot.load += more
    if cls.capped and len(state.on_host.get(pilot.row, ())) > 1:
        state.roomier[pilot.row] = None
    if len(pc.owners) > 1:
        use = state.sites[pilot.site].use
        use[bag.owner] = use.get(bag.owner, 0) + more


def note_load(state: State, pilot: PilotState) -> None:
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
        line[pilot.number] = pilot.row
        state.version += 1


def free_row(state: State, row: int, charged: int = -1) -> None:
    """`charged`: ms of cores; without it the worst case is taken for true."""
    attempts = state.attempts
    accounts.leave(state, row, charged)
    pilot = state.pilots.get(attempts.pilot[row])
    if pilot is not None:
        pilot.cancelling.pop(attempts.number[row], None)
        pilot.recalling.pop(attempts.number[row], None)
    if state.moving:
        copies.end_moves(state, attempts.number[row])
    if attempts.state[row] == LOST:
        attempts.recover(row)
    if attempts.indexed:
        attempts.leave(attempts.task[row] >> 32, [row])
    attempts.state[row] = FREE
    attempts.dirty[row >> 16] = 1
    attempts.free.append(row)


def recall_lost(state: State, row: int) -> None:
    """Given up before it was known to run: whatever answer renews the pilot's lease must also say not to start it."""
    state.pilots[state.attempts.pilot[row]].cancelling[state.attempts.number[row]] = False
