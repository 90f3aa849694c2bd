"""Pilots whose jobs are gone: look for the results they left behind, then end them (S5).

A pilot that ran and is missing may have left results at its site.  If the provisioner can, it looks for them first, for
a bounded time; only tasks whose results it does not find run again.
"""

from __future__ import annotations

from windfall.core.decide.exchange.pilot_end import count_external, end_pilot
from windfall.core.decide.provision.intents import back_off, end_intents, intent_named, left_in_vain
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import GONE
from windfall.core.state.world import IntentState, PilotState, SiteState
from windfall.core.turn import Turn


def start_salvage(turn: Turn, site: SiteState, intent: IntentState) -> bool:
    """Have the site looked through for the results of an intent whose job is gone.

    Return False if there can be none."""
    pilot = turn.state.pilots.get(intent.pilot)
    if not site.session.can_salvage or pilot is None or pilot.state == GONE:
        return False
    if not len(turn.state.attempts.of_pilot(pilot.number)):
        return False  # the pilot has reported everything it was granted
    if not intent.salvage_until:
        intent.salvage_until = turn.now + turn.config.salvage
        turn.timers.add(intent.salvage_until, "salvage", intent.number)
    site.session.salvages_due.setdefault(intent.nonce, False)
    return True


def take_salvaged(turn: Turn, site: SiteState, nonce: str, found: int) -> None:
    """End a salvage.  The results found have been reported as their pilot would have; the other attempts are lost."""
    site.session.salvages_due.pop(nonce, None)
    intent = intent_named(turn, site, nonce)
    if intent is None or not intent.salvage_until:
        return
    since, intent.salvage_until = intent.salvage_until - turn.config.salvage, 0
    pilot = turn.state.pilots.get(intent.pilot)
    if found > 0 or (not found and (pilot is None or pilot.heard <= since)):
        _end_salvage(turn, site, intent, f"{found} results were found there")


def salvage_due(turn: Turn, number: int) -> None:
    """End a salvage that has found nothing in time, unless the pilot has spoken since: then it lives."""
    intent = turn.state.intents.get(number)
    if intent is None or not intent.salvage_until or turn.now < intent.salvage_until:
        return
    since, intent.salvage_until = intent.salvage_until - turn.config.salvage, 0
    site, pilot = turn.state.sites[intent.site], turn.state.pilots.get(intent.pilot)
    site.session.salvages_due.pop(intent.nonce, None)
    if pilot is None or pilot.heard <= since:
        _end_salvage(turn, site, intent, "the search for its results took too long")


def _end_salvage(turn: Turn, site: SiteState, intent: IntentState, outcome: str) -> None:
    pilot = turn.state.pilots.get(intent.pilot)
    kept = count_external(turn, pilot) if pilot is not None else 0
    again = pilot.attempts_held - kept if pilot is not None else 0
    text = f"the job of {intent.nonce} is gone: {outcome}; {again} tasks run again"
    if kept:
        text += f", {kept} with external effects wait for evidence that their pilot is dead"
    turn.emit(f.SiteNoted(turn.now, site.name, "salvage", text))
    end_with_pilots(turn, site, [intent])


def end_with_pilots(turn: Turn, site: SiteState, intents: list[IntentState], why: str = "gone") -> None:
    """End intents and their pilots, for the site believes that their jobs are gone."""
    pilots = [turn.state.pilots.get(intent.pilot) for intent in intents]
    vain = any(_was_in_vain(turn, site, *pair) for pair in zip(intents, pilots, strict=True))
    end_intents(turn, site, intents, why)
    for pilot in pilots:
        if pilot is not None and pilot.state != GONE:
            end_pilot(turn, pilot, why, proven=False)
    if vain:
        back_off(turn, site)


def _was_in_vain(turn: Turn, site: SiteState, intent: IntentState, pilot: PilotState | None) -> bool:
    """Did the intent's pilot never come, or was it granted nothing though its shape is still wanted?"""
    return pilot is None or (pilot.state != GONE and not pilot.granted and left_in_vain(turn, site, intent))
