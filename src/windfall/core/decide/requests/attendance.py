"""Attendance: an open bag is closed when its client has been away for long, so that it ends, and its pilots go home.

A client attends its bag by appending tasks and by following the bag's results.  A bag says how long its client may be
absent (`absence`); without that it stays open until somebody closes it.  Tasks that were appended still run.
"""

from __future__ import annotations

from windfall.core.decide.exchange.stranded import cancel_stranded
from windfall.core.messages import events as e, facts as f
from windfall.core.state.world import BagState
from windfall.core.turn import Turn


def resume(turn: Turn, bag: BagState) -> None:
    """Begin to count a bag's absence: it was submitted just now, or the server has just started."""
    if bag.absence and bag.open:
        bag.attended = turn.now
        turn.timers.add(turn.now + bag.absence, "absence", bag.number)


def attend(turn: Turn, event: e.Attend) -> None:
    """Note that clients follow these bags."""
    for number in event.bags:
        note_attended(turn, turn.state.bags.get(number))


def note_attended(turn: Turn, bag: BagState | None) -> None:
    if bag is not None:
        bag.attended = turn.now


def absence_due(turn: Turn, number: int) -> None:
    """Close a bag whose client has been away for too long, or look again later."""
    bag = turn.state.bags.get(number)
    if bag is None or not bag.open:
        return
    due = bag.attended + bag.absence
    if due > turn.now:
        turn.timers.add(due, "absence", number)
        return
    close_bag(turn, bag, f.ABSENT)


def close_bag(turn: Turn, bag: BagState, by: str) -> None:
    """Close an open bag: tasks that wait for more tasks than will come are cancelled."""
    turn.emit(f.BagClosed(turn.now, bag.number, by))
    cancel_stranded(turn, bag)
