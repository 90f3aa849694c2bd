"""Intents: what the enrolment, the requests and the end of a pilot mean for the intent it was started under.

A site that refuses pilots, or where pilots come to nothing, is left alone for a while (`back_off`)."""

from __future__ import annotations

from windfall.core.decide.grant import nearest_data
from windfall.core.messages import facts as f
from windfall.core.messages.lifecycle import INTENDED, LIVE, QUEUED, READY, RUNNING
from windfall.core.state.world import IntentState, PilotState, SiteState
from windfall.core.turn import Turn

BACKOFF, MAX_BACKOFF = 15_000, 600_000  # ms that a site which refused is left alone; doubled each time


def back_off(turn: Turn, site: SiteState) -> None:
    """Leave a site alone for a while: it refused a pilot, or a pilot that was sent there came to nothing."""
    t = site.session
    if t.retry_after <= turn.now:
        t.backoff = min(2 * t.backoff or BACKOFF, MAX_BACKOFF)
        t.retry_after = turn.now + t.backoff


def end_intents(turn: Turn, site: SiteState, intents: list[IntentState], why: str) -> None:
    """End intents, and charge what their pilots have used."""
    spent = [used(intent, turn.now) for intent in intents]
    turn.emit(f.IntentsEnded(turn.now, site.name, [intent.number for intent in intents], spent, why))


def used(intent: IntentState, now: int) -> int:
    """Return the core-ms that an intent's pilot has used; no more than was reserved, for its batch system ends it then.
    """
    ran = intent.shape.cores * intent.shape.nodes * (now - intent.running_since) if intent.running_since else 0
    return min(ran, intent.reserved) if intent.reserved else ran


def intent_named(turn: Turn, site: SiteState, nonce: str) -> IntentState | None:
    """Return the site's open intent with this nonce."""
    return turn.state.intents.get(turn.state.intent_nonces.get((site.name, nonce), 0))


def salvaging_until(turn: Turn, pilot: PilotState) -> int:
    """Return until when the pilot's results are looked for; 0: they are not."""
    intent = turn.state.intents.get(pilot.intent)
    return intent.salvage_until if intent is not None and intent.pilot == pilot.number else 0


def pilot_came(turn: Turn, pilot: PilotState) -> None:
    """Note that a pilot has enrolled: its intent runs.  A pilot whose intent is stopping or over is told to leave."""
    site = turn.state.sites[pilot.site]
    intent = turn.state.intents.get(pilot.intent)
    if site.drained or site.removed:
        nearest_data.drain_pilot(turn, pilot)
    if intent is not None and intent.state in (INTENDED, QUEUED):
        turn.emit(f.IntentsRunning(turn.now, site.name, [intent.number]))
        watch_wall(turn, intent)
    elif intent is not None and intent.state == RUNNING:
        return  # its batch system said so before, or the same pilot enrolled again
    elif pilot.state == LIVE and (intent is not None or _was_intent(turn, pilot.nonce)):
        nearest_data.drain_pilot(turn, pilot)


def pilot_asked(turn: Turn, pilot: PilotState) -> None:
    """Note that a pilot has asked for work: it no longer counts as one that will take a task in a moment."""
    site = turn.state.sites[pilot.site]
    if site.starting.pop(pilot.intent, True) is None:
        turn.provision.changed = True
    if pilot.granted:
        site.session.backoff, site.session.probing = 0, False


def _was_intent(turn: Turn, nonce: str) -> bool:
    """Was the nonce made by this server for an intent?"""
    mark, _, number = nonce.rpartition("-")
    counts = number.isascii() and number.isdigit() and len(number) < 20
    return mark == turn.config.mark and counts and int(number) < turn.state.next_intent


def pilot_left(turn: Turn, pilot: PilotState, why: str) -> None:
    """Note what a pilot's end means for its intent.

    A pilot that only fell silent may still run: its intent stays until its wall time is over.  The job of one that
    said goodbye, or that is reported dead, is gone when its batch system says so."""
    intent = turn.state.intents.get(pilot.intent)
    if intent is None or intent.pilot != pilot.number or why in ("silent", "requeued"):
        return
    site = turn.state.sites[intent.site]
    if intent.state == RUNNING:
        turn.emit(f.IntentsLeaving(turn.now, site.name, [intent.number], why))
    if not pilot.granted and left_in_vain(turn, site, intent):
        back_off(turn, site)


def left_in_vain(turn: Turn, site: SiteState, intent: IntentState) -> bool:
    """Did this pilot leave without a task although its shape is still wanted?

    Then it enrolled too late for its wall time, or is smaller than its shape."""
    pilot = turn.state.pilots[intent.pilot]
    if pilot.row in turn.state.quarantined:
        return False  # its host is no good, the site may be
    bag = turn.state.bags.get(intent.bag)
    if intent.task < 0:
        wanted = intent.shape in site.queued_by_shape or _enrolled_too_late(turn, site, intent.shape, pilot)
    else:
        wanted = bag is not None and bag.tasks.state[intent.task] == READY
    if wanted and pilot.ends:
        _ask_for_longer_wall_time(site, intent.shape, pilot)
    return wanted


def _enrolled_too_late(turn: Turn, site: SiteState, shape: f.Shape, pilot: PilotState) -> bool:
    """Is there a ready task for a pilot of this shape that needs more time than this pilot had when it enrolled?"""
    had = pilot.ends - pilot.enrolled if pilot.ends else 1 << 60
    classes = turn.state.classes
    return any(fit is not None and fit.shape == shape and number in classes and classes[number].ready > 0
               and classes[number].least_time_left > had for number, fit in site.best_shapes.items())


def _ask_for_longer_wall_time(site: SiteState, shape: f.Shape, pilot: PilotState) -> None:
    """Ask for 1.25 × the wall time on top, and a second, that this pilot lost before it enrolled."""
    lost = shape.wall - shape.spare - (pilot.ends - pilot.enrolled)
    start = lost * 5 // 4 + 1_000
    if shape.wall and start > site.session.late_start:
        site.session.late_start = start
        site.best_shapes.clear()


def watch_wall(turn: Turn, intent: IntentState) -> None:
    """Set a timer for the end of the wall time of an intent that runs."""
    if intent.shape.wall:
        late = turn.config.lease + turn.config.margin
        turn.timers.add(max(intent.running_since + intent.shape.wall, turn.now) + late, "wall", intent.number)
