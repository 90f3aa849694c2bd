"""Feeding: when work appears, who among the waiting gets it; when none is left, who gives some back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

import numpy as np

from windfall.core.decide.exchange.exchange import answer_parked, nudge
from windfall.core.decide.grant import per_host
from windfall.core.decide.grant.grant import fits, grant
from windfall.core.decide.hosts import quarantine
from windfall.core.decide.replicas.candidates import any_late, hosts_running_all_late
from windfall.core.decide.replicas.tail import reliable_hosts_first
from windfall.core.messages.lifecycle import GRANTED, LIVE, LOST
from windfall.core.state.capacity import must_go_elsewhere
from windfall.core.state.chains import chain_key
from windfall.core.state.world import PilotClass, PilotState, State, TaskClass
from windfall.core.turn import Turn

MOST_IN_VAIN = 64  # pilots of a class that are looked at, where expressions depend on the moment, or for replicas
MOST_THERE = 8  # of them on one host, where they have not the same time left
MOST_RICH = 64  # pilots that are asked one by one to give something back


def feed_parked(turn: Turn) -> None:
    """Work has come: hand it to those who wait, first come first served within their class; in a bag's tail the better
    hosts first (`tails.py`)."""
    waiting = _waiting(turn.state)
    if waiting and _any_tail(turn.state):
        _feed_best(turn, waiting)
        return
    for pc in waiting:
        _feed_class(turn, pc, list(pc.waiting))


def feed_late(turn: Turn) -> None:
    """What is ready is as it was, and nobody who waits may have it.  But something that runs may be late now."""
    if (waiting := _waiting(turn.state)) and any_late(turn):
        _feed_best(turn, waiting, only_late=True)


def _waiting(state: State) -> list[PilotClass]:
    return [pc for pc in state.pilot_classes.values() if pc.waiting and pc.no_match_at_version != state.version]


def _any_tail(state: State) -> bool:
    return any(state.bags[number].in_tail for number in state.replicating)


def feed_hosts(turn: Turn) -> None:
    """Where one pilot holds less of a bag that allows few on a host, another one there may have some."""
    state = turn.state
    rows, state.hosts_below_per_host = state.hosts_below_per_host, {}
    for row in rows:
        in_vain: dict[tuple[int, ...], int] = {}  # what one is not given there others like it are not, either
        for number in list(state.on_host.get(row, ())):
            pilot = state.pilots[number]
            pc = state.pilot_classes[pilot.cls]
            if number not in pc.waiting or pilot.waiting_request is None:
                continue
            left = pilot.waiting_request.time_left(turn.now)
            like = (pc.number, pilot.load, pilot.memory, pilot.disk) if left is None else (pc.number,)
            if in_vain.get(like, 0) >= (MOST_THERE if left is not None else 1):
                continue
            if grant(turn, pilot, pilot.waiting_request.want, left, ahead=False):
                answer_parked(turn, pilot)
            else:
                in_vain[like] = in_vain.get(like, 0) + 1


def _feed_best(turn: Turn, waiting: list[PilotClass], only_late: bool = False) -> None:
    state = turn.state
    if not _anything(turn, only_late):
        return
    in_vain = dict.fromkeys((pc.number for pc in waiting), 0)
    only_late = only_late or not (state.ready or state.overdue)
    busy = hosts_running_all_late(turn) if only_late else {}
    for number in reliable_hosts_first(state, waiting):
        pilot = state.pilots[number]
        pc = state.pilot_classes[pilot.cls]
        if in_vain[pc.number] >= MOST_IN_VAIN or pc.no_match_at_version == state.version or number not in pc.waiting:
            continue
        if pilot.row not in busy and not turn.grants.orders.in_vain(turn.state, turn.now, pilot):
            in_vain[pc.number] += _feed_class(turn, pc, [number], only_late)
            if not only_late and in_vain[pc.number] >= MOST_IN_VAIN:
                turn.grants.some_waiting_unasked = True
            if not _anything(turn, only_late):
                return


def _anything(turn: Turn, only_late: bool) -> bool:
    """Is there something that anybody might be given?"""
    return (not only_late and bool(turn.state.ready or turn.state.overdue)) or any_late(turn)


def _feed_class(turn: Turn, pc: PilotClass, numbers: list[int], only_late: bool = False) -> int:
    """Those of one class, in this order; how many were looked at in vain, each of them a matter of its own."""
    # While several wait nobody gets more than it can run: a prefetch would starve the next in line.
    ahead = len(pc.waiting) == 1
    in_vain = 0
    for number in numbers:
        if not turn.state.ready and not turn.state.replicating and not turn.state.overdue:
            break
        pilot = turn.state.pilots[number]
        if turn.grants.orders.in_vain(turn.state, turn.now, pilot):
            continue
        park = pilot.waiting_request
        if park is not None and grant(turn, pilot, park.want, park.time_left(turn.now), ahead):
            answer_parked(turn, pilot)
        elif pc.no_match_at_version == turn.state.version:
            break
        elif only_late or not turn.state.ready or (turn.state.ready_with_expressions and not turn.grants.orders.steady):
            in_vain += 1
            pc.waiting[number] = pc.waiting.pop(number)  # to the end of the line: the next time others are asked
            if in_vain >= MOST_IN_VAIN:
                turn.grants.some_waiting_unasked |= not only_late
                break
    return in_vain


def recall_for(turn: Turn, pilot: PilotState) -> None:
    """Nothing is ready, a pilot has slots free: ask those who hold more than they can run to give some back."""
    state = turn.state
    if (
        not state.overloaded_pilots
        or pilot.state != LIVE
        or pilot.load >= pilot.cores * 1000
        or pilot.row in state.quarantined
    ):
        return
    first = list(islice(state.overloaded_pilots, MOST_RICH))
    for number in first if len(state.overloaded_pilots) <= MOST_RICH else chain(first, _holders(turn, pilot)):
        rich = state.pilots[number]
        if rich is not pilot and rich.state == LIVE and not rich.recalling and _recall(turn, rich, pilot):
            return


def _holders(turn: Turn, poor: PilotState) -> Iterator[int]:
    """Of the many who hold more than they can run, those with something that the poor one could: one look for all."""
    state, attempts = turn.state, turn.state.attempts
    pc = state.pilot_classes[poor.cls]
    rows = np.flatnonzero(attempts.np_state[: attempts.rows] == GRANTED)
    classes = attempts.np_cls[rows]
    able = [number for number in np.flatnonzero(np.bincount(classes)).tolist()
            if state.cost_on(pc, state.classes[number]) and _could_take(turn, poor, state.classes[number])]
    holders = np.bincount(attempts.np_pilot[rows[np.isin(classes, able)]])
    yield from [number for number in state.overloaded_pilots if number < len(holders) and holders[number]]


def take_back(turn: Turn, row: int) -> None:
    """Whatever the pilots of a host hold and have not started."""
    attempts = turn.state.attempts
    pilots = [turn.state.pilots[number] for number in turn.state.on_host.get(row, ())]
    for pilot in [pilot for pilot in pilots if pilot.state == LIVE]:
        for rows in _chains(turn, pilot):
            if all(attempts.state[each] == GRANTED for each in rows):
                pilot.recalling.update((attempts.number[each], False) for each in rows)
        if pilot.recalling:
            nudge(turn, pilot)


def _chains(turn: Turn, pilot: PilotState) -> Iterable[list[int]]:
    """Rows of what a pilot holds, newest first; those of one batch together."""
    attempts = turn.state.attempts
    chains: dict[tuple[int, int], list[int]] = {}
    for row in attempts.of_pilot(pilot.number).tolist()[::-1]:
        if attempts.state[row] == LOST:
            continue
        chains.setdefault(chain_key(turn.state, row), []).append(row)
    return chains.values()


def _recall(turn: Turn, rich: PilotState, poor: PilotState) -> bool:
    """Ask for half of the surplus, newest first, of classes that the poor one can run.

    A batch comes back whole or not at all: whoever asked for batches wants its tasks together, and one that has begun
    takes a slot that it would take with fewer tasks, too.
    """
    state = turn.state
    attempts, pc = state.attempts, state.pilot_classes[poor.cls]
    spare = rich.load - rich.cores * 1000
    for rows in _chains(turn, rich):
        cls = state.classes[attempts.cls[rows[0]]]
        if any(attempts.state[row] != GRANTED for row in rows) or not state.cost_on(pc, cls):
            continue
        if not _could_take(turn, poor, cls):
            continue
        if spare <= 0:
            break
        rich.recalling.update((attempts.number[row], False) for row in rows)
        spare -= 2 * state.cost_on(state.pilot_classes[rich.cls], cls)
    if rich.recalling:
        nudge(turn, rich)
    return bool(rich.recalling)


def _could_take(turn: Turn, pilot: PilotState, cls: TaskClass) -> bool:
    """Would it be given what another gives back?  Or that would go there and back as long as both live."""
    state = turn.state
    left = (
        pilot.waiting_request.time_left(turn.now)
        if pilot.waiting_request is not None
        else pilot.ends - turn.now
        if pilot.ends
        else None
    )
    if not fits(pilot, cls, left) or not turn.grants.orders.admits(turn.state, turn.now, pilot, cls):
        return False
    if must_go_elsewhere(state, pilot.site, cls) or quarantine.refuses_guest(state, turn.now, pilot, cls):
        return False
    return not cls.has_per_host or per_host.left(turn, pilot, cls, [], per_host.Held(state, pilot.row)) > 0
