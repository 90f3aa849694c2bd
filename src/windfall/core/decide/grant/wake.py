"""Waking: when work appears, which of the waiting pilots is offered it, and in which order.

Pilots of one class wait in a queue, first come first served.  While a bag is in its tail, pilots on reliable hosts come
first (`replicas/tail.py`).
"""

from __future__ import annotations

from windfall.core.decide.exchange.reply import answer_waiting
from windfall.core.decide.grant.grant import grant
from windfall.core.decide.replicas.candidates import any_late, hosts_running_all_late
from windfall.core.decide.replicas.tail import reliable_hosts_first
from windfall.core.state.world import PilotClass, PilotState, State
from windfall.core.turn import Turn

MOST_IN_VAIN = 64  # pilots of a class asked in vain, where the answer depends on the moment or on late tasks
MOST_IN_VAIN_ON_HOST = 8  # pilots of one host asked in vain that have not the same time left


def grant_to_waiting(turn: Turn) -> None:
    """Grant new work to the waiting pilots."""
    waiting = _waiting_classes(turn.state)
    if waiting and _any_tail(turn.state):
        _grant_to_reliable_first(turn, waiting)
        return
    for pc in waiting:
        _grant_to_class(turn, pc, list(pc.waiting))


def offer_replicas(turn: Turn) -> None:
    """Offer late tasks to the waiting pilots, which were offered the ready ones before."""
    if (waiting := _waiting_classes(turn.state)) and any_late(turn):
        _grant_to_reliable_first(turn, waiting, only_late=True)


def _waiting_classes(state: State) -> list[PilotClass]:
    return [pc for pc in state.pilot_classes.values() if pc.waiting and pc.no_match_at_version != state.version]


def _any_tail(state: State) -> bool:
    return any(state.bags[number].in_tail for number in state.replicating)


def grant_on_hosts(turn: Turn) -> None:
    """Grant to other pilots of a host that holds fewer tasks of a bag with `per-host` than before."""
    state = turn.state
    rows, state.hosts_below_per_host = state.hosts_below_per_host, {}
    for row in rows:
        in_vain: dict[tuple[int, ...], int] = {}  # kind of pilot → pilots of the kind that got nothing here
        for number in list(state.on_host.get(row, ())):
            pilot = state.pilots[number]
            if number in state.pilot_classes[pilot.cls].waiting and pilot.waiting_request is not None:
                _grant_on_host(turn, pilot, in_vain)


def _grant_on_host(turn: Turn, pilot: PilotState, in_vain: dict[tuple[int, ...], int]) -> None:
    assert pilot.waiting_request is not None
    left = pilot.waiting_request.time_left(turn.now)
    kind = (pilot.cls, pilot.load, pilot.memory, pilot.disk) if left is None else (pilot.cls,)
    if in_vain.get(kind, 0) >= (MOST_IN_VAIN_ON_HOST if left is not None else 1):
        return
    if grant(turn, pilot, pilot.waiting_request.want, left, prefetch_allowed=False):
        answer_waiting(turn, pilot)
    else:
        in_vain[kind] = in_vain.get(kind, 0) + 1


def _grant_to_reliable_first(turn: Turn, waiting: list[PilotClass], only_late: bool = False) -> None:
    state = turn.state
    if not _any_work(turn, only_late):
        return
    in_vain = dict.fromkeys((pc.number for pc in waiting), 0)
    only_late = only_late or not (state.ready or state.overdue)
    busy = hosts_running_all_late(turn) if only_late else {}
    for number in reliable_hosts_first(state, waiting):
        pilot = state.pilots[number]
        pc = state.pilot_classes[pilot.cls]
        if in_vain[pc.number] >= MOST_IN_VAIN or not _is_worth_asking(turn, pc, pilot) or pilot.row in busy:
            continue
        in_vain[pc.number] += _grant_to_class(turn, pc, [number], only_late)
        if not only_late and in_vain[pc.number] >= MOST_IN_VAIN:
            turn.grants.some_waiting_unasked = True
        if not _any_work(turn, only_late):
            return


def _is_worth_asking(turn: Turn, pc: PilotClass, pilot: PilotState) -> bool:
    """Does the pilot still wait, and was none like it refused since something changed?"""
    if pc.no_match_at_version == turn.state.version or pilot.number not in pc.waiting:
        return False
    return not turn.grants.orders.in_vain(turn.state, turn.now, pilot)


def _any_work(turn: Turn, only_late: bool) -> bool:
    """Is there a task that some pilot might be granted?"""
    return (not only_late and bool(turn.state.ready or turn.state.overdue)) or any_late(turn)


def _grant_to_class(turn: Turn, pc: PilotClass, numbers: list[int], only_late: bool = False) -> int:
    """Grant to these pilots of one class, in this order.  Count those that got nothing for a reason of their own."""
    state, orders = turn.state, turn.grants.orders
    prefetch_allowed = len(pc.waiting) == 1  # beside other waiting pilots a prefetch would starve the next one
    in_vain = 0
    for number in numbers:
        if not state.ready and not state.replicating and not state.overdue:
            break
        pilot = state.pilots[number]
        if orders.in_vain(state, turn.now, pilot):
            continue
        request = pilot.waiting_request
        if request is not None and grant(turn, pilot, request.want, request.time_left(turn.now), prefetch_allowed):
            answer_waiting(turn, pilot)
        elif pc.no_match_at_version == state.version:
            break
        elif only_late or not state.ready or (state.ready_with_expressions and not orders.steady):
            in_vain += 1
            pc.waiting[number] = pc.waiting.pop(number)  # to the end of the queue: the next offer goes to others first
            if in_vain >= MOST_IN_VAIN:
                turn.grants.some_waiting_unasked |= not only_late
                break
    return in_vain
