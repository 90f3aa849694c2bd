"""Waking: when work appears, which of the waiting pilots is offered it, and in which order."""

from __future__ import annotations

from windfall.core.decide.exchange.reply import answer_waiting
from windfall.core.decide.grant.grant import grant
from windfall.core.decide.replicas.candidates import any_late, hosts_running_all_late
from windfall.core.decide.replicas.tail import reliable_hosts_first
from windfall.core.state.world import PilotClass, State
from windfall.core.turn import Turn

MOST_IN_VAIN = 64  # pilots of a class that are looked at, where expressions depend on the moment, or for replicas
MOST_THERE = 8  # of them on one host, where they have not the same time left


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
            if grant(turn, pilot, pilot.waiting_request.want, left, prefetch_allowed=False):
                answer_waiting(turn, pilot)
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
            answer_waiting(turn, pilot)
        elif pc.no_match_at_version == turn.state.version:
            break
        elif only_late or not turn.state.ready or (turn.state.ready_with_expressions and not turn.grants.orders.steady):
            in_vain += 1
            pc.waiting[number] = pc.waiting.pop(number)  # to the end of the line: the next time others are asked
            if in_vain >= MOST_IN_VAIN:
                turn.grants.some_waiting_unasked |= not only_late
                break
    return in_vain
