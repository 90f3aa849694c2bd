"""Requests about owners: how much each may use in a month, and his weight where several share a site."""

from __future__ import annotations

from windfall.core.decide.grant import fair_share
from windfall.core.decide.requests.request import refusing
from windfall.core.messages import events as e, facts as f
from windfall.core.state import accounts
from windfall.core.turn import Turn
from windfall.errors import BadInput
from windfall.model.spec import MAX_WEIGHT


@refusing
def set_allowance(turn: Turn, event: e.SetAllowance) -> None:
    """Set how many core-ms an owner may use in a month; -1 takes the allowance away."""
    if not -1 <= event.allowance < accounts.UNLIMITED or not event.owner:
        raise BadInput(f"an allowance must be 0 ms of cores or more, and is {event.allowance}", "-1: no allowance")
    if turn.state.allowances.get(event.owner, -1) != event.allowance:
        turn.emit(f.AllowanceSet(turn.now, event.owner, event.allowance, event.by))
        watch_month(turn)
    turn.done(event)


@refusing
def set_weight(turn: Turn, event: e.SetWeight) -> None:
    """Set an owner's weight where several share a site."""
    if not 1 <= event.weight <= MAX_WEIGHT or not event.owner:
        raise BadInput(f"a weight must be from 1 to {MAX_WEIGHT:,}, and is {event.weight}")
    if fair_share.weight(turn.state, event.owner) != event.weight:
        turn.emit(f.WeightSet(turn.now, event.owner, event.weight, event.by))
    turn.done(event)


def watch_month(turn: Turn) -> None:
    """Set a timer for the beginning of the next month, when used-up allowances are renewed."""
    if turn.state.allowances and turn.provision.month_timer <= turn.now:
        turn.provision.month_timer = accounts.next_month(turn.now)
        turn.timers.add(turn.provision.month_timer, "month", 0)


def month_begins(turn: Turn, _: int) -> None:
    """Offer work again to those whose allowance was used up."""
    turn.state.version += 1
    turn.provision.changed = True
    watch_month(turn)
