"""Feeding: when work appears, who among the waiting gets it; when none is left, who gives some back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from windfall.core.decide.exchange.exchange import answer_parked, nudge
from windfall.core.decide.grant import per_host
from windfall.core.decide.grant.grant import fits, grant
from windfall.core.decide.hosts import quarantine
from windfall.core.decide.replicas.candidates import any_late, busy_with_all
from windfall.core.decide.replicas.tail import best_first
from windfall.core.messages.lifecycle import GRANTED, LIVE, LOST
from windfall.core.state.capacity import elsewhere
from windfall.core.state.chains import chain_key
from windfall.core.state.world import PilotClass, PilotState, State, TaskClass

if TYPE_CHECKING:
    from windfall.core.step import Core

MOST_IN_VAIN = 64  # pilots of a class that are looked at, where expressions depend on the moment, or for replicas
MOST_THERE = 8  # of them on one host, where they have not the same time left
MOST_RICH = 64  # pilots that are asked one by one to give something back


def feed_parked(core: Core) -> None:
    """Work has come: hand it to those who wait, first come first served within their class; in a bag's tail the better
    hosts first (`tails.py`)."""
    waiting = _waiting(core.state)
    if waiting and _any_tail(core.state):
        _feed_best(core, waiting)
        return
    for pc in waiting:
        _feed_class(core, pc, list(pc.parked))


def feed_late(core: Core) -> None:
    """What is ready is as it was, and nobody who waits may have it.  But something that runs may be late now."""
    if (waiting := _waiting(core.state)) and any_late(core):
        _feed_best(core, waiting, only_late=True)


def _waiting(state: State) -> list[PilotClass]:
    return [pc for pc in state.pilot_classes.values() if pc.parked and pc.barren != state.version]


def _any_tail(state: State) -> bool:
    return any(state.bags[number].in_tail for number in state.replicating)


def feed_hosts(core: Core) -> None:
    """Where one pilot holds less of a bag that allows few on a host, another one there may have some."""
    state = core.state
    rows, state.roomier = state.roomier, {}
    for row in rows:
        in_vain: dict[tuple[int, ...], int] = {}  # what one is not given there others like it are not, either
        for number in list(state.on_host.get(row, ())):
            pilot = state.pilots[number]
            pc = state.pilot_classes[pilot.cls]
            if number not in pc.parked or pilot.park is None:
                continue
            left = pilot.park.left(core.now)
            like = (pc.number, pilot.load, pilot.memory, pilot.disk) if left is None else (pc.number,)
            if in_vain.get(like, 0) >= (MOST_THERE if left is not None else 1):
                continue
            if grant(core, pilot, pilot.park.want, left, ahead=False):
                answer_parked(core, pilot)
            else:
                in_vain[like] = in_vain.get(like, 0) + 1


def _feed_best(core: Core, waiting: list[PilotClass], only_late: bool = False) -> None:
    state = core.state
    if not _anything(core, only_late):
        return
    in_vain = dict.fromkeys((pc.number for pc in waiting), 0)
    only_late = only_late or not (state.ready or state.overdue)
    busy = busy_with_all(core) if only_late else {}
    for number in best_first(state, waiting):
        pilot = state.pilots[number]
        pc = state.pilot_classes[pilot.cls]
        if in_vain[pc.number] >= MOST_IN_VAIN or pc.barren == state.version or number not in pc.parked:
            continue
        if pilot.row not in busy and not core.match.in_vain(core, pilot):
            in_vain[pc.number] += _feed_class(core, pc, [number], only_late)
            core.cut = core.cut or (not only_late and in_vain[pc.number] >= MOST_IN_VAIN)
            if not _anything(core, only_late):
                return


def _anything(core: Core, only_late: bool) -> bool:
    """Is there something that anybody might be given?"""
    return (not only_late and bool(core.state.ready or core.state.overdue)) or any_late(core)


def _feed_class(core: Core, pc: PilotClass, numbers: list[int], only_late: bool = False) -> int:
    """Those of one class, in this order; how many were looked at in vain, each of them a matter of its own."""
    # While several wait nobody gets more than it can run: a prefetch would starve the next in line.
    ahead = len(pc.parked) == 1
    in_vain = 0
    for number in numbers:
        if not core.state.ready and not core.state.replicating and not core.state.overdue:
            break
        pilot = core.state.pilots[number]
        if core.match.in_vain(core, pilot):
            continue
        park = pilot.park
        if park is not None and grant(core, pilot, park.want, park.left(core.now), ahead):
            answer_parked(core, pilot)
        elif pc.barren == core.state.version:
            break
        elif only_late or not core.state.ready or (core.state.ruled and not core.match.steady):
            in_vain += 1
            pc.parked[number] = pc.parked.pop(number)  # to the end of the line: the next time others are asked
            if in_vain >= MOST_IN_VAIN:
                core.cut = core.cut or not only_late
                break
    return in_vain


def recall_for(core: Core, pilot: PilotState) -> None:
    """Nothing is ready, a pilot has slots free: ask those who hold more than they can run to give some back."""
    state = core.state
    if not state.surplus or pilot.state != LIVE or pilot.load >= pilot.cores * 1000 or pilot.row in state.barred:
        return
    first = list(islice(state.surplus, MOST_RICH))
    for number in first if len(state.surplus) <= MOST_RICH else chain(first, _holders(core, pilot)):
        rich = state.pilots[number]
        if rich is not pilot and rich.state == LIVE and not rich.recalling and _recall(core, rich, pilot):
            return


def _holders(core: Core, poor: PilotState) -> Iterator[int]:
    """Of the many who hold more than they can run, those with something that the poor one could: one look for all."""
    state, attempts = core.state, core.state.attempts
    pc = state.pilot_classes[poor.cls]
    rows = np.flatnonzero(attempts.np_state[: attempts.rows] == GRANTED)
    classes = attempts.np_cls[rows]
    able = [number for number in np.flatnonzero(np.bincount(classes)).tolist()
            if state.cost(pc, state.classes[number]) and _could_take(core, poor, state.classes[number])]
    holders = np.bincount(attempts.np_pilot[rows[np.isin(classes, able)]])
    yield from [number for number in state.surplus if number < len(holders) and holders[number]]


def take_back(core: Core, row: int) -> None:
    """Whatever the pilots of a host hold and have not started."""
    attempts = core.state.attempts
    pilots = [core.state.pilots[number] for number in core.state.on_host.get(row, ())]
    for pilot in [pilot for pilot in pilots if pilot.state == LIVE]:
        for rows in _chains(core, pilot):
            if all(attempts.state[each] == GRANTED for each in rows):
                pilot.recalling.update((attempts.number[each], False) for each in rows)
        if pilot.recalling:
            nudge(core, pilot)


def _chains(core: Core, pilot: PilotState) -> Iterable[list[int]]:
    """Rows of what a pilot holds, newest first; those of one batch together."""
    attempts = core.state.attempts
    chains: dict[tuple[int, int], list[int]] = {}
    for row in attempts.of_pilot(pilot.number).tolist()[::-1]:
        if attempts.state[row] == LOST:
            continue
        chains.setdefault(chain_key(core.state, row), []).append(row)
    return chains.values()


def _recall(core: Core, rich: PilotState, poor: PilotState) -> bool:
    """Ask for half of the surplus, newest first, of classes that the poor one can run.

    A batch comes back whole or not at all: whoever asked for batches wants its tasks together, and one that has begun
    takes a slot that it would take with fewer tasks, too.
    """
    state = core.state
    attempts, pc = state.attempts, state.pilot_classes[poor.cls]
    spare = rich.load - rich.cores * 1000
    for rows in _chains(core, rich):
        cls = state.classes[attempts.cls[rows[0]]]
        if any(attempts.state[row] != GRANTED for row in rows) or not state.cost(pc, cls):
            continue
        if not _could_take(core, poor, cls):
            continue
        if spare <= 0:
            break
        rich.recalling.update((attempts.number[row], False) for row in rows)
        spare -= 2 * state.cost(state.pilot_classes[rich.cls], cls)
    if rich.recalling:
        nudge(core, rich)
    return bool(rich.recalling)


def _could_take(core: Core, pilot: PilotState, cls: TaskClass) -> bool:
    """Would it be given what another gives back?  Or that would go there and back as long as both live."""
    state = core.state
    left = pilot.park.left(core.now) if pilot.park is not None else pilot.ends - core.now if pilot.ends else None
    if not fits(pilot, cls, left) or not core.match.admits(core, pilot, cls):
        return False
    if elsewhere(state, pilot.site, cls) or quarantine.shuns(state, core.now, pilot, cls):
        return False
    return not cls.capped or per_host.left(core, pilot, cls, [], per_host.Held(state, pilot.row)) > 0
