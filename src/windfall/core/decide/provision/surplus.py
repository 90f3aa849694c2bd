"""Surplus: pilots that batch systems charge for go home soon after the last bag that could use them has ended (P7).

A pilot that finds nothing to do leaves by itself after `Config.idle`, since a task may fail and become ready again.
Where no open bag may use a site, no such task can come, and `Config.surplus` is long enough for a user who submits one
bag after the other.
"""

from __future__ import annotations

from windfall.core.decide.exchange.pilot_end import send_home
from windfall.core.messages.lifecycle import RUNNING
from windfall.core.state.world import SiteState
from windfall.core.turn import Turn


def dismiss_surplus(turn: Turn) -> int:
    """Drain the pilots of sites that no open bag has been able to use for long; return when to look again, 0: never."""
    state = turn.state
    owners = {state.bags[number].owner for number in state.unended}
    again = 0
    for site in map(state.sites.__getitem__, state.provisioned_sites):
        if site.owner in owners or not owners.isdisjoint(site.shared):
            site.session.useless_since = 0
            continue
        site.session.useless_since = site.session.useless_since or turn.now
        due = site.session.useless_since + turn.config.surplus
        if due <= turn.now:
            _drain_all(turn, site)
        elif site.intents[RUNNING]:
            again = min(again or due, due)
    return again


def _drain_all(turn: Turn, site: SiteState) -> None:
    for number in site.intents[RUNNING]:
        pilot = turn.state.pilots.get(turn.state.intents[number].pilot)
        if pilot is not None:
            send_home(turn, pilot)
